"""What the mutation tests share: a small network with every opcode, its `.bin` with one field or byte changed, and the devices' verdicts on it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from ladder import Binary, Quantised, csim_pool, sim_pool, write_inputs

from npuforge.compile.ir.errors import NpuforgeError
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.quantization import AveragePoolParams, ConvParams, EltwiseParams, OutputStage, Tail
from npuforge.compile.steps.generate import generate
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.isa.binfile import BinFile, parse_bin, refresh_crc
from npuforge.hw_kernels.isa.codec import decode
from npuforge.hw_kernels.isa.instructions import INSTRUCTION_BYTES, Field, Instruction

sys.path.append(str(Path(__file__).resolve().parents[1] / "compile"))

from networks_int8 import Net

Arrays = dict[str, np.ndarray]


class Sensitive(Net):
    """A `Net` in which little is lost behind an accumulator: no lane saturates for long or is clamped to a constant, and tables are used from end to
    end, so that a change of any parameter shows."""

    def stage(self, channels: int, kind: str, magnitude: float) -> OutputStage:
        r = self.random
        zero = r.integers(-20, 21, channels).astype(np.int8)
        low, high = np.full(channels, -128, np.int8), np.full(channels, 127, np.int8)
        if kind == "direct":
            return OutputStage("direct", _shift(magnitude / 90, channels), zero, low=low, high=high)
        m_pos = r.integers(16384, 32768, channels).astype(np.int16)
        if kind == "pwl":
            m_neg = (m_pos * r.uniform(0.3, 1, channels)).astype(np.int16)
            return OutputStage("pwl", _shift(24000 * magnitude / 90, channels), zero, m_pos, m_neg, low, high)
        bits = 9
        table = np.clip(np.cumsum(r.integers(-100, 300, 257)) - 13000, -32768, 32767).astype(np.int16)
        m2 = r.integers(16384, 32768, channels).astype(np.int16)
        shift = _shift(24000 * magnitude / (0.6 * (8 << bits)), channels)
        tails = (Tail(False, int(table[0]) - 2000), Tail(True))
        return OutputStage(
            "table", shift, zero, m_pos, m2, None, None, np.full(channels, 22, np.int8), table, bits, *tails
        )

    def conv(self, name: str, x: str, *args: Any, **attrs: Any) -> str:
        super().conv(name, x, *args, **attrs)
        params = self.qgraph.params[name]
        assert isinstance(params, ConvParams)
        params.pad_value = self.random.integers(-20, 21, len(params.pad_value)).astype(np.int8)
        return name

    def pool(self, op: str, name: str, x: str, kernel: tuple[int, int], **attrs: Any) -> str:
        super().pool(op, name, x, kernel, **attrs)
        params = self.qgraph.params[name]
        if isinstance(params, AveragePoolParams):
            channels, taps = self.shape(x)[0], np.arange(1, len(params.multiplier) + 1)[:, None]
            factor, count = self.random.uniform(16384, 32768, channels), 1
            if params.single:  # sums of many taps: a small multiplier, so that its low byte matters
                factor, count = self.random.uniform(150, 250, channels), kernel[0] * kernel[1]
            params.multiplier = (factor / taps).astype(np.int16)
            params.shift = int(np.log2(factor.mean() * count)) - (1 if params.single else 0)
            params.zero_in, params.zero_out = (self.random.integers(-20, 21, channels).astype(np.int8) for _ in "io")
        return name

    def pair(self, op: str, name: str, a: str, b: str, stage: str = "direct") -> str:
        super().pair(op, name, a, b, stage)
        params = self.qgraph.params[name]
        assert isinstance(params, EltwiseParams)
        channels = len(params.m_a)
        params.m_a, params.m_b = (self.random.integers(16384, 32768, channels).astype(np.int16) for _ in "ab")
        params.m_b = params.m_b if op != "Mul" else np.zeros(channels, np.int16)
        params.z_a, params.z_b = (self.random.integers(-20, 21, channels).astype(np.int8) for _ in "ab")
        return name

    def affine(self, name: str, x: str, stage: str = "pwl") -> str:
        super().affine(name, x, stage)
        params = self.qgraph.params[name]
        assert isinstance(params, EltwiseParams)
        channels = len(params.m_a)  # small multipliers and addends, so that their low bytes matter
        params.m_a = self.random.integers(256, 512, channels).astype(np.int16)
        params.k = self.random.integers(-8000, 8000, channels).astype(np.int32)
        params.stage = self.stage(channels, stage, 400 * 85)
        params.z_a = self.random.integers(-20, 21, channels).astype(np.int8)
        return name


def _shift(factor: float, channels: int) -> np.ndarray:
    return np.full(channels, int(np.clip(round(np.log2(factor)), 0, 47)), np.int8)


def every_engine(seed: int = 3) -> tuple[Net, list[str]]:
    """A network that uses every opcode, stage and kind, with whole blocks of channels where not said otherwise; every tensor is an output."""
    net = Sensitive((3, 15, 14), seed)
    other = net.input("other", (32, 8, 7))
    names = [net.conv("stem", "input", 16, (3, 3), pads=(1, 1, 1, 1))]
    names.append(net.conv("down", "stem", 32, (3, 3), (2, 2), (2, 2, 2, 2), (2, 2)))
    names.append(net.conv("curve", "down", 16, (2, 3), pads=(1, 1, 0, 2), stage="table"))
    names.append(net.conv("depth", "down", 32, (3, 3), pads=(1, 1, 1, 1), group=32))
    names.append(net.conv("depth_curve", "down", 32, (3, 2), (1, 1), (1, 0, 1, 1), group=32, stage="table"))
    names.append(net.pool("MaxPool", "largest", "down", (2, 3), pads=[1, 1, 0, 1]))
    names.append(net.pool("AveragePool", "mean", "down", (3, 3), pads=[1, 1, 1, 1]))
    names.append(net.pool("AveragePool", "whole", "down", (8, 7)))
    names.append(net.pair("Add", "sum", "down", other))
    names.append(net.pair("Sub", "difference", "down", "depth", "pwl"))
    names.append(net.pair("Mul", "gated", "down", "whole", "table"))
    names.append(net.conv("one", "down", 1, (1, 1)))
    names.append(net.pair("Mul", "masked", "down", "one"))
    names.append(net.affine("affine", "down"))
    names.append(net.affine("affine_curve", "stem", "table"))
    resized: dict[str, Any] = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"}
    names.append(
        net.add("Resize", "linear", ["down"], mode="linear", sizes=[11, 12], scales=[1.375, 12 / 7], **resized)
    )
    names.append(
        net.add("Resize", "nearest", ["curve"], mode="nearest", sizes=[9, 13], scales=[1.125, 13 / 7], **resized)
    )
    names.append(net.add("Concat", "twice", ["sum", "sum"], axis=1))  # needs a copy
    # Only the sums are outputs: each is the residual stage of its convolution. One takes the place of its skip tensor.
    net.conv("inner_curve", "down", 32, (3, 3), pads=(1, 1, 1, 1), stage="table")
    names.append(net.pair("Add", "residual", "inner_curve", "down"))
    net.conv("skipped", "depth", 32, (1, 1))
    net.conv("inner", "down", 32, (1, 1))
    names.append(net.pair("Add", "leaky_residual", "skipped", "inner", "pwl"))
    names.append(net.conv("up", "curve", 16, (3, 3), (2, 2), (1, 1, 1, 1), transpose=True))
    return net, names


@dataclass
class Subject:
    """A compiled network, several inputs, and what a right device makes of them."""

    quantised: Quantised
    binary: Binary
    feeds: list[Arrays]

    @cached_property
    def parsed(self) -> BinFile:
        return parse_bin(self.binary.image)

    @cached_property
    def pools(self) -> list[bytes]:
        """The pool before each run."""
        return [write_inputs(self.binary, feeds) for feeds in self.feeds]

    @cached_property
    def golden(self) -> list[bytes]:
        """The pool after each run."""
        return [csim_pool(self.binary.image, pool) for pool in self.pools]

    @property
    def instructions(self) -> list[tuple[Instruction, dict[str, int]]]:
        """Decoded, in program order."""
        data, size = self.parsed["instructions"].data, INSTRUCTION_BYTES
        return [decode(data[i : i + size]) for i in range(0, len(data), size)]

    def with_bytes(self, offset: int, value: bytes) -> bytes:
        """The file with other bytes at a file offset, and the right CRC."""
        image = self.binary.image
        return refresh_crc(image[:offset] + value + image[offset + len(value) :])

    def with_field(self, index: int, field: Field, value: int) -> bytes:
        """The file with one field of one instruction changed."""
        where = self.parsed["instructions"].offset + index * INSTRUCTION_BYTES + 4 * field.word
        word = int.from_bytes(self.binary.image[where : where + 4], "little")
        mask = ((1 << field.width) - 1) << field.lsb
        word = (word & ~mask) | ((value << field.lsb) & mask)
        return self.with_bytes(where, word.to_bytes(4, "little"))


@lru_cache(maxsize=1)
def subject() -> Subject:
    """`every_engine` on nf-b1024 with several random inputs; those of extreme values reach the tails of every table."""
    net, names = every_engine()
    qgraph = net.finish(*names)
    binary = Binary.of(generate(qgraph, load("nf-b1024")))
    feeds = [net.feeds() for _ in range(16)]
    for number in (1, 4, 8, 12):
        feeds[number] = {name: np.where(v < 0, np.int8(-128), np.int8(127)) for name, v in feeds[number].items()}
    return Subject(Quantised(qgraph, Preprocess()), binary, feeds)


@dataclass(frozen=True)
class Verdict:
    """What a device did with the first input: refused with a message, or left this pool."""

    refusal: str = ""
    pool: bytes = b""


def csim_verdict(subject: Subject, image: bytes, number: int = 0, sram_fill: int = 0) -> Verdict:
    """On csim. Only the kit's own errors are refusals; anything else is a failure of the test."""
    try:
        return Verdict(pool=csim_pool(image, subject.pools[number], sram_fill=sram_fill))
    except NpuforgeError as error:
        return Verdict(str(error))


