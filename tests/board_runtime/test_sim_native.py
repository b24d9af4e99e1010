"""The simulator's C++ under sanitizers: random programs on every code path, several contexts and threads at once, no allocation in a run."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
import sim_cases as cases

from npuforge.hw_kernels.isa.generate import main as generate

ROOT = Path(__file__).parents[2]
CASES = 60


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Random programs as files for sim_exercise."""
    folder = tmp_path_factory.mktemp("programs")
    paths = []
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        program, expected = cases.random_case(rng) if seed % 2 else cases.network(rng, 3)
        parts = (program.code, program.image, program.pool, expected.tobytes())
        sizes = [len(p) for p in parts]
        header = struct.pack("<6Q", *sizes[:3], program.sram, program.offset, sizes[3])
        paths.append(folder / f"{seed}.program")
        paths[-1].write_bytes(header + b"".join(parts))
    return paths


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", ["", "address,undefined", "thread"], ids=["none", "address", "thread"])
def test_exercise(tmp_path: Path, programs: list[Path], sanitizers: str) -> None:
    """Without sanitizers operator new is counted: runs after the first make no call."""
    compiler = shutil.which("clang++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    generate(["--header", str(tmp_path / "npu_isa.hpp")])
    includes = [f"-I{ROOT / 'board_runtime/include'}", f"-I{tmp_path}"]
    flags = ["-std=c++17", "-O1", "-g", "-pthread"]
    flags += [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"] if sanitizers else ["-DNPUFORGE_COUNT_NEW"]
    sources = [*(ROOT / "board_runtime/src/sim").glob("*.cpp"), Path(__file__).parent / "cpp/sim_exercise.cpp"]
    binary = tmp_path / "sim_exercise"
    subprocess.run([compiler, *flags, *includes, *sources, "-o", binary], check=True)
    result = subprocess.run([binary, *programs], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.split() == ["cases", str(CASES), "failed", "0", "new", "0"]
