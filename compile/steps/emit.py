"""Writes the symbolic instructions of one partition by running every layer's program over its bands and cuts. Owned by the `tile` step.

What is not resident in SRAM streams through pairs of band buffers: the load of a step is written before the computation of the step before it, so
that transfers and computation overlap. Parameters of later layers are loaded as early as the plan says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuforge.compile.steps.layers import LaneResult, Layer, Lowered, Place, Storage, align
from npuforge.hw_kernels.arch import BLOCK_BYTES
from npuforge.hw_kernels.dsl.instr import Instr
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Packed, Work
from npuforge.hw_kernels.dsl.tile import BIN, SRAM, Buffer, Image, LaneMap, Param, Ref, Tile, whole_map


@dataclass(eq=False)
class LayerPlan:
    """How one layer is executed."""

    layer: Layer
    program: LayerProgram
    work: Work
    whole: bool = True  # all weights are in SRAM at once, whatever the cuts
    cut_outer: bool = True  # all bands of a cut, then the next cut
    depth: int = 2  # buffers of what streams; 1 where SRAM is too small for two: loads wait for the computation before
    early: int = 0  # layer (in the partition) at whose start the parameters are loaded
    packed: Packed | None = None
    sections: list[tuple[str, np.ndarray]] = field(default_factory=list)  # in file order
    offsets: dict[str, int] = field(default_factory=dict)  # of the sections, from the first one
    group: Buffer | None = None  # the sections in the `.bin`, one after the other


@dataclass
class Residency:
    """Where storages live: whole in SRAM, in the pool, or both."""

    sram: set[Storage] = field(default_factory=set)
    pool: set[Storage] = field(default_factory=set)
    in_place: dict[Storage, Storage] = field(default_factory=dict)  # storages that take the bytes of another

    def holder(self, storage: Storage) -> Storage:
        """The storage whose bytes `storage` uses: itself, mostly."""
        while storage in self.in_place:
            storage = self.in_place[storage]
        return storage


@dataclass
class Trace:
    """Where the complete output of a layer can be read right after an instruction."""

    in_sram: bool
    after: int


@dataclass
class Piece:
    """What one instruction with a residual stage computes: rows and channel blocks of the convolution's own output, where the sum lies."""

    after: int
    first_row: int
    first_block: int
    instr: Instr


@dataclass
class Emitted:
    """Symbolic program of one partition."""

    lowered: Lowered
    plans: list[LayerPlan]
    residency: Residency
    instructions: list[Instr]
    sram: dict[Storage, Buffer]
    traces: dict[Layer, Trace]
    pieces: dict[Layer, list[Piece]]  # of layers with a residual stage


def make_work(layer: Layer, result: LaneResult) -> Work:
    """The program's view of a layer."""
    out = result.places[layer.output]
    maps, sizes = [], []
    for tensor in layer.inputs:
        place = result.places[tensor]
        maps.append(place.map)
        sizes.append((place.storage.height, place.storage.width))
    if layer.fold is not None:
        lanes = layer.fold.window.kernel_h * layer.fold.window.kernel_w * result.places[layer.inputs[0]].storage.tight
        maps[0] = LaneMap(np.arange(lanes), layer.fold.blocks)
        sizes[0] = (layer.fold.height, layer.fold.width)
    tight = result.places[layer.inputs[0]].storage.tight if layer.fold is None else 0
    return Work(
        layer.node,
        layer.params,
        maps,
        out.map,
        sizes,
        layer.out_size,
        image_channels=tight,
        dtype=out.storage.dtype,
        residual=layer.residual,
    )


def place_sections(plan: LayerPlan) -> None:
    """Packs the parameters and fixes the order of the layer's sections; a layer without parameters has none."""
    key = ("packed", tuple(plan.work.bands), tuple(plan.work.cuts))
    if plan.work.cache.get("packed_for") != key:
        plan.work.cache["packed_for"], plan.work.cache["packed"] = key, plan.program.pack(plan.work)
    plan.packed = packed = plan.work.cache["packed"]
    plan.sections = list(packed.common.items())
    if packed.cuts:
        padded = [np.frombuffer(_padded(cut.tobytes()), np.uint8) for cut in packed.cuts[:-1]]
        last = np.frombuffer(packed.cuts[-1].tobytes(), np.uint8)
        weight = np.concatenate([*padded, last]).view(np.dtype(packed.cuts[0].dtype))
        plan.sections.append(("weight", weight))
    position = 0
    for name, array in plan.sections:
        plan.offsets[name] = position
        position += align(array.nbytes)
    plan.group = Buffer(plan.layer.id, position, BIN) if plan.sections else None


