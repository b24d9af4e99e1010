"""Orders of the layers of a partition that may let the array and the vector engine work side by side. Owned by the `tile` step, which tries them.

Any order is legal that keeps the layers apart which touch the same channel blocks of a storage, one of them writing. The candidates come from
list scheduling: the layer that can start first goes next, among equals the one with the longest chain of work behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuforge.compile.steps.layers import LaneResult, Layer, Storage
from npuforge.hw_kernels.isa.instructions import Engine


@dataclass(frozen=True)
class LayerTime:
    """Engine and cycles of a layer, and the cycles of its first band."""

    engine: Engine
    cycles: int
    first_band: int


def precedence(layers: Sequence[Layer], result: LaneResult) -> list[list[int]]:
    """For every layer the earlier ones that must stay before it."""
    touched: list[list[tuple[Storage, int, int, bool]]] = []
    for layer in layers:
        own: list[tuple[Storage, int, int, bool]] = []
        for tensor, writes in [*((t, False) for t in layer.inputs), (layer.output, True)]:
            place = result.places[tensor]
            own += [(place.storage, first, first + count, writes) for first, count in place.runs]
        touched.append(own)
        overwritten = result.in_place.get(result.places[layer.output].storage)
        if overwritten is not None:
            own.append((overwritten, 0, overwritten.blocks, True))
    before: list[list[int]] = []
    for j, mine in enumerate(touched):
        found = []
        for i in range(j):
            if any(
                a is b and (write or wrote) and low < end and start < high
                for a, low, high, write in mine
                for b, start, end, wrote in touched[i]
            ):
                found.append(i)
        before.append(found)
    return before


def candidates(layers: Sequence[Layer], result: LaneResult, times: Sequence[LayerTime]) -> list[list[int]]:
    """The order as it is, and list schedules that differ from it."""
    before = precedence(layers, result)
    chain = _chains(before, times)
    found = [list(range(len(layers)))]
    for slack in (0.0, 0.5):
        order = _list_schedule(before, times, chain, slack)
        if order not in found:
            found.append(order)
    return found


def _chains(before: Sequence[Sequence[int]], times: Sequence[LayerTime]) -> list[int]:
    """Cycles from the start of each layer to the end of all that follows from it. A layer on another engine may start after the first band, but
    ends no earlier than one band of its own after the end of what it reads."""
    chain = [t.cycles for t in times]
    for j in range(len(before) - 1, -1, -1):
        after = times[j]
        for i in before[j]:
            own = times[i]
            if own.engine == after.engine:
                length = own.cycles + chain[j]
            else:
                length = max(own.first_band + chain[j], own.cycles + chain[j] - after.cycles + after.first_band)
            chain[i] = max(chain[i], length)
    return chain


def _list_schedule(
    before: Sequence[Sequence[int]], times: Sequence[LayerTime], chain: Sequence[int], slack: float
) -> list[int]:
    """`slack`: a layer that starts later by this share of its own time still competes by its chain."""
    count = len(times)
    waiting = [set(b) for b in before]
    free = dict.fromkeys(Engine, 0)
    start, finish = [0] * count, [0] * count
    open_, order = set(range(count)), []
    while open_:
        best: tuple[tuple[float, int, int], int, int] | None = None
        ready = [i for i in open_ if not waiting[i]]
        starts = {i: _start(i, before, times, start, finish, free) for i in ready}
        for i in ready:
            key = (starts[i] - slack * times[i].cycles, -chain[i], i)
            if best is None or key < best[0]:
                best = (key, i, starts[i])
        assert best is not None
        _, chosen, begin = best
        own = times[chosen]
        last = max((finish[p] + own.first_band for p in before[chosen]), default=0)
        start[chosen], finish[chosen] = begin, max(begin + own.cycles, last)
        free[own.engine] = finish[chosen]
        order.append(chosen)
        open_.discard(chosen)
        for later in open_:
            waiting[later].discard(chosen)
    return order


def _start(
    layer: int,
    before: Sequence[Sequence[int]],
    times: Sequence[LayerTime],
    start: Sequence[int],
    finish: Sequence[int],
    free: dict[Engine, int],
) -> int:
    """Earliest start: its engine is free and the first band of what it reads is there."""
    moment = free[times[layer].engine]
    for p in before[layer]:
        same = times[p].engine == times[layer].engine
        moment = max(moment, finish[p] if same else start[p] + times[p].first_band)
    return moment
