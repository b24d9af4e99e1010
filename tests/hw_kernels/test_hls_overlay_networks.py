"""Compiled programs on the multi-kernel overlay under the thread sanitizer: the code generator's tokens order every access that must be
ordered (no data race, csim's bytes), and a token taken out of a compiled program is a race."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hls_support import run
from test_hls_overlay import build_testbench

from npuforge.compile.steps.generate import generate
from npuforge.compile.steps.write_bin import to_bytes
from npuforge.hw_kernels.arch import Arch, load
from npuforge.hw_kernels.isa.binfile import BinFile, parse_bin
from npuforge.hw_kernels.isa.codec import decode, encode, split
from npuforge.hw_kernels.isa.instructions import Engine

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

    def on_overlay(self, testbench: Path, folder: Path, instructions: list[bytes]) -> tuple[str, np.ndarray]:
        """What the thread sanitizer says, and the pool (an engine that read parameters too early may refuse them: the pool shows it)."""
        offset = self.binary["instructions"].offset + 128 * self.first
        image = bytearray(self.binary.image)
        image[offset : offset + 128 * self.count] = b"".join(instructions)
        (folder / "image").write_bytes(bytes(image))
        (folder / "pool").write_bytes(self.pool().tobytes())
        command = [str(testbench), str(folder / "image"), str(folder / "pool"), str(offset), str(self.count)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert len(result.stdout.splitlines()) == 5, result.stderr[:2000]
        return result.stderr, np.frombuffer((folder / "pool").read_bytes(), np.int8)


def without_token(program: list[bytes], taker: int, giver_engine: int) -> list[bytes] | None:
    """The program without the token that instruction `taker` takes from an engine; None if only HALT takes it."""
    decoded = [decode(one) for one in program]
    engine = decoded[taker][0].engine
    if decoded[taker][0].name == "HALT":
        return None
    number = sum(1 for i, f in decoded[:taker] if i.engine == engine and f["pop"] >> giver_engine & 1)
    givers = [k for k, (i, f) in enumerate(decoded) if i.engine == giver_engine and f["push"] >> engine & 1]
    fields = [dict(f) for _, f in decoded]
    fields[taker]["pop"] &= ~(1 << giver_engine)
    fields[givers[number]]["push"] &= ~(1 << engine)
    return [encode(i.name, **f) for (i, _), f in zip(decoded, fields, strict=True)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, Arch, Path]:
    from backend import small_arch
    from networks_int8 import Net
    from test_generate_networks import backbone

    net = Net((3, 48, 64), 1)
    arch = small_arch(131072)
    program = Program.of(to_bytes(generate(net.finish(*backbone(net)), arch)))
    return program, arch, build_testbench(tmp_path_factory.mktemp("small"), arch.sram_bytes, arch.pixel_parallel)


def test_a_compiled_network_has_no_race(small: tuple[Program, Arch, Path], tmp_path: Path) -> None:
    program, arch, testbench = small
    report, pool = program.on_overlay(testbench, tmp_path, program.instructions)
    assert "data race" not in report, report[:2000]
    assert np.array_equal(pool, program.expected(arch))


def test_a_token_taken_out_is_a_race(small: tuple[Program, Arch, Path], tmp_path: Path) -> None:
    program, _, testbench = small
    instructions = program.instructions
    takers = [(k, int(e)) for k, one in enumerate(instructions) for e in Engine if decode(one)[1]["pop"] >> e & 1]
    changed = [c for k, e in takers[:: max(1, len(takers) // 12)] if (c := without_token(instructions, k, e))]
    assert len(changed) >= 8
    # The sanitizer sees a race only in a run where nothing else happens to order the two threads, so it gets five runs and need not
    # see every one. That every missing token is refused or changes bytes is proved without threads (test_hls_tokens, test_mutation).
    caught = [
        any("data race" in program.on_overlay(testbench, tmp_path, other)[0] for _ in range(5)) for other in changed
    ]
    assert sum(caught) >= len(caught) / 2


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
    quantised = ladder.quantise_network(model, preset, "fine")
    arch = load(arch_name)
    program = Program.of(ladder.compile_graph(quantised, arch).image)
    testbench = build_testbench(tmp_path, arch.sram_bytes, arch.pixel_parallel)
    report, pool = program.on_overlay(testbench, tmp_path, program.instructions)
    assert "data race" not in report, report[:2000]
    assert np.array_equal(pool, program.expected(arch))