def sim_verdict(subject: Subject, image: bytes, number: int = 0) -> Verdict:
    """On sim."""
    try:
        return Verdict(pool=sim_pool(image, subject.binary.meta, subject.pools[number]))
    except NpuforgeError as error:
        return Verdict(str(error))


def disagreement(csim: Verdict, sim: Verdict) -> str:
    """Both refuse, or both leave the same bytes. One thing only the simulator looks for (docs/isa.md): an instruction whose output overwrites
    what it has still to read, which is undefined in hardware."""
    if "expected an output apart from the inputs" in sim.refusal:
        return ""
    if bool(csim.refusal) != bool(sim.refusal):
        return f"csim: {csim.refusal or 'runs'}, sim: {sim.refusal or 'runs'}"
    return "" if csim.pool == sim.pool else "csim and sim leave different pools"


def noticed(subject: Subject, image: bytes, first: Verdict) -> bool:
    """Refused, or other bytes than those of the unchanged program for some input, or for other rubbish in the memory before it."""
    if first.refusal or first.pool != subject.golden[0]:
        return True
    runs = [(number, 0) for number in range(1, len(subject.feeds))] + [(0, 0xA5), (1, 0x37)]
    return any(csim_verdict(subject, image, n, fill).pool != subject.golden[n] for n, fill in runs)
