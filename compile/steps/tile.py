"""Step `tile`: layers in a good order (`order.py`), what stays in SRAM, row bands and weight cuts (`plan_layers.py`), the symbolic program
(`emit.py`) and its SRAM addresses. If no addresses are found for all buffers, everything is repeated with a smaller share of the SRAM.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ArchError, VerifyError
from npuforge.compile.steps import tokens
from npuforge.compile.steps.emit import Emitted, Emitter, place_sections
from npuforge.compile.steps.layers import LaneResult, Lowered, Storage
from npuforge.compile.steps.order import candidates
from npuforge.compile.steps.plan_layers import Planner
from npuforge.compile.steps.plan_memory import Block, allocate
from npuforge.hw_kernels.arch import Arch
from npuforge.hw_kernels.dsl.tile import POOL, SRAM, Buffer
from npuforge.hw_kernels.timing import schedule

# Shares of the SRAM that layers may use: less where addresses for all buffers cannot be found (fragmentation).
BUDGETS = (1.0, 0.96, 0.92, 0.88, 0.84, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)
# Shares of the SRAM up to which buffers are left alone for longer than they have to be, and whether addresses for that are searched for.
LINGERING = ((1.0, False), (0.8, False), (0.8, True))


@dataclass
class TileResult:
    """All NPU partitions as symbolic programs, with SRAM addresses."""

    lanes: LaneResult
    partitions: list[Emitted]
    pool: dict[Storage, Buffer]
    sram_address: dict[Buffer, int] = field(default_factory=dict)
    sram_blocks: list[list[tuple[Block, int]]] = field(
        default_factory=list
    )  # per partition: live range in instructions, address

    def to_json(self) -> dict[str, Any]:
        """For --dump-steps."""
        return {
            "partitions": [
                {
                    "resident": sorted(s.name for s in e.residency.sram),
                    "pool": sorted(s.name for s in e.residency.pool),
                    "layers": [
                        {
                            "id": p.layer.id,
                            "bands": p.work.bands,
                            "cuts": [[c.first, c.count] for c in p.work.cuts],
                            "loaded_with": p.early,
                        }
                        for p in e.plans
                    ],
                    "sram": [
                        {"name": b.name, "lower": b.lower, "upper": b.upper, "size": b.size, "offset": a}
                        for b, a in blocks
                    ],
                }
                for e, blocks in zip(self.partitions, self.sram_blocks, strict=True)
            ]
        }


def _place_sram(emitted: Emitted, arch: Arch) -> list[tuple[Block, int, Buffer]] | None:
    """Addresses of all SRAM buffers by live range in instructions; None if they do not fit."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for index, instr in enumerate(emitted.instructions):
        for footprint in (*instr.reads, *instr.writes):
            if footprint.buffer.space == SRAM:
                first, _ = spans.get(footprint.buffer, (index, index))
                spans[footprint.buffer] = (first, index)
    buffers = list(spans)
    blocks = [Block(b.name, spans[b][0], spans[b][1] + 1, b.size) for b in buffers]
    search = 2 * len(blocks)
    attempts = [(_linger(blocks, emitted, int(arch.sram_bytes * share)), nodes) for share, nodes in LINGERING]
    for lives, thorough in (*attempts, (blocks, True)):
        height, offsets = allocate(lives, capacity=arch.sram_bytes, nodes=search if thorough else 0)
        if height <= arch.sram_bytes:
            break
    if height > arch.sram_bytes:
        return None
    return list(zip(blocks, offsets, buffers, strict=True))


def _linger(blocks: list[Block], emitted: Emitted, room: int) -> list[Block]:
    """The blocks, each left alone during the layer after its last reader's as well, where all that lives then stays within `room` bytes.

    Whoever takes the bytes of a block at once has to wait for its last reader: layers that could run side by side would not.
    """
    layers = np.array([instr.layer for instr in emitted.instructions])
    alive = np.zeros(len(layers), np.int64)
    for block in blocks:
        alive[block.lower : block.upper] += block.size
    result = []
    for block in blocks:
        later = np.flatnonzero(layers == layers[block.upper - 1] + 1)
        upper = max(block.upper, int(later[-1]) + 1) if later.size else block.upper
        if upper > block.upper and int(alive[block.upper : upper].max()) + block.size <= room:
            alive[block.upper : upper] += block.size
            block = replace(block, upper=upper)
        result.append(block)
    return result


