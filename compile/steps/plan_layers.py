"""Decisions for the layers of one partition: what stays in SRAM, row bands, weight cuts, how early parameters are loaded. Owned by the `tile` step.

Everything is resident at first. Where a layer would need more SRAM than there is, the storage whose spilling costs least traffic for the room it gives
goes to the pool and streams in bands, until all layers fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuforge.compile.ir.errors import ArchError, VerifyError
from npuforge.compile.steps.emit import LayerPlan, Residency, make_work, slot_sizes
from npuforge.compile.steps.layers import LaneResult, Lowered, Storage
from npuforge.compile.steps.order import LayerTime
from npuforge.hw_kernels.dsl.program import Cut, program_of

# A resident layer gets one band per so many cycles: the engines overlap across layers at band granularity.
BAND_CYCLES = 700
MAX_BANDS = 8
COMFORTABLE_BANDS = 16  # of a streaming layer, while something else could be spilled instead
PREFETCH_LAYERS = 6
PREFETCH_COVER = 4  # no earlier than work of so many times the transfer's cycles lies between: it delays other loads


def even_bands(height: int, count: int) -> list[tuple[int, int]]:
    """`height` rows in `count` bands, as equal as can be."""
    count = max(1, min(count, height))
    rows = -(-height // count)
    return [(low, min(low + rows, height)) for low in range(0, height, rows)]


def even_cuts(runs: Sequence[int], count: int) -> list[Cut]:
    """Runs of channel blocks, so many blocks each, in about `count` cuts; no cut goes across runs."""
    blocks = sum(runs)
    size = -(-blocks // max(1, min(count, blocks)))
    cuts: list[Cut] = []
    start = 0
    for run in runs:
        for first in range(0, run, size):
            cuts.append(Cut(len(cuts), start + first, min(size, run - first)))
        start += run
    return cuts


def _steps(largest: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, ... up to `largest`, and `largest`."""
    value = 1
    while value < largest:
        yield value
        if value > 1 and value * 3 // 2 < largest:
            yield value * 3 // 2
        value *= 2
    yield largest


