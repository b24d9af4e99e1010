"""Builds the C++ runtime with CMake; everything else about the package is in pyproject.toml.

`pip install .` and `pip install -e .` both end with `_native*.so` in board_runtime/, and libnpuforge-runner.so beside it where CMake finds the
vendor's VART (device `dpu` needs it). In a checkout:
`python setup.py build_ext --inplace`.
Everything built on the way lies in .native-build/ (CMake in .native-build/cmake), never in build/, where `npuforge compile` writes. pip's isolated build, whose
CMake, Ninja and pybind11 are gone afterwards, has .native-build/pip, so that .native-build/cmake names no program that is not there.
Environment: CMAKE_ARGS, CMAKE_BUILD_PARALLEL_LEVEL (default: every processor, at most 8; a compiler takes up to 0.6 GB).
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
NATIVE = "npuforge.board_runtime._native"
BUILD = ".native-build"
PLUG_IN = "libnpuforge-runner.so"  # board_runtime/dpu.py looks for it


class CMakeBuild(build_ext):
    """Configures and builds board_runtime/ with CMake and Ninja and copies the module to where setuptools wants it."""

    def run(self) -> None:
        """Remembers whether this is a build in a checkout: setuptools clears `inplace` while it builds."""
        self.checkout = bool(self.inplace)
        super().run()

    def copy_extensions_to_source(self) -> None:
        """Puts the module beside its sources."""
        build_py = self.get_finalized_command("build_py")
        for ext in self.extensions:
            inplace, built = self._get_inplace_equivalent(build_py, ext)
            replace(built, inplace)
            plug_in = Path(built).with_name(PLUG_IN)
            if plug_in.exists():
                replace(plug_in, Path(inplace).with_name(PLUG_IN))

    def build_extension(self, ext: Extension) -> None:
        """One extension: the CMake target `_native`."""
        import pybind11

        destination = Path(self.get_ext_fullpath(ext.name)).resolve()
        checkout = ROOT / BUILD / ("cmake" if lasts(Path(pybind11.get_cmake_dir())) else "pip")
        folder = checkout if self.checkout else Path(self.build_temp).resolve() / "native"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:  # two builds in one folder would overwrite each other
            fcntl.flock(lock, fcntl.LOCK_EX)
            configure = [
                tool("cmake"),
                "-S",
                str(ROOT / "board_runtime"),
                "-B",
                str(folder),
                "-G",
                "Ninja",
                f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
                f"-DPython3_EXECUTABLE={sys.executable}",
                f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
                "-DNPUFORGE_PYTHON=ON",
                "-DNPUFORGE_NATIVE_DIR=",
                *shlex.split(os.environ.get("CMAKE_ARGS", "")),
            ]
            subprocess.run(configure, check=True)
            jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(min(os.cpu_count() or 1, 8))
            build = [tool("cmake"), "--build", str(folder), "-j", jobs, "--target"]
            subprocess.run([*build, "_native", "vendor_plug_ins"], check=True)
            built = sorted(folder.glob("_native*.so"), key=lambda path: path.stat().st_mtime)
            if not built:
                raise RuntimeError(f"CMake built no _native module in {folder}")
            replace(built[-1], destination)
            if (folder / PLUG_IN).exists():
                replace(folder / PLUG_IN, destination.with_name(PLUG_IN))


def lasts(folder: Path) -> bool:
    """Whether a package's folder is this Python's own, not that of an environment made for one build."""
    return any(folder.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))


def replace(source: str | Path, destination: str | Path) -> None:
    """Copies by renaming, so that a process that has the old module loaded keeps it."""
    target = Path(destination)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(target.name + ".new")
    shutil.copy2(source, staged)
    staged.replace(target)


def tool(name: str) -> str:
    """The executable that pip installed beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise RuntimeError(f"{name} is not installed: pip install {name}")
    return found


setup(
    ext_modules=[Extension(NATIVE, sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    options={"build": {"build_base": BUILD}},
)
