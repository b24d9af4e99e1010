"""Counts as a person writes them, and an application that is not there."""

import subprocess
import sys

import pytest

from npuforge.compile.ir.words import counted


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (1000, "1000 nodes")])
def test_one_is_singular(count, text):
    assert counted(count, "node") == text


def test_a_missing_application_is_one_line(tmp_path):
    missing = tmp_path / "nope.py"
    done = subprocess.run(
        [sys.executable, "-m", "npuforge.board_runtime.vart", str(missing)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and f"{missing}: no such file" in done.stderr
