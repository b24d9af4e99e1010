"""Stand-ins for the vendor's compiler, Python modules and plug-in (tests/board_runtime/vendor/python) in the places where the kit looks for them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
STAND_INS = TESTS / "board_runtime" / "vendor" / "python"


@contextlib.contextmanager
def vendors_side(tools: Path, patch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The vendor's compiler on the path, its modules importable here and in processes of their own, a plug-in on the loader's path."""
    tools.mkdir()
    compiler = tools / "vai_c_xir"
    compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_INS / "xcompiler.py"}" "$@"\n')
    compiler.chmod(0o755)
    (tools / "libnpuforge-runner.so").touch()
    source = TESTS.parent / "src"
    for folder in (TESTS / "compile", STAND_INS):
        patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", f"{STAND_INS}:{TESTS / 'compile'}:{source}")
    patch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    patch.setenv("LD_LIBRARY_PATH", str(tools))
    before = {name: sys.modules.pop(name, None) for name in ("xir", "vart")}
    yield tools
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module
