"""A wheel holds every tracked file of the package folders: operator folders, headers, sources, JSON, YAML, templates, networks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("compile", "quant", "hw_kernels", "board_runtime", "scripts")
# Programs for a checkout, not part of the package.
CHECKOUT_ONLY = {
    "scripts/demo",
    "scripts/test",
    "scripts/docker-engine",
    "scripts/make-base-image",
    "scripts/environment.sh",
}


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs a git checkout")
def test_built_package_holds_every_file(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "egg_info",
        "-e",
        str(tmp_path),
        "build_py",
        "--build-lib",
        str(tmp_path),
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    tracked = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name for name in tracked.stdout.split() if (ROOT / name).is_file()} - CHECKOUT_ONLY
    built = {str(p.relative_to(tmp_path / "npuforge")) for p in (tmp_path / "npuforge").rglob("*") if p.is_file()}
    assert expected - built == set()
    assert len(expected) > 200
