if not __name__.startswith("npuforge."):
    raise ImportError(f"import this package as npuforge.compile.onnxruntime, not as {__name__}")
