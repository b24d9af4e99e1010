"""Storages of the tensors of one partition: views of concats, channels regrouped for the slices that read them, results in place. Owned by `lanes`.

`PartitionState` is what the lane step knows; `assign` gives every tensor its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import MoveParams, QGraph
from npuforge.compile.steps.fold_image import ImageView
from npuforge.compile.steps.layers import Layer, Place, Storage
from npuforge.hw_kernels.arch import LANES, Arch
from npuforge.hw_kernels.dsl.tile import Dtype, LaneMap
from npuforge.hw_kernels.windows import Window as Attributes
from npuforge.quant.regions import PAIRS

Segments = tuple[tuple[int, int], ...]  # (first block in the storage, blocks)


@dataclass
class Alias:
    """A tensor that is some channels of another: `lanes` of the root's map, one per channel."""

    root: str
    lanes: np.ndarray


@dataclass
class Joined:
    """A concat: its parts lie side by side in one storage. `position`: number of layers before it."""

    output: str
    parts: list[str]
    position: int


class PartitionState:
    """Layers and tensors of one partition while the lane step works on it."""

    def __init__(self, qgraph: QGraph, arch: Arch, index: int, places: dict[str, Place]) -> None:
        self.qgraph, self.arch = qgraph, arch
        self.graph = qgraph.graph
        self.part = self.graph.partitions[index]
        self.index = index
        self.places = places
        self.layers: list[Layer] = []
        self.maps: dict[str, LaneMap] = {}  # roots only
        self.sizes: dict[str, tuple[int, int]] = {}
        self.aliases: dict[str, Alias] = {}
        self.images: dict[str, ImageView] = {}
        self.joined: list[Joined] = []
        self.compact: dict[str, str] = {}  # tensor -> the tensor that holds it with a map of its own
        self.moved_names: dict[str, str] = {}
        self.made_shapes: dict[str, tuple[int, ...]] = {}  # of tensors that hold no tensor of the graph
        self.in_place: dict[Storage, Storage] = {}
        self.shared: set[str] = set()  # inputs whose blocks hold other channels, perhaps
        self.node_of = {n.name: n for n in self.graph.nodes}
        self.dtype = Dtype.BF16 if qgraph.mode == "bf16" else Dtype.INT8

    def shape(self, tensor: str) -> tuple[int, ...]:
        """ONNX shape, also of tensors made here."""
        if tensor in self.made_shapes:
            return self.made_shapes[tensor]
        return self.graph.tensors[self.moved_names.get(tensor, tensor)].shape

    def new_root(self, tensor: str, lanes: LaneMap, size: tuple[int, int]) -> None:
        """A tensor with lanes of its own."""
        self.maps[tensor], self.sizes[tensor] = lanes, size

    def view(self, tensor: str) -> tuple[str, int, LaneMap]:
        """Root, first block and map of a tensor."""
        alias = self.aliases.get(tensor)
        if alias is None:
            return tensor, 0, self.maps[tensor]
        first = int(alias.lanes.min()) // LANES
        blocks = int(alias.lanes.max()) // LANES + 1 - first
        return alias.root, first, LaneMap(alias.lanes - first * LANES, blocks)

    def border_roots(self) -> set[str]:
        """Roots of the tensors that cross the partition's border."""
        border = (*self.part.inputs, *self.part.outputs)
        return {self.view(t)[0] for t in border if t in self.maps or t in self.aliases}


