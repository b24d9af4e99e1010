"""Helper modules of these tests, and of the tests of code generator and ladder, are importable by name."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
for _folder in ("hw_kernels", "compile", "e2e"):
    if str(_TESTS / _folder) not in sys.path:
        sys.path.append(str(_TESTS / _folder))
