if not __name__.startswith("npuforge."):
    raise ImportError(f"import this package as npuforge.hw_kernels.ops.lp_pool, not as {__name__}")
