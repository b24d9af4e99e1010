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


def test_nothing_is_built_where_compile_writes() -> None:
    """`npuforge compile` writes to build/ by default; what setuptools builds in a checkout goes to another folder."""
    pytest.importorskip("setuptools")
    text = (
        "import setuptools; from distutils.core import run_setup; "
        "commands = [run_setup('setup.py', stop_after='config').get_command_obj(c) for c in ('build', 'build_ext')]; "
        "[c.ensure_finalized() for c in commands]; print(commands[0].build_base, commands[1].build_lib, commands[1].build_temp)"
    )
    result = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    folders = result.stdout.split()
    assert len(folders) == 3 and {Path(folder).parts[0] for folder in folders} == {".native-build"}


def test_what_an_isolated_build_leaves_names_no_program_that_is_gone() -> None:
    """.native-build/cmake is made with tools of this Python alone; those of pip's build environment vanish with it."""
    pytest.importorskip("setuptools")
    text = (
        "import runpy, sys; from pathlib import Path; sys.argv = ['setup.py', '-q', '--version']; "
        "lasts = runpy.run_path('setup.py')['lasts']; "
        "print(lasts(Path(sys.prefix, 'lib', 'pybind11')), lasts(Path('/tmp/pip-build-env-x/overlay/lib/pybind11')))"
    )
    result = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "True False"
