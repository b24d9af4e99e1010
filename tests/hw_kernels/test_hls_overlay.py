"""The multi-kernel overlay with one thread per engine, under the thread sanitizer: right bytes and no data race on the pipeline of
`test_hls_tokens`; every dependency that is left out is reported as a race. `happens_before` says, from the tokens alone, which two instructions that
leaves unordered; the testbench executes them side by side, in turns that the sanitizer does not see."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from happens_before import Stream, Token
from hls_support import HLS
from test_hls_tokens import DATA, LOAD, POOL, SRAM, VECTOR, Step, expected, pairs, pipeline

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


@dataclass
class Execution:
    """What a run of the testbench left: its output, whether the sanitizer saw a race, the pool."""

    process: subprocess.CompletedProcess[str]
    pool: np.ndarray

    @property
    def race(self) -> bool:
        return "data race" in self.process.stderr


def run_testbench(
    testbench: Path, folder: Path, image: bytes, pool: bytes, address: int, count: int, order: list[int] | None = None
) -> Execution:
    """Runs `count` instructions at `address` of the image: engines free, or one instruction after the other in `order`."""
    (folder / "image").write_bytes(image)
    (folder / "pool").write_bytes(pool)
    command = [str(testbench), str(folder / "image"), str(folder / "pool"), str(address), str(count)]
    if order is not None:
        (folder / "order").write_bytes(np.array(order, "<u4").tobytes())
        command.append(str(folder / "order"))
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert len(process.stdout.splitlines()) == 5, process.stderr[:2000]
    return Execution(process, np.frombuffer((folder / "pool").read_bytes(), np.int8))


def execute(
    testbench: Path, folder: Path, program: list[bytes], order: list[int] | None = None, data: bytes = DATA
) -> Execution:
    """Runs a program on the data and pool of the pipeline."""
    address = -(-len(data) // 128) * 128
    image = data.ljust(address, b"\0") + b"".join(program)
    return run_testbench(testbench, folder, image, POOL.tobytes(), address, len(program), order)


def encoded(steps: list[Step]) -> list[bytes]:
    return [step.encode() for step in steps] + [encode("HALT")]


PIPELINE = Stream(encoded(pipeline(len(DATA))))


def test_right_bytes_and_no_race(testbench: Path, tmp_path: Path) -> None:
    program = encoded(pipeline(len(DATA)))
    at_once = PIPELINE.unordered()
    assert len(at_once) > 20
    orders = [PIPELINE.side_by_side(pair[::-1]) for pair in at_once[:: len(at_once) // 5]]
    for order in (None, *orders):
        execution = execute(testbench, tmp_path, program, order)
        assert execution.process.returncode == 0 and not execution.race, execution.process.stderr[:2000]
        assert [line.split()[:2] for line in execution.process.stdout.splitlines()] == [["0", "0"]] * 5
        assert np.array_equal(execution.pool, expected())


def test_the_model_agrees_with_counting() -> None:
    assert [(token.giver, token.taker) for token in PIPELINE.tokens] == pairs()
    assert PIPELINE.races() == []


@pytest.mark.parametrize("token", PIPELINE.tokens, ids=str)
def test_a_missing_dependency_is_a_race(testbench: Path, tmp_path: Path, token: Token) -> None:
    races = PIPELINE.races(token)
    assert (token.giver, token.taker) in races
    for pair in ((token.giver, token.taker), (token.taker, token.giver)):
        order = PIPELINE.side_by_side(pair, token)
        assert execute(testbench, tmp_path, PIPELINE.without(token), order).race


def test_a_redundant_token_is_not_a_race(testbench: Path, tmp_path: Path) -> None:
    """LOAD gives VECTOR what it knows through CONV already: the model says so, and the sanitizer sees nothing without it."""
    steps = pipeline(len(DATA))
    steps[1].push.append(VECTOR)
    steps[3].pop.append(LOAD)
    program = encoded(steps)
    stream, token = Stream(program), Token(1, 3)
    assert token in stream.tokens
    assert [t for t in stream.tokens if stream.redundant(t)] == [token]
    for order in (None, list(range(len(program)))):
        assert not execute(testbench, tmp_path, stream.without(token), order).race


def test_a_refusal_ends_every_engine(testbench: Path, tmp_path: Path) -> None:
    """Illegal parameter bytes are found while running: the engine names the instruction, the others come to their end."""
    steps = pipeline(len(DATA))
    steps[0].fields["chunk"] -= 16  # the border bytes stay 0
    broken = bytearray(DATA)
    broken[320 + 4] = 99  # a shift of 99 in lane 0
    execution = execute(testbench, tmp_path, encoded(steps), data=bytes(broken))
    lines = [line.split() for line in execution.process.stdout.splitlines()]
    assert lines[1][0] == lines[2][0] == "6"  # BAD_PARAMETER in the convolution and in the vector engine
    assert (lines[1][2], lines[2][2]) == ("2", "3")