class Planner:
    """Decisions for one partition."""

    def __init__(self, lowered: Lowered, result: LaneResult, outside: set[Storage]) -> None:
        self.lowered, self.result, self.arch = lowered, result, result.arch
        self.outside = outside  # storages that other partitions or the application read
        self.plans = [LayerPlan(y, program_of(y.node), make_work(y, result)) for y in lowered.layers]
        self.inputs = {result.places[t].storage for t in lowered.inputs}
        self.first: dict[Storage, int] = {}
        self.last: dict[Storage, int] = {}
        self.reads: dict[Storage, list[int]] = {}
        for index, layer in enumerate(lowered.layers):
            for tensor in (*layer.inputs, layer.output):
                storage = result.places[tensor].storage
                self.first.setdefault(storage, index)
                self.last[storage] = index
            for storage in {result.places[t].storage for t in layer.inputs}:
                self.reads.setdefault(storage, []).append(index)
        self.needs: dict[tuple[object, ...], int] = {}
        self.cycles = [plan.program.cost(plan.work, self.arch).cycles for plan in self.plans]
        self.weight = self._weights()

    def _weights(self) -> list[int]:
        """Cycles that count for a layer's bands: its own, or those of a neighbour in the data flow that could run beside it."""
        producers = {plan.layer.output: k for k, plan in enumerate(self.plans)}
        weight = list(self.cycles)
        for k, plan in enumerate(self.plans):
            for tensor in plan.layer.inputs:
                if tensor in producers:
                    other = producers[tensor]
                    weight[k] = max(weight[k], self.cycles[other])
                    weight[other] = max(weight[other], self.cycles[k])
        return weight

    def _bands(self, index: int) -> int:
        """Bands of a layer that does not stream."""
        if self.plans[index].program.repeats(self.plans[index].work):
            return 1
        return max(1, min(MAX_BANDS, self.weight[index] // BAND_CYCLES, self.plans[index].work.out_size[0]))

    def times(self) -> list[LayerTime]:
        """For choosing an order."""
        engines = [plan.program.whole(plan.work)[0].engine for plan in self.plans]
        return [LayerTime(e, c, c // self._bands(k)) for k, (e, c) in enumerate(zip(engines, self.cycles, strict=True))]

    # ---- residency -------------------------------------------------------------------------------------------------
    def start(self) -> Residency:
        """Everything resident that some layer reads from SRAM again; border tensors also in the pool."""
        residency = Residency()
        for storage in self.first:
            border = storage in self.outside
            if border:
                residency.pool.add(storage)
            if storage.tight:
                continue
            readers = len(self.reads.get(storage, []))
            if (border and storage in self.inputs and readers <= 1) or readers == 0:
                residency.pool.add(storage)
                continue
            residency.sram.add(storage)
        return residency

    def _set(self, plan: LayerPlan, bands: int, cuts: int, depth: int = 2) -> None:
        plan.depth = depth
        plan.work.bands = even_bands(plan.work.out_size[0], bands)
        runs = [count for _, count in self.result.places[plan.layer.output].runs]
        plan.work.cuts = even_cuts(runs, cuts)
        plan.whole = cuts == 1

    def _need(self, index: int, residency: Residency, bands: int, cuts: int, depth: int = 2) -> int:
        """SRAM bytes of a layer besides resident storages."""
        plan = self.plans[index]
        flags = tuple(self.result.places[t].storage in residency.sram for t in (*plan.layer.inputs, plan.layer.output))
        key = (index, flags, bands, cuts, depth)
        if key not in self.needs:
            self._set(plan, bands, cuts, depth)
            self.needs[key] = slot_sizes(plan, self.result, residency).total
        return self.needs[key]

    def _streams(self, index: int, residency: Residency) -> bool:
        layer = self.plans[index].layer
        storages = [self.result.places[t].storage for t in (*layer.inputs, layer.output)]
        return any(s not in residency.sram for s in storages)

    def _small_need(self, index: int, residency: Residency, least: bool) -> int:
        """What a layer needs if it is cut finely (`least`: as finely as possible)."""
        plan = self.plans[index]
        height, blocks = plan.work.out_size[0], plan.work.out_blocks
        bands = height if least else min(height, COMFORTABLE_BANDS)
        bands = bands if self._streams(index, residency) else 1
        cuts, depth = (blocks, 1) if least else (min(blocks, 8), 2)
        return min(self._need(index, residency, bands, 1, depth), self._need(index, residency, bands, cuts, depth))

    def _alive(self, index: int, residency: Residency) -> int:
        """Bytes of the resident storages that a layer must leave alone; one that is written in place costs nothing."""
        alive = (s for s in residency.sram if self.first[s] <= index <= self.last[s])
        return sum(s.size for s in alive if not (self.first[s] == index and self._in_place(s, residency)))

    def _in_place(self, storage: Storage, residency: Residency) -> bool:
        """Does it take the bytes of another: both whole in SRAM, or both only in the pool, and nobody outside reads either?"""
        other = self.result.in_place.get(storage)
        if other is None or {storage, other} & self.outside:
            return False
        return (storage in residency.sram) == (other in residency.sram) and (storage in residency.pool) == (
            other in residency.pool
        )

    def fit(self, budget: int) -> Residency:
        """Spills until every layer fits into `budget` bytes."""
        residency = self._spill(budget)
        residency.in_place = {s: self.result.in_place[s] for s in self.first if self._in_place(s, residency)}
        return residency

    def _spill(self, budget: int) -> Residency:
        residency = self.start()
        count = len(self.plans)
        while True:
            excess = [self._alive(k, residency) + self._small_need(k, residency, False) - budget for k in range(count)]
            tight = [k for k in range(count) if excess[k] > 0 and self._alive_here(k, residency)]
            if not tight:
                self._check_least(residency, budget)
                return residency
            worst = max(tight, key=lambda k: excess[k])
            candidates = self._alive_here(worst, residency)
            residency.sram.discard(min(candidates, key=lambda s: self._spill_cost(s, excess)))
            for storage in self.first:
                if storage not in residency.sram:
                    residency.pool.add(storage)

    def _alive_here(self, index: int, residency: Residency) -> list[Storage]:
        return [s for s in residency.sram if self.first[s] <= index <= self.last[s]]

    def _check_least(self, residency: Residency, budget: int) -> None:
        """ArchError naming the first layer that does not fit even if it is cut as finely as possible."""
        for index, plan in enumerate(self.plans):
            least = self._small_need(index, residency, True)
            if self._alive(index, residency) + least > budget:
                raise ArchError(
                    f"arch {self.arch.name}: node {plan.layer.name} needs at least {least} bytes of SRAM, sram_bytes is {self.arch.sram_bytes}; "
                    "choose an arch with more SRAM or a smaller input"
                )

    def _spill_cost(self, storage: Storage, excess: list[int]) -> tuple[float, int, str]:
        """DDR bytes per byte of relief."""
        relief = sum(
            min(storage.size, e)
            for k, e in enumerate(excess)
            if e > 0 and self.first[storage] <= k <= self.last[storage]
        )
        traffic = storage.size * ((0 if storage in self.outside else 1) + len(self.reads.get(storage, [])))
        return traffic / max(1, relief), -storage.size, storage.name

    # ---- bands, cuts, prefetch -------------------------------------------------------------------------------------
    def shape(self, residency: Residency, budget: int) -> None:
        """Bands and cuts of every layer in the room that is left, then how early its parameters are loaded."""
        free = []
        for index, plan in enumerate(self.plans):
            room = budget - self._alive(index, residency)
            self._set(plan, *self._choose(index, residency, room))
            plan.cut_outer = self._cut_outer(plan, residency)
            plan.early = index
            free.append(room - slot_sizes(plan, self.result, residency).total)
        for index, plan in enumerate(self.plans):
            size = slot_sizes(plan, self.result, residency).parameters
            transfer = self.arch.ddr_latency_cycles + size / self.arch.ddr_bytes_per_cycle
            hidden = 0
            while (
                plan.early > max(0, index - PREFETCH_LAYERS)
                and free[plan.early - 1] >= size
                and hidden < PREFETCH_COVER * transfer
            ):
                plan.early -= 1
                free[plan.early] -= size
                hidden += self.cycles[plan.early]

    def _choose(self, index: int, residency: Residency, room: int) -> tuple[int, int, int]:
        """(bands, cuts, buffers of a stream): as few as fit into `room`."""
        plan = self.plans[index]
        height, blocks = plan.work.out_size[0], plan.work.out_blocks
        wanted = self._bands(index)
        streams = self._streams(index, residency)
        if streams and not plan.program.repeats(plan.work):
            wanted = max(wanted, min(2, height))
        for depth in (2, 1):
            for cuts in _steps(blocks):
                for bands in _steps(height) if streams else (wanted,):
                    if bands >= wanted and self._need(index, residency, bands, cuts, depth) <= room:
                        return bands, cuts, depth
        raise VerifyError(
            f"tile: node {plan.layer.name}: {room} bytes of SRAM are left, too few even for the smallest bands"
        )

    def _cut_outer(self, plan: LayerPlan, residency: Residency) -> bool:
        """Whether to go through all bands for each cut: weights once, streaming inputs once per cut; or the other way round."""
        work = plan.work
        if plan.whole:
            return False
        weights = plan.program.cut_bytes(work, work.out_blocks)
        streaming = 0
        for number, tensor in enumerate(plan.layer.inputs):
            storage = self.result.places[tensor].storage
            if (
                storage not in residency.sram
                and plan.program.operand_blocks(work, number, work.cuts[0])[1] != work.cuts[0].count
            ):
                streaming += storage.size
        return streaming * (len(work.cuts) - 1) <= weights * (len(work.bands) - 1)
