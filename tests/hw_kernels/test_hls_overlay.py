"""The multi-kernel overlay with one thread per engine, under the thread sanitizer: right bytes and no data race on the pipeline of
`test_hls_tokens`; every dependency that is left out is reported as a race. No order of engines has to be guessed for that."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hls_support import HLS
from test_hls_tokens import DATA, POOL, SRAM, Step, expected, pairs, pipeline

from npuforge.hw_kernels.isa.codec import encode
from npuforge.hw_kernels.isa.generate import header_text

pytestmark = pytest.mark.skipif(shutil.which("clang++") is None, reason="needs clang++ with the thread sanitizer")


def build_testbench(folder: Path, sram_bytes: int, pixel_parallel: int) -> Path:
    """The overlay with one thread per engine, under the thread sanitizer."""
    (folder / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
    sources = [str(HLS / "npu_overlay.cpp"), str(Path(__file__).with_name("stream_testbench.cpp"))]
    flags = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=thread", "-pthread"]
    defines = [f"-DNPU_SRAM_BYTES={sram_bytes}", f"-DNPU_PIXEL_PARALLEL={pixel_parallel}"]
    subprocess.run(
        ["clang++", *flags, *defines, "-I", str(folder), "-I", str(HLS), *sources, "-o", str(folder / "tb")], check=True
    )
    return folder / "tb"


@pytest.fixture(scope="module")
def testbench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_testbench(tmp_path_factory.mktemp("overlay"), SRAM, 2)


def execute(testbench: Path, steps: list[Step], tmp_path: Path) -> tuple[subprocess.CompletedProcess[str], np.ndarray]:
    """Result of the process and the pool it left."""
    address = -(-len(DATA) // 128) * 128
    program = b"".join(step.encode() for step in steps) + encode("HALT")
    (tmp_path / "image").write_bytes(DATA.ljust(address, b"\0") + program)
    (tmp_path / "pool").write_bytes(POOL.tobytes())
    command = [str(testbench), str(tmp_path / "image"), str(tmp_path / "pool"), str(address), str(len(program) // 128)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return result, np.frombuffer((tmp_path / "pool").read_bytes(), np.int8)


def test_right_bytes_and_no_race(testbench: Path, tmp_path: Path) -> None:
    result, pool = execute(testbench, pipeline(len(DATA)), tmp_path)
    assert result.returncode == 0 and "data race" not in result.stderr, result.stderr[:2000]
    codes = [line.split()[:2] for line in result.stdout.splitlines()]
    assert codes == [["0", "0"]] * 5
    assert np.array_equal(pool, expected())


@pytest.mark.parametrize(("giver", "taker"), pairs())
def test_a_missing_dependency_is_a_race(testbench: Path, tmp_path: Path, giver: int, taker: int) -> None:
    steps = pipeline(len(DATA))
    steps[giver].push.remove(steps[taker].engine)
    steps[taker].pop.remove(steps[giver].engine)
    # One run can miss it where the scheduler never lets the two threads overlap.
    assert any("data race" in execute(testbench, steps, tmp_path)[0].stderr for _ in range(10))


def test_a_refusal_ends_every_engine(testbench: Path, tmp_path: Path) -> None:
    """Illegal parameter bytes are found while running: the engine names the instruction, the others come to their end."""
    steps = pipeline(len(DATA))
    steps[0].fields["chunk"] -= 16  # the border bytes stay 0
    broken = bytearray(DATA)
    broken[320 + 4] = 99  # a shift of 99 in lane 0
    address = -(-len(DATA) // 128) * 128
    program = b"".join(step.encode() for step in steps) + encode("HALT")
    (tmp_path / "image").write_bytes(bytes(broken).ljust(address, b"\0") + program)
    (tmp_path / "pool").write_bytes(POOL.tobytes())
    command = [str(testbench), str(tmp_path / "image"), str(tmp_path / "pool"), str(address), str(len(program) // 128)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[1][0] == lines[2][0] == "6"  # BAD_PARAMETER in the convolution and in the vector engine
    assert (lines[1][2], lines[2][2]) == ("2", "3")
