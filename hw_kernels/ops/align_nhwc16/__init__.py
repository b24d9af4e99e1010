if not __name__.startswith("npuforge."):
    raise ImportError(f"import this package as npuforge.hw_kernels.ops.align_nhwc16, not as {__name__}")
