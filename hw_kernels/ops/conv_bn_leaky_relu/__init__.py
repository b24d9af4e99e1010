if not __name__.startswith("npuforge."):
    raise ImportError(f"import this package as npuforge.hw_kernels.ops.conv_bn_leaky_relu, not as {__name__}")