def assign(state: PartitionState) -> None:
    """Concats from the outermost inwards, then a storage for every root left; fills `state.places`."""
    segments = {part: spans for join in state.joined for part, spans in _regroup(state, join).items()}
    placed: dict[str, tuple[Storage, int]] = {}
    fixed = {t for t in state.part.inputs if t in state.maps}
    for tensor in fixed:
        if tensor in state.places:
            placed[tensor] = (state.places[tensor].storage, state.places[tensor].first_block)
    produced = {y.output for y in state.layers} | {j.output for j in state.joined}
    for join in reversed(state.joined):
        if join.output not in placed:
            placed[join.output] = _own_storage(state, join.output)
        storage, block = placed[join.output]
        copies: list[Layer] = []
        for number, part in enumerate(join.parts):
            if part in segments:
                placed[part] = (storage, segments[part][0][0])
                continue
            if part in placed or part in fixed or part not in produced:
                copy = _copy(state, join, number)
                copies.append(copy)
                placed[copy.output] = (storage, block)
            else:
                placed[part] = (storage, block)
            block += state.maps[part].blocks
        state.layers[join.position : join.position] = copies
    shared = set(placed)  # with a concat or another partition
    for tensor in sorted(fixed - set(placed)):
        placed[tensor] = _own_storage(state, tensor)
    last_read = _last_reads(state)
    outside = state.border_roots()
    for index, layer in enumerate(state.layers):
        if layer.output not in placed:
            usable = (t for t in layer.inputs if t not in shared | outside and last_read.get(t) == index)
            operand = next((t for t in usable if _may_overwrite(state, layer, t)), None)
            placed[layer.output] = _own_storage(state, layer.output)
            if operand is not None and layer.output not in outside:
                state.in_place[placed[layer.output][0]] = placed[operand][0]
    for tensor, lanes in state.maps.items():
        state.places[tensor] = Place(placed[tensor][0], placed[tensor][1], lanes, segments.get(tensor, ()))
    for tensor in state.aliases:
        root, first, lanes = state.view(tensor)
        base = state.places[root]
        state.places[tensor] = Place(base.storage, base.first_block + first, lanes)


def _own_storage(state: PartitionState, tensor: str) -> tuple[Storage, int]:
    height, width = state.sizes[tensor]
    return Storage(tensor, height, width, state.maps[tensor].blocks, dtype=state.dtype), 0


def _copy(state: PartitionState, join: Joined, number: int) -> Layer:
    """A layer that copies a part which cannot be a view, and its tensor."""
    part, name = join.parts[number], f"{join.output}#part{number}"
    state.moved_names[name] = state.moved_names.get(part, part)
    producer = state.graph.producer(join.output)
    label = f"{producer.name if producer else join.output}#copy{number}"
    node = Node(label, "Concat", [part], [name], {"axis": 1}, sources=producer.sources if producer else [])
    state.new_root(name, state.maps[part], state.sizes[part])
    return Layer(node, MoveParams(), [part], name, state.sizes[part])


def _last_reads(state: PartitionState) -> dict[str, int]:
    """Last layer that reads a root, directly or through what is an alias of it or a concat of it."""
    holders = {j.output: set(j.parts) for j in state.joined}
    result: dict[str, int] = {}
    for index, layer in enumerate(state.layers):
        pending = [state.view(t)[0] for t in layer.inputs if t not in state.images]
        while pending:
            root = pending.pop()
            result[root] = index
            pending += holders.get(root, ())
    return result


def _may_overwrite(state: PartitionState, layer: Layer, operand: str) -> bool:
    """May the layer's output take the place of an operand: pixel by pixel, lane by lane?"""
    if layer.residual is not None:  # the skip tensor, unless the convolution reads it as well
        source, skip = layer.inputs
        pixelwise = operand == skip and (source in state.images or state.view(source)[0] != skip)
    else:
        pixelwise = layer.node.op in (*PAIRS, "Affine")
    return (
        pixelwise
        and operand in state.maps
        and state.sizes[operand] == state.sizes[layer.output]
        and state.maps[operand].same(state.maps[layer.output])
    )


