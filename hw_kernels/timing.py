"""The timing model: one formula per instruction (`cost`), and the event-driven schedule of the four queues with tokens and shared DDR (`schedule`).

The compiler's choices, the per-layer report and the simulated cycles of a run all come from here. Figures are simulated cycles, not measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.arch import BLOCK_BYTES, LANES, Arch
from npuforge.hw_kernels.isa.instructions import BF16_SUFFIX, BY_NAME, Engine, needs_bf16

CONV_START = 32  # cycles: fields, parameter latching and the depth of the array's pipeline
VECTOR_START = 16
TRANSFER_START = 8
BURST_BEATS = 1  # address beat per run of consecutive DDR bytes
RESIZE_READS = 2  # cycles per pixel group: two rows, both columns at once
_TRANSFERS = (Engine.LOAD, Engine.STORE)


@dataclass(frozen=True)
class Cost:
    """What one instruction takes: `cycles` of its engine; for transfers also `beats` on the shared DDR (of one AXI port) after the latency."""

    cycles: int
    beats: int = 0
    ddr_bytes: int = 0
    macs: int = 0  # of the array or the depthwise multipliers, pad lanes included


def _groups(fields: dict[str, int], width: int) -> int:
    """Groups of `width` pixels; pixels are taken row after row without gaps."""
    return ceil(fields["out_h"] * fields["out_w"] / width)


def _taps(fields: dict[str, int]) -> int:
    return fields["kernel_h"] * fields["kernel_w"]


def _segments(fields: dict[str, int]) -> tuple[int, int]:
    """Number and bytes of the runs of consecutive DDR bytes of a LOAD or STORE."""
    rows, cols, chunk = fields["rows"], fields["cols"], fields["chunk"]
    if cols == 1 or fields["ddr_col_stride"] == chunk:
        cols, chunk = 1, cols * chunk
        if rows == 1 or fields["ddr_row_stride"] == chunk:
            rows, chunk = 1, rows * chunk
    return rows * cols, chunk


def cost(name: str, fields: dict[str, int], arch: Arch) -> Cost:
    """The formula of instruction `name`."""
    pixels = fields["out_h"] * fields["out_w"] if "out_h" in fields else 0
    lane_bytes = 1
    array_pixels, vector_pixels = arch.pixel_parallel, arch.vector_pixels
    if needs_bf16(name):
        name, lane_bytes = name.removesuffix(BF16_SUFFIX), 2
        array_pixels, vector_pixels = arch.bf16_pixel_parallel, arch.bf16_vector_pixels
    if name == "HALT":
        return Cost(1)
    if name in ("LOAD", "STORE"):
        count, size = _segments(fields)
        beats = count * (ceil(size / arch.beat_bytes) + BURST_BEATS)
        return Cost(TRANSFER_START, beats, count * size)
    if name == "LOAD_FOLD":
        rows = max(1, min(fields["in_h"], (fields["out_h"] - 1) * fields["stride_h"] + fields["kernel_h"]))
        size = fields["in_w"] * fields["channels"] * lane_bytes
        count, run = (1, rows * size) if fields["ddr_row_stride"] == size else (rows, size)
        beats = count * (ceil(run / arch.beat_bytes) + BURST_BEATS)
        written = ceil(pixels * fields["blocks_out"] * lane_bytes / arch.axi_ports)  # each port fills one word a cycle
        return Cost(TRANSFER_START + written, beats, rows * size)
    if name == "CONV":
        products = _taps(fields) * fields["blocks_in"]
        # The port that writes the output also reads the skip tensor: an output block then takes two of its cycles.
        steps = max(products, 1 + fields.get("residual", 0)) * fields["blocks_out"]
        macs = pixels * products * fields["blocks_out"] * LANES * LANES
        return Cost(CONV_START + _groups(fields, array_pixels) * steps, macs=macs)
    groups = _groups(fields, vector_pixels) * fields["blocks_out"]
    if name == "DEPTHWISE":
        return Cost(VECTOR_START + groups * _taps(fields), macs=pixels * _taps(fields) * fields["blocks_out"] * LANES)
    if name == "POOL":
        return Cost(VECTOR_START + groups * _taps(fields))
    if name == "RESIZE":
        return Cost(VECTOR_START + groups * RESIZE_READS)
    if name in ("ELTWISE", "COPY"):
        return Cost(VECTOR_START + groups)
    raise InstructionError(f"timing: instruction {name!r} has no formula; known: {', '.join(BY_NAME)}")


@dataclass
class Schedule:
    """Start and end cycle of every instruction of one partition, and totals."""

    start: list[int]
    end: list[int]
    costs: list[Cost]
    engines: list[Engine]

    @property
    def cycles(self) -> int:
        """From the start to the end of the last instruction."""
        return max(self.end, default=0)

    @property
    def ddr_bytes(self) -> int:
        """Bytes read from and written to DDR."""
        return sum(c.ddr_bytes for c in self.costs)

    def busy(self, engine: Engine) -> int:
        """Cycles in which the engine works or transfers."""
        return sum(e - s for s, e, own in zip(self.start, self.end, self.engines, strict=True) if own == engine)


@dataclass
class _Running:
    index: int
    ready: float  # compute: end; transfers: end of latency, then the engine's own work
    own_end: float
    beats: float


def schedule(program: Sequence[tuple[str, dict[str, int]]], arch: Arch) -> Schedule:
    """Runs the four queues: an instruction starts when its engine is free and its tokens are there; transfers share the DDR evenly.

    `program`: names and fields in program order. A program that cannot end is an InstructionError that names the waiting instructions.
    """
    engines = [BY_NAME[name].engine for name, _ in program]
    costs = [cost(name, fields, arch) for name, fields in program]
    queues = {engine: [i for i, e in enumerate(engines) if e == engine] for engine in Engine}
    position = dict.fromkeys(Engine, 0)
    running: dict[Engine, _Running] = {}
    tokens = {(a, b): 0 for a in Engine for b in Engine}
    start, end = [0.0] * len(program), [0.0] * len(program)
    now, done = 0.0, 0
    while done < len(program):
        for engine in Engine:
            if engine in running or position[engine] >= len(queues[engine]):
                continue
            index = queues[engine][position[engine]]
            needed = [(other, engine) for other in Engine if program[index][1].get("pop", 0) >> other & 1]
            if any(tokens[pair] == 0 for pair in needed):
                continue
            for pair in needed:
                tokens[pair] -= 1
            position[engine] += 1
            start[index] = now
            latency = arch.ddr_latency_cycles if costs[index].beats else 0
            running[engine] = _Running(
                index, now + latency, now + latency + costs[index].cycles, float(costs[index].beats)
            )
        if not running:
            stuck = [f"{queues[e][position[e]]} ({e.name})" for e in Engine if position[e] < len(queues[e])]
            raise InstructionError(
                f"schedule: deadlock, instructions {', '.join(stuck)} wait for tokens that never come"
            )
        moving = [r for r in running.values() if r.beats > 0 and r.ready <= now]
        rate = arch.axi_ports / len(moving) if moving else 0.0
        events = [now + r.beats / rate for r in moving]
        events += [r.ready for r in running.values() if r.beats > 0 and r.ready > now]
        events += [r.own_end for r in running.values() if r.beats <= 0]
        following = max(now, min(events))
        for r in moving:
            r.beats -= (following - now) * rate
            if r.beats < 1e-6:
                r.beats = 0.0
        now = following
        for engine in list(running):
            r = running[engine]
            if r.beats <= 0 and r.own_end <= now:
                end[r.index] = now
                for other in Engine:
                    if program[r.index][1].get("push", 0) >> other & 1:
                        tokens[(engine, other)] += 1
                del running[engine]
                done += 1
    return Schedule([ceil(s - 1e-6) for s in start], [ceil(e - 1e-6) for e in end], costs, engines)


def fold_beats(rows: int, row_bytes: int, arch: Arch) -> int:
    """DDR beats of reading `rows` rows of an image once (for choosing how to fold a first layer)."""
    return ceil(rows * row_bytes / arch.beat_bytes)


__all__ = ["BLOCK_BYTES", "Cost", "Schedule", "cost", "fold_beats", "schedule"]
