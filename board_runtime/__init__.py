if not __name__.startswith("npuforge."):
    raise ImportError(f"import this package as npuforge.board_runtime, not as {__name__}")