# ---- regrouping ------------------------------------------------------------------------------------------------------
def _regroup(state: PartitionState, join: Joined) -> dict[str, Segments]:
    """Orders the channels of a concat by the slices that read them (shuffle units), so that each slice is a run of whole blocks.

    Only where every part comes from a convolution made for this concat alone, since those can write their channels anywhere. Returns the
    blocks of each part; empty if nothing changes.
    """
    old = state.maps[join.output]
    subsets = _slices(state, join)
    if (
        subsets is None
        or any(not _is_free(state, join, part) for part in join.parts)
        or len(set(join.parts)) < len(join.parts)
    ):
        return {}
    ends = np.cumsum([len(state.maps[p].lanes) for p in join.parts])
    part_of = np.searchsorted(ends, np.arange(ends[-1]), side="right")
    lanes = np.full(ends[-1], -1)
    pieces: dict[str, list[tuple[int, int, np.ndarray]]] = {p: [] for p in join.parts}
    block = 0
    for number, subset in enumerate(subsets):
        order = range(len(join.parts)) if number % 2 == 0 else range(len(join.parts) - 1, -1, -1)
        for which in order:  # alternately, so that a part's last piece of one slice touches its first of the next
            channels = subset[part_of[subset] == which]
            if len(channels):
                count = -(-len(channels) // LANES)
                lanes[channels] = block * LANES + np.arange(len(channels))
                pieces[join.parts[which]].append(
                    (block, count, channels - (ends[which] - len(state.maps[join.parts[which]].lanes)))
                )
                block += count
    if not _pays(old, subsets, lanes, block):
        return {}
    channel_of = {int(lane): c for c, lane in enumerate(old.lanes)}
    for alias in state.aliases.values():
        if alias.root == join.output:
            alias.lanes = lanes[[channel_of[int(lane)] for lane in alias.lanes]]
    state.maps[join.output] = LaneMap(lanes, block)
    return {part: _place_pieces(state, part, found) for part, found in pieces.items()}


def _slices(state: PartitionState, join: Joined) -> list[np.ndarray] | None:
    """The disjoint sets of channels that the readers of a concat take; None if it is read, or leaves, in any other way."""
    if any(join.output in other.parts for other in state.joined) or join.output in state.border_roots():
        return None
    channel_of = {int(lane): c for c, lane in enumerate(state.maps[join.output].lanes)}
    found: dict[tuple[int, ...], None] = {}
    for layer in state.layers:
        for tensor in layer.inputs:
            alias = state.aliases.get(tensor)
            if tensor == join.output:
                return None
            if alias is not None and alias.root == join.output:
                found[tuple(sorted(channel_of[int(lane)] for lane in alias.lanes))] = None
    used = [c for subset in found for c in subset]
    if len(found) < 2 or len(used) != len(set(used)):
        return None
    rest = sorted(set(channel_of.values()) - set(used))
    return [np.array(subset) for subset in found] + ([np.array(rest)] if rest else [])


def _is_free(state: PartitionState, join: Joined, part: str) -> bool:
    """Is the part the output of a convolution (not depthwise, not per group) that nothing but this concat uses?"""
    writer = next((y for y in state.layers if y.output == part), None)
    if (
        writer is None
        or writer.node.op != "Conv"
        or writer.residual is not None  # the skip tensor's lanes are fixed
        or Attributes.of(writer.node).group != 1
        or part in state.border_roots()
    ):
        return False
    readers = any(state.view(t)[0] == part for y in state.layers for t in y.inputs if t not in state.images)
    return not readers and not any(part in other.parts for other in state.joined if other is not join)


def _pays(old: LaneMap, subsets: list[np.ndarray], lanes: np.ndarray, blocks: int) -> bool:
    """Do the readers read fewer blocks, without a much wider concat?"""

    def span(where: np.ndarray, subset: np.ndarray) -> int:
        return int(where[subset].max()) // LANES - int(where[subset].min()) // LANES + 1

    before, after = (sum(span(where, s) for s in subsets) for where in (old.lanes, lanes))
    return after < before and 4 * blocks <= 5 * old.blocks


def _place_pieces(state: PartitionState, part: str, pieces: list[tuple[int, int, np.ndarray]]) -> Segments:
    """Gives the part a map of its pieces, one after the other, and returns where they lie; pieces that touch are one segment."""
    lanes = np.zeros(len(state.maps[part].lanes), np.int64)
    position, segments = 0, list[tuple[int, int]]()
    for block, count, channels in sorted(pieces, key=lambda piece: piece[0]):
        lanes[channels] = position * LANES + np.arange(len(channels))
        position += count
        if segments and sum(segments[-1]) == block:
            segments[-1] = (segments[-1][0], segments[-1][1] + count)
        else:
            segments.append((block, count))
    state.maps[part] = LaneMap(lanes, position)
    return tuple(segments)