def _padded(data: bytes) -> bytes:
    return data + bytes(align(len(data)) - len(data))


class _Slots:
    """`depth` buffers used in turn for what streams; `keys` says what each holds."""

    def __init__(self, name: str, size: int, depth: int) -> None:
        self.buffers = [Buffer(f"{name}/{i}", size, SRAM) for i in range(depth)]
        self.keys: list[object] = [None] * depth
        self.current = depth - 1

    def take(self, key: object) -> tuple[Buffer, bool]:
        """The buffer for `key`, and whether it has to be filled."""
        if self.keys[self.current] == key:
            return self.buffers[self.current], False
        self.current = (self.current + 1) % len(self.buffers)
        self.keys[self.current] = key
        return self.buffers[self.current], True


class Emitter:
    """One partition."""

    def __init__(
        self,
        lowered: Lowered,
        plans: list[LayerPlan],
        residency: Residency,
        result: LaneResult,
        pool: dict[Storage, Buffer],
    ) -> None:
        self.lowered, self.plans, self.residency, self.result, self.pool = lowered, plans, residency, result, pool
        self.npu = Npu()
        holders = {s: Buffer(s.name, s.size, SRAM) for s in residency.sram if residency.holder(s) is s}
        self.sram = {s: holders[residency.holder(s)] for s in residency.sram}
        self.loaded: set[Storage] = set()
        self.params: dict[LayerPlan, dict[str, Param]] = {}
        self.traces: dict[Layer, Trace] = {}
        self.pieces: dict[Layer, list[Piece]] = {}

    def run(self) -> Emitted:
        """All layers in order."""
        for index, plan in enumerate(self.plans):
            self._layer(index, plan)
        return Emitted(
            self.lowered, self.plans, self.residency, self.npu.instructions, self.sram, self.traces, self.pieces
        )

    # ---- parameters ------------------------------------------------------------------------------------------------
    def _load_parameters(self, index: int) -> None:
        """All sections of a layer, or all but the weights if those come cut by cut."""
        plan = self.plans[index]
        if plan.group is None or plan in self.params:
            return
        before, self.npu.layer = self.npu.layer, index
        names = [name for name, _ in plan.sections if plan.whole or name != "weight"]
        self.params[plan] = {}
        if names:
            arrays = dict(plan.sections)
            size = align(plan.offsets[names[-1]] + arrays[names[-1]].nbytes, BLOCK_BYTES)
            buffer = Buffer(f"{plan.layer.id}/parameters", align(size), SRAM)
            self.npu.load_bytes(Ref(plan.group), buffer, size)
            self.params[plan] = {name: Param(buffer, plan.offsets[name], arrays[name].nbytes) for name in names}
        self.npu.layer = before

    def _cut_weight(self, plan: LayerPlan, cut: Cut, slots: _Slots) -> Param:
        """The weights of one cut: part of what is loaded, or loaded now."""
        assert plan.packed is not None and plan.group is not None
        size = plan.packed.cuts[cut.index].nbytes
        start = sum(align(c.nbytes) for c in plan.packed.cuts[: cut.index])
        if plan.whole:
            return self.params[plan]["weight"].part(start, size, "weights")
        buffer, fill = slots.take(cut.index)
        if fill:
            self.npu.load_bytes(Ref(plan.group, plan.offsets["weight"] + start), buffer, align(size, BLOCK_BYTES))
        return Param(buffer, 0, size)

    # ---- tiles -----------------------------------------------------------------------------------------------------
    def _map_in(self, place: Place, buffer: Buffer) -> Tile:
        """The whole feature map of a place (one run of blocks) in the buffer of its storage."""
        storage = place.storage
        assert len(place.runs) == 1, storage.name
        offset = place.first_block * storage.dtype.block_bytes
        return whole_map(buffer, storage.height, storage.width, place.map.blocks, offset, storage.blocks, storage.dtype)

    def _cut_of_map(self, place: Place, buffer: Buffer, cut: Cut) -> Tile:
        """The blocks of one cut of a place, all rows."""
        storage = place.storage
        offset = place.storage_block(cut.first) * storage.dtype.block_bytes
        return whole_map(buffer, storage.height, storage.width, cut.count, offset, storage.blocks, storage.dtype)

    def _ensure_loaded(self, storage: Storage) -> None:
        """A partition input that is resident is loaded once, in a few bands, before its first consumer."""
        if storage not in self.residency.sram or storage in self.loaded or not self._comes_from_outside(storage):
            return
        self.loaded.add(storage)
        source, target = (
            whole_map(b, storage.height, storage.width, storage.blocks, dtype=storage.dtype)
            for b in (self.pool[storage], self.sram[storage])
        )
        rows = max(1, -(-storage.height // 4))
        for low in range(0, storage.height, rows):
            high = min(low + rows, storage.height)
            self.npu.load(source.band(low, high), target.band(low, high))

    def _comes_from_outside(self, storage: Storage) -> bool:
        return any(self.result.places[t].storage is storage for t in self.lowered.inputs)

    def _operand(
        self, plan: LayerPlan, number: int, cut: Cut, band: tuple[int, int], slots: dict[int, _Slots]
    ) -> Tile | Image:
        """One operand for a step: a view of the resident map, the image itself, or a band that is loaded now."""
        layer, work = plan.layer, plan.work
        place = self.result.places[layer.inputs[number]]
        storage = place.storage
        low, high = plan.program.input_rows(work, number, *band)
        first, count = plan.program.operand_blocks(work, number, cut)
        if storage.tight and layer.fold is None:
            return self._image(storage)
        if storage in self.residency.sram:
            return self._map_in(place, self.sram[storage]).channel_blocks(first, count)
        height, width = work.in_sizes[number]
        buffer, fill = slots[number].take((low, high, first, count))
        pixel = storage.dtype.block_bytes * count
        tile = Tile(buffer, 0, high - low, width, count, width * pixel, pixel, low, height, storage.dtype)
        if fill and layer.fold is not None and number == 0:
            self.npu.load_fold(self._image(storage), tile, layer.fold.window, layer.fold.pad_bytes)
        elif fill:
            self.npu.load(self._map_in(place, self.pool[storage]).channel_blocks(first, count).band(low, high), tile)
        return tile

    def _image(self, storage: Storage) -> Image:
        size = storage.height, storage.width, storage.tight, storage.row_stride
        return Image(self.pool[storage], 0, *size, storage.dtype)

    # ---- layers ----------------------------------------------------------------------------------------------------
    def _layer(self, index: int, plan: LayerPlan) -> None:
        npu, work, layer = self.npu, plan.work, plan.layer
        npu.layer = index
        self._load_parameters(index)
        for tensor in layer.inputs:
            self._ensure_loaded(self.result.places[tensor].storage)
        place = self.result.places[layer.output]
        resident = place.storage in self.residency.sram
        steps = (
            [(cut, band) for cut in work.cuts for band in work.bands]
            if plan.cut_outer
            else [(cut, band) for band in work.bands for cut in work.cuts]
        )
        sizes = slot_sizes(plan, self.result, self.residency)
        slots = {number: _Slots(f"{layer.id}/in{number}", size, plan.depth) for number, size in sizes.inputs.items()}
        weights = _Slots(f"{layer.id}/weight", sizes.weight, plan.depth)
        outputs = _Slots(f"{layer.id}/out", sizes.output, plan.depth)

        def fetch(step: tuple[Cut, tuple[int, int]]) -> tuple[list[Tile | Image], dict[str, Param]]:
            cut, band = step
            p = dict(self.params.get(plan, {}))
            if plan.packed is not None and plan.packed.cuts:
                p["weight"] = self._cut_weight(plan, cut, weights)
            return [self._operand(plan, n, cut, band, slots) for n in range(len(layer.inputs))], p

        following = fetch(steps[0])
        for later in range(index + 1, len(self.plans)):
            if self.plans[later].early == index:
                self._load_parameters(later)
        for number, (cut, (low, high)) in enumerate(steps):
            x, p = following
            if number + 1 < len(steps) and plan.depth > 1:
                following = fetch(steps[number + 1])
            if resident:
                y = self._cut_of_map(place, self.sram[place.storage], cut).band(low, high)
            else:
                buffer, _ = outputs.take(number)
                storage = place.storage
                width, pixel = storage.width, storage.dtype.block_bytes * cut.count
                size = high - low, width, cut.count, width * pixel, pixel
                y = Tile(buffer, 0, *size, low, storage.height, storage.dtype)
            before = len(npu.instructions)
            plan.program(npu, work, x, y, p, cut)
            if layer.residual is not None:
                self._note_pieces(layer, y, cut, before)
            if place.storage in self.residency.pool:
                npu.store(y, self._cut_of_map(place, self.pool[place.storage], cut).band(low, high))
            if number + 1 < len(steps) and plan.depth == 1:
                following = fetch(steps[number + 1])
        self.traces[layer] = Trace(resident, len(npu.instructions) - 1)

    def _note_pieces(self, layer: Layer, y: Tile, cut: Cut, first: int) -> None:
        """The instructions from `first` on wrote the output tile `y`, each some blocks of it."""
        for index in range(first, len(self.npu.instructions)):
            instr = self.npu.instructions[index]
            where = instr.fields["out_addr"]
            assert isinstance(where, Ref) and where.buffer is y.buffer
            block = cut.first + (where.offset - y.offset) // BLOCK_BYTES
            self.pieces.setdefault(layer, []).append(Piece(index, y.first_row, block, instr))


@dataclass
class SlotSizes:
    """Bytes of one slot of everything that streams, and of the parameters that stay."""

    inputs: dict[int, int]
    weight: int
    output: int
    parameters: int
    depth: int

    @property
    def total(self) -> int:
        """All of it, streams `depth` times."""
        return self.depth * (sum(self.inputs.values()) + self.weight + self.output) + self.parameters


def slot_sizes(plan: LayerPlan, result: LaneResult, residency: Residency) -> SlotSizes:
    """What the plan's bands and cuts need of SRAM besides resident maps."""
    work, layer, program = plan.work, plan.layer, plan.program
    inputs: dict[int, int] = {}
    for number, tensor in enumerate(layer.inputs):
        storage = result.places[tensor].storage
        if storage in residency.sram or (storage.tight and layer.fold is None):
            continue
        rows = 0
        for band in work.bands:
            low, high = program.input_rows(work, number, *band)
            rows = max(rows, high - low)
        blocks = max(program.operand_blocks(work, number, cut)[1] for cut in work.cuts)
        inputs[number] = align(rows * work.in_sizes[number][1] * blocks * work.dtype.block_bytes)
    place = result.places[layer.output]
    output = 0
    if place.storage not in residency.sram:
        rows = max(high - low for low, high in work.bands)
        output = align(rows * place.storage.width * max(cut.count for cut in work.cuts) * work.dtype.block_bytes)
    common = common_bytes(plan) + program.temporary_bytes(work)
    weights = [align(program.cut_bytes(work, cut.count)) for cut in work.cuts]
    if plan.whole:
        return SlotSizes(inputs, 0, output, common + sum(weights), plan.depth)
    return SlotSizes(inputs, max(weights), output, common, plan.depth)


RESIZE_SLACK = 512  # the records of every band are aligned


def common_bytes(plan: LayerPlan) -> int:
    """Bytes of the parameters that are not weights. They do not depend on cuts, and on bands only by alignment (resize)."""
    work = plan.work
    if "common_bytes" not in work.cache:
        saved = work.bands, work.cuts
        work.bands, work.cuts = [(0, work.out_size[0])], []
        arrays = plan.program.pack(work).common
        work.bands, work.cuts = saved
        work.cache["common_bytes"] = sum(align(a.nbytes) for a in arrays.values()) + (
            RESIZE_SLACK if plan.layer.node.op == "Resize" else 0
        )
    return int(work.cache["common_bytes"])
