"""Random networks and damaged calls on a `_native` built with sanitizers (board_runtime/README.md has the commands).

python tests/conformance/sanitized.py FOLDER_OF_NATIVE NETWORKS CALLS
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import npuforge.board_runtime


def load(folder: str) -> None:
    """Puts the module of that folder in the place of the installed one."""
    name = "npuforge.board_runtime._native"
    (path,) = Path(folder).glob("_native*.so")
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    npuforge.board_runtime._native = module


def main(folder: str, networks: int, calls: int) -> int:
    """Any finding of the sanitizers ends the process."""
    load(folder)
    import odd_calls
    from test_random_graphs import check

    for seed in range(networks):
        check(seed)
    print(f"{networks} networks equal ONNX Runtime")
    return odd_calls.main(0, calls)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
