"""Helpers beside the tests are importable; tests of this folder need the native module."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
