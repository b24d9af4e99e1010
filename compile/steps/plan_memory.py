"""Step `plan_memory`: offsets of buffers with live ranges, in SRAM and in the DDR pool. `allocate` is the one allocator for both.

Buffers are placed one after the other at the lowest offset where they fit between those they share time with. The order decides the result: several
orders are tried. Where none reaches the capacity (or the lower bound), `fit_search.py` looks for a plan within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from npuforge.compile.memory_checker import check_plan
from npuforge.compile.steps.fit_search import FitSearch
from npuforge.compile.steps.layers import Storage

if TYPE_CHECKING:
    from npuforge.compile.steps.tile import TileResult


@dataclass(frozen=True)
class Block:
    """`size` bytes that are needed at the times lower <= t < upper."""

    name: str
    lower: int
    upper: int
    size: int


def lower_bound(blocks: Sequence[Block]) -> int:
    """The largest sum of sizes alive at one time: no plan can need less."""
    changes: dict[int, int] = {}
    for block in blocks:
        if block.upper > block.lower:
            changes[block.lower] = changes.get(block.lower, 0) + block.size
            changes[block.upper] = changes.get(block.upper, 0) - block.size
    alive = peak = 0
    for moment in sorted(changes):
        alive += changes[moment]
        peak = max(peak, alive)
    return peak


class _Placer:
    """Places blocks in a given order."""

    def __init__(self, blocks: Sequence[Block], alignment: int) -> None:
        self.count = len(blocks)
        self.size = [-(-b.size // alignment) * alignment for b in blocks]
        lower = np.array([b.lower for b in blocks])
        upper = np.array([b.upper for b in blocks])
        overlap = (lower[:, None] < upper[None, :]) & (lower[None, :] < upper[:, None])
        self.neighbours = [np.flatnonzero(row).tolist() for row in overlap]

    def place(self, order: Sequence[int], limit: int | None = None) -> tuple[int, list[int]]:
        """Height and offsets; stops early (height > limit) where a block sticks out."""
        offsets = [-1] * self.count
        height = 0
        for index in order:
            taken = sorted((offsets[n], offsets[n] + self.size[n]) for n in self.neighbours[index] if offsets[n] >= 0)
            position, size = 0, self.size[index]
            for start, end in taken:
                if start - position >= size:
                    break
                position = max(position, end)
            offsets[index] = position
            height = max(height, position + size)
            if limit is not None and height > limit:
                return height, offsets
        return height, offsets


def allocate(
    blocks: Sequence[Block], alignment: int = 64, capacity: int | None = None, nodes: int = 0
) -> tuple[int, list[int]]:
    """(peak, offsets). Good enough is a peak within `capacity`, by default the lower bound; if no order reaches it, `nodes` placements are
    searched for it, and the best order is taken where that finds nothing."""
    if not blocks:
        return 0, []
    placer = _Placer(blocks, alignment)
    aligned = [Block(b.name, b.lower, b.upper, s) for b, s in zip(blocks, placer.size, strict=True)]
    target = max(lower_bound(aligned), capacity or 0)
    indices = range(len(blocks))

    def length(i: int) -> int:
        return blocks[i].upper - blocks[i].lower

    orders = [
        sorted(indices, key=lambda i: (-placer.size[i], -length(i), i)),
        sorted(indices, key=lambda i: (-placer.size[i] * length(i), i)),
        sorted(indices, key=lambda i: (-length(i), -placer.size[i], i)),
        sorted(indices, key=lambda i: (blocks[i].lower, -placer.size[i], i)),
        sorted(indices, key=lambda i: (-len(placer.neighbours[i]) * placer.size[i], i)),
    ]
    best: tuple[int, list[int]] | None = None
    for order in orders:
        height, offsets = placer.place(order)
        if best is None or height < best[0]:
            best = (height, offsets)
        if best[0] <= target:
            return best
    assert best is not None
    if nodes > 0:
        found = FitSearch([b.lower for b in blocks], [b.upper for b in blocks], placer.size, target).run(nodes)
        if found is not None:
            return max(o + s for o, s in zip(found, placer.size, strict=True)), found
    return best


@dataclass
class MemoryPlan:
    """The DDR pool of one compiled network: live ranges (time: one unit per layer, one per CPU partition) and offsets."""

    blocks: list[Block]
    offsets: list[int]
    size: int
    address: dict[Storage, int] = field(default_factory=dict)

    @property
    def bound(self) -> int:
        """The live-range lower bound."""
        return lower_bound(self.blocks)

    def to_json(self) -> dict[str, Any]:
        """The `pool` section."""
        rows = [
            {"name": b.name, "lower": b.lower, "upper": b.upper, "size": b.size, "offset": o}
            for b, o in zip(self.blocks, self.offsets, strict=True)
        ]
        return {"size": self.size, "lower_bound": self.bound, "buffers": rows}


def run(tiled: TileResult) -> MemoryPlan:
    """The step: offsets of everything that lives in the pool."""
    graph, places = tiled.lanes.qgraph.graph, tiled.lanes.places
    lowered = {e.lowered.index: e for e in tiled.partitions}
    spans: dict[Storage, list[int]] = {}
    start: dict[str, int] = dict.fromkeys(graph.inputs, 0)  # tensors that CPU partitions or the application write
    now = 0

    def use(storage: Storage, moment: int) -> None:
        span = spans.setdefault(storage, [moment, moment])
        span[0], span[1] = min(span[0], moment), max(span[1], moment)

    for index, part in enumerate(graph.partitions):
        if index not in lowered:
            start |= {t: now for t in part.outputs if t not in start}
            now += 1
            continue
        emitted = lowered[index]
        for tensor in part.inputs:
            use(places[tensor].storage, start.get(tensor, now))
        for layer in emitted.lowered.layers:
            for tensor in (*layer.inputs, layer.output):
                storage = places[tensor].storage
                if storage in emitted.residency.pool:
                    use(emitted.residency.holder(storage), now)
            now += 1
    border = {t for e in tiled.partitions for t in e.lowered.outputs}
    for tensor in border:  # read after the partition has ended
        use(places[tensor].storage, now)
    storages = list(spans)
    blocks = [Block(s.name, spans[s][0], spans[s][1] + 1, s.size) for s in storages]
    size, offsets = allocate(blocks, nodes=3000)
    address = dict(zip(storages, offsets, strict=True))
    for emitted in tiled.partitions:
        address |= {s: address[emitted.residency.holder(s)] for s in emitted.residency.pool}
    return MemoryPlan(blocks, offsets, size, address)


def verify(plan: MemoryPlan) -> None:
    """No two blocks that live at one time overlap. How near the plan is to the lower bound stands in it; tests hold networks to 1.05."""
    check_plan(plan.to_json()["buffers"], plan.size, "pool")
