if not __name__.startswith("npuforge."):
    raise ImportError(f"import this package as npuforge.scripts.report, not as {__name__}")