def run(lanes: LaneResult) -> TileResult:
    """The step: for each partition the fastest, by the timing model, of a few orders of its layers."""
    outside: set[Storage] = set()
    for lowered in lanes.partitions:
        outside |= {lanes.places[t].storage for t in (*lowered.inputs, *lowered.outputs)}
    result = TileResult(lanes, [], {})
    for lowered in lanes.partitions:
        first = Planner(lowered, lanes, outside)
        best: tuple[int, Emitted, list[tuple[Block, int, Buffer]], dict[Storage, Buffer]] | None = None
        for order in candidates(lowered.layers, lanes, first.times()):
            changed = replace(lowered, layers=[lowered.layers[i] for i in order])
            emitted, placed, buffers = _fit_partition(Planner(changed, lanes, outside), changed, lanes, result.pool)
            cycles = _cycles(emitted, placed, lanes.arch)
            if best is None or cycles < best[0]:
                best = cycles, emitted, placed, buffers
        assert best is not None
        _, emitted, placed, buffers = best
        result.pool |= buffers
        result.partitions.append(emitted)
        result.sram_blocks.append([(block, address) for block, address, _ in placed])
        result.sram_address |= {buffer: address for _, address, buffer in placed}
    return result


def _cycles(emitted: Emitted, placed: list[tuple[Block, int, Buffer]], arch: Arch) -> int:
    """Simulated cycles; where pool buffers will lie does not matter for them, except that buffers that share bytes wait for each other."""
    address: dict[Buffer, int] = {buffer: where for _, where, buffer in placed}
    position = 0
    for instr in emitted.instructions:
        for footprint in (*instr.reads, *instr.writes):
            if footprint.buffer not in address:
                address[footprint.buffer] = position
                position += footprint.buffer.size
    return schedule(tokens.stream(emitted.instructions, address), arch).cycles


def _fit_partition(
    planner: Planner, lowered: Lowered, lanes: LaneResult, pool: dict[Storage, Buffer]
) -> tuple[Emitted, list[tuple[Block, int, Buffer]], dict[Storage, Buffer]]:
    for share in BUDGETS:
        budget = int(lanes.arch.sram_bytes * share)
        try:
            residency = planner.fit(budget)
        except ArchError:
            if share == BUDGETS[0]:
                raise
            break
        planner.shape(residency, budget)
        for plan in planner.plans:
            place_sections(plan)
        holders = {residency.holder(s) for s in residency.pool}
        made = {s: pool.get(s) or Buffer(s.name, s.size, POOL) for s in sorted(holders, key=lambda s: s.name)}
        buffers = {s: made[residency.holder(s)] for s in residency.pool}
        emitted = Emitter(lowered, planner.plans, residency, lanes, buffers).run()
        placed = _place_sram(emitted, lanes.arch)
        if placed is not None:
            return emitted, placed, buffers
    raise ArchError(
        f"arch {lanes.arch.name}: no SRAM plan found for partition {lowered.index}; choose an arch with more SRAM"
    )


def verify(result: TileResult) -> None:
    """Bands cover every output row once, cuts every block once."""
    for emitted in result.partitions:
        for plan in emitted.plans:
            work = plan.work
            rows = [row for low, high in work.bands for row in range(low, high)]
            blocks = [b for cut in work.cuts for b in range(cut.first, cut.first + cut.count)]
            if rows != list(range(work.out_size[0])) or blocks != list(range(work.out_blocks)):
                raise VerifyError(
                    f"tile: node {plan.layer.name}: bands {work.bands} or cuts {work.cuts} do not cover the output once"
                )
