"""Damaged calls of single C++ operators end in a result or a typed error; odd_calls.py says how they are drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "npuforge.board_runtime._native", reason="the native module is not built: python setup.py build_ext --inplace"
)
PROGRAM = Path(__file__).with_name("odd_calls.py")


def run(first: int, count: int) -> None:
    done = subprocess.run([sys.executable, PROGRAM, str(first), str(count)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    calls, results, errors = (int(word) for word in done.stdout.replace(",", "").split() if word.isdigit())
    assert calls == count and results > count / 5 and errors > count / 5


def test_two_thousand_damaged_calls() -> None:
    run(0, 2000)


@pytest.mark.full
def test_fifty_thousand_damaged_calls() -> None:
    run(10_000, 50_000)
