"""Compiled programs on the multi-kernel overlay under the thread sanitizer: the code generator's tokens order every access that must be
ordered (no data race, csim's bytes), none of them is redundant, and each one taken out of a compiled program is a race."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from happens_before import Stream, Token
from hls_support import run
from test_hls_overlay import Execution, build_testbench, run_testbench

from npuforge.compile.steps.generate import generate
from npuforge.compile.steps.write_bin import to_bytes
from npuforge.hw_kernels.arch import Arch, load
from npuforge.hw_kernels.isa.binfile import BinFile, parse_bin
from npuforge.hw_kernels.isa.codec import split

pytestmark = pytest.mark.skipif(shutil.which("clang++") is None, reason="needs clang++ with the thread sanitizer")


@dataclass
class Program:
    """One NPU partition of a `.bin`."""

    binary: BinFile
    meta: dict[str, Any]
    first: int
    count: int

    @classmethod
    def of(cls, image: bytes) -> Program:
        binary = parse_bin(image)
        meta = binary.json()
        part = next(p for p in meta["partitions"] if p["device"] == "NPU")
        return cls(binary, meta, part["first_instruction"], part["instruction_count"])

    @property
    def instructions(self) -> list[bytes]:
        return list(split(self.binary["instructions"].data))[self.first : self.first + self.count]

    def pool(self) -> np.ndarray:
        return np.frombuffer(np.random.default_rng(3).bytes(self.meta["pool_size"]), np.int8)

    def expected(self, arch: Arch) -> np.ndarray:
        """The pool after csim, in program order."""
        # Region 0 is the whole file; `run` appends the instructions behind it.
        outcome = run(
            self.instructions,
            data=self.binary.image,
            pool=self.pool(),
            sram=np.zeros(arch.sram_bytes, np.int8),
            pixels=arch.pixel_parallel,
            halt=False,
        )
        assert outcome.code == "OK"
        return outcome.pool

    def on_overlay(
        self, testbench: Path, folder: Path, instructions: list[bytes], order: list[int] | None = None
    ) -> Execution:
        """A run in which an engine that read parameters too early may refuse them: the pool shows it."""
        offset = self.binary["instructions"].offset + 128 * self.first
        image = bytearray(self.binary.image)
        image[offset : offset + 128 * self.count] = b"".join(instructions)
        return run_testbench(testbench, folder, bytes(image), self.pool().tobytes(), offset, self.count, order)


@dataclass
class Small:
    """A small network's program and the testbench for its arch."""

    program: Program
    stream: Stream
    arch: Arch
    testbench: Path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    from backend import small_arch
    from networks_int8 import Net
    from test_generate_networks import backbone

    net = Net((3, 48, 64), 1)
    arch = small_arch(131072)
    program = Program.of(to_bytes(generate(net.finish(*backbone(net)), arch)))
    testbench = build_testbench(tmp_path_factory.mktemp("small"), arch.sram_bytes, arch.pixel_parallel)
    return Small(program, Stream(program.instructions), arch, testbench)


def test_a_compiled_network_has_no_race(small: Small, tmp_path: Path) -> None:
    """Free engines, and orders in which two instructions that may run at once change places."""
    expected = small.program.expected(small.arch)
    at_once = small.stream.unordered()
    assert len(at_once) > 20
    orders = [small.stream.side_by_side(pair[::-1]) for pair in at_once[:: len(at_once) // 5]]
    for order in (None, *orders):
        execution = small.program.on_overlay(small.testbench, tmp_path, small.program.instructions, order)
        assert not execution.race, execution.process.stderr[:2000]
        assert np.array_equal(execution.pool, expected)


def test_no_token_is_redundant(small: Small) -> None:
    assert small.stream.races() == [] and small.stream.unfinished() == []
    assert [token for token in small.stream.tokens if small.stream.redundant(token)] == []


def seen(small: Small, folder: Path, token: Token, pair: tuple[int, int]) -> bool:
    """Does the sanitizer see the race of `pair` where the token is missing?"""
    order = small.stream.side_by_side(pair, token)
    return small.program.on_overlay(small.testbench, folder, small.stream.without(token), order).race


def test_every_token_taken_out_is_a_race(small: Small, tmp_path: Path) -> None:
    """One run each. The token that only HALT takes ends the program, no engine touches memory after it."""
    tokens = [token for token in small.stream.tokens if token.taker != small.program.count - 1]
    assert len(tokens) >= 30
    missed = [token for token in tokens if not seen(small, tmp_path, token, small.stream.races(token)[0])]
    assert missed == []


@pytest.mark.full
def test_every_race_of_every_token_is_seen(small: Small, tmp_path: Path) -> None:
    """All pairs that a missing token leaves unordered, in both orders."""
    missed = []
    for token in small.stream.tokens:
        pairs = small.stream.races(token)
        assert pairs or token.taker == small.program.count - 1, f"{token} orders nothing"
        missed += [
            (token, side) for pair in pairs for side in (pair, pair[::-1]) if not seen(small, tmp_path, token, side)
        ]
    assert missed == []


@pytest.mark.full
@pytest.mark.data
@pytest.mark.parametrize("arch_name", ["nf-b1024", "nf-b4096"])
@pytest.mark.parametrize("name", ["yolo_fastest_1.1", "yolox_nano_kazuhito"])
def test_real_networks_have_no_race(name: str, arch_name: str, tmp_path: Path) -> None:
    ladder = pytest.importorskip("ladder")
    model = ladder.DATA / "models" / f"{name}.onnx"
    if not model.exists():
        pytest.skip(f"{model} is absent")
    preset = "yolox_nano" if name.startswith("yolox") else "yolo_fastest_1.1"
    images = sorted(ladder.IMAGES.glob("*.jpg"))[:4]
    quantised = ladder.quantise_network(model, preset, "fine", images)
    arch = load(arch_name)
    program = Program.of(ladder.compile_graph(quantised, arch).image)
    testbench = build_testbench(tmp_path, arch.sram_bytes, arch.pixel_parallel)
    stream = Stream(program.instructions)
    assert [token for token in stream.tokens if not stream.carries_a_conflict(token)] == []
    execution = program.on_overlay(testbench, tmp_path, program.instructions)
    assert not execution.race, execution.process.stderr[:2000]
    assert np.array_equal(execution.pool, program.expected(arch))
