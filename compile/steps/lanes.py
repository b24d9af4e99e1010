"""Step `lanes`: which lane of which storage every channel of every NPU tensor lies in; rewrites what cannot be a view into layers that move bytes.

Convolutions absorb any lane map of their input. Depthwise, pooling, resize and affine keep it. Element-wise operands share one map; an Add of a
convolution nobody else reads and a skip tensor becomes the residual stage of that convolution, which writes in the skip tensor's lanes. A concat's
inputs are views into one storage at whole blocks where that is legal, else copied. ChannelGather is a change of map, or a 1x1 convolution with
0/1 weights where a consumer cannot take the map. Convolutions on an image read it folded (`fold.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import VerifyError
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import ConvParams, EltwiseParams, MoveParams, NodeParams, QGraph
from npuforge.compile.steps.fold_image import ImageView, fold_convolution
from npuforge.compile.steps.layers import LaneResult, Layer, Lowered, Place, Storage
from npuforge.compile.steps.storages import Alias, Joined, PartitionState, assign
from npuforge.hw_kernels import operator as operators
from npuforge.hw_kernels.arch import LANES, Arch
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram
from npuforge.hw_kernels.dsl.program import Residual
from npuforge.hw_kernels.dsl.tile import LaneMap
from npuforge.hw_kernels.ops.channel_gather.program import permutation
from npuforge.hw_kernels.ops.space_to_depth.program import as_convolution
from npuforge.hw_kernels.windows import Window as Attributes
from npuforge.quant.regions import PAIRS

KEEPERS = ("MaxPool", "AveragePool", "Resize", "Affine")


class _Partition(PartitionState):
    """Works through the nodes of one partition in order."""

    def _channels(self, tensor: str) -> int:
        return int(self.shape(tensor)[1])

    def _is_clean(self, tensor: str) -> bool:
        """No lane of the tensor's blocks belongs to another channel."""
        root, first, lanes = self.view(tensor)
        if root == tensor:
            return tensor not in self.shared
        own = self.maps[root].lanes
        inside = own[(own >= first * LANES) & (own < (first + lanes.blocks) * LANES)]
        return len(inside) == len(lanes.lanes)

    def _usable(self, tensor: str) -> str:
        """A tensor with these bytes that is in lanes (not an image) and shares no block with other channels."""
        if tensor in self.images:
            tensor = self._in_lanes(tensor)
        return tensor if self._is_clean(tensor) else self._compacted(tensor)

    def _in_lanes(self, tensor: str) -> str:
        """A tensor with these bytes that is in lanes."""
        if tensor in self.images:
            return self._realise_image(tensor)
        return self.compact.get(tensor, tensor)

    def _compacted(self, tensor: str, lanes: LaneMap | None = None) -> str:
        """The tensor moved into lanes of its own by a 1x1 convolution."""
        key = tensor if lanes is None else f"{tensor}@{lanes.blocks}:{lanes.lanes.tolist()}"
        if key not in self.compact:
            name = f"{tensor}#lanes{len(self.compact)}"
            self.moved_names[name] = self.moved_names.get(tensor, tensor)
            producer = self.graph.producer(self.moved_names[name])
            channels = self._channels(tensor)
            label = producer.name if producer else tensor
            node, params = permutation(
                f"{label}#lanes",
                tensor,
                name,
                list(range(channels)),
                channels,
                np.zeros(channels, np.int64),
                producer.sources if producer else [],
                self.dtype,
            )
            self._emit(node, params, [tensor], name, lanes or LaneMap.identity(channels))
            self.compact[key] = name
        return self.compact[key]

    def _emit(self, node: Node, params: NodeParams, inputs: list[str], output: str, lanes: LaneMap) -> Layer:
        size = (int(self.shape(output)[2]), int(self.shape(output)[3]))
        layer = Layer(node, params, inputs, output, size)
        self.layers.append(layer)
        self.new_root(output, lanes, size)
        return layer

    # ---- nodes -----------------------------------------------------------------------------------------------------
    def run(self) -> Lowered:
        """All nodes, then storages."""
        for tensor in self.part.inputs:
            self._input(tensor)
        for name in self.part.nodes:
            self._node(self.node_of[name])
        for tensor in self.part.outputs:
            self._output(tensor)
        assign(self)
        layers = [y for y in self.layers if y.output in self.maps]
        return Lowered(self.index, layers, list(self.part.inputs), list(self.part.outputs))

    def _input(self, tensor: str) -> None:
        _, channels, height, width = self.shape(tensor)
        known = self.places.get(tensor)
        if tensor in self.graph.inputs and channels <= 4:
            if known is None:
                self.places[tensor] = Place(
                    Storage(tensor, height, width, 1, channels, self.dtype), 0, LaneMap(np.arange(channels), 1)
                )
            self.images[tensor] = ImageView.whole(tensor, height, width, channels)
        elif known is not None:  # made by an earlier partition: its storage holds other tensors too, perhaps
            self.new_root(tensor, known.map, (height, width))
            if not known.map.same(LaneMap.identity(channels)):
                self.shared.add(tensor)
        else:
            self.new_root(tensor, LaneMap.identity(channels), (height, width))

    def _output(self, tensor: str) -> None:
        """Border tensors must exist in lanes."""
        if tensor in self.images and tensor not in self.part.inputs:
            self.aliases[tensor] = self.aliases[self._realise_image(tensor)]

    def _node(self, node: Node) -> None:
        handler = {"Concat": self._concat, "ChannelGather": self._gather, "SpaceToDepth": self._space_to_depth}.get(
            node.op
        )
        if handler is not None:
            handler(node)
        elif node.op in ("Conv", "ConvTranspose"):
            self._convolution(node)
        elif node.op in PAIRS:
            self._pair(node)
        elif node.op == "MaxPool" and separable(node, self.shape(node.inputs[0]), self.shape(node.outputs[0])):
            self._separate(node)
        elif node.op in KEEPERS:
            x = self._usable(node.inputs[0])
            self._emit(node, self._params(node), [x], node.outputs[0], self.view(x)[2])
        elif isinstance(operators.get(node).program, KernelProgram):
            self._pixelwise(node)
        else:
            raise VerifyError(f"lanes: node {node.name}: operator {node.op} was placed on the NPU, but has no lowering")

    def _separate(self, node: Node) -> None:
        """Maximum over columns of the maximum over rows: the same bits for fewer taps."""
        x, made = self._usable(node.inputs[0]), f"{node.outputs[0]}#rows"
        first, second = (replace(node, attrs=attrs) for attrs in split_window(node))
        channels, width = self.shape(x)[1], self.shape(x)[3]
        self.made_shapes[made] = (1, int(channels), int(self.shape(node.outputs[0])[2]), int(width))
        self._emit(replace(first, name=f"{node.name}#rows", outputs=[made]), MoveParams(), [x], made, self.view(x)[2])
        self._emit(second, MoveParams(), [made], node.outputs[0], self.view(x)[2])

    def _params(self, node: Node) -> NodeParams:
        if node.name not in self.qgraph.params:
            if node.op in ("MaxPool", "Resize"):
                return MoveParams()
            raise VerifyError(f"lanes: node {node.name} ({node.op}) has no quantised parameters")
        return self.qgraph.params[node.name]

    def _concat(self, node: Node) -> None:
        output = node.outputs[0]
        parts = [self._usable(t) for t in node.inputs]
        if len(parts) == 1:
            root, first, lanes = self.view(parts[0])
            self.aliases[output] = Alias(root, lanes.lanes + first * LANES)
            return
        parts = [t if t not in self.aliases else self._compacted(t) for t in parts]
        joined, start = [], 0
        for part in parts:
            joined.append(self.maps[part].lanes + start * LANES)
            start += self.maps[part].blocks
        self.new_root(
            output, LaneMap(np.concatenate(joined), start), (int(self.shape(output)[2]), int(self.shape(output)[3]))
        )
        self.joined.append(Joined(output, parts, len(self.layers)))

    def _gather(self, node: Node) -> None:
        x, output = node.inputs[0], node.outputs[0]
        indices = np.asarray(node.attrs["indices"], np.int64)
        plain = bool((indices >= 0).all()) and len(np.unique(indices)) == len(indices)
        if plain and x in self.images:
            self.images[output] = self.images[x].gathered(indices)
            return
        x = self._in_lanes(x)
        root, first, lanes = self.view(x)
        if plain:
            self.aliases[output] = Alias(root, lanes.lanes[indices] + first * LANES)
            return
        zeros = self.qgraph.quant[output].zero_point
        moved, params = permutation(
            node.name, x, output, list(indices), self._channels(x), zeros, node.sources, self.dtype
        )
        self._emit(moved, params, [x], output, LaneMap.identity(len(indices)))

    def _space_to_depth(self, node: Node) -> None:
        x, output, block = node.inputs[0], node.outputs[0], int(node.attrs["blocksize"])
        if x in self.images and self.images[x].block == 1 and self.images[x].channels * block * block <= 4 * LANES:
            self.images[output] = self.images[x].folded(block)
            return
        x = self._in_lanes(x)
        moved, params = as_convolution(node, self._channels(x), self.dtype)
        self._emit(moved, params, [x], output, LaneMap.identity(len(params.bias)))

    def _realise_image(self, tensor: str) -> str:
        """The image, or what was folded or picked from it, as a feature map: one LOAD_FOLD layer, lanes picked by an alias."""
        view = self.images[tensor]
        key = f"{view.image}#image{view.block}"
        if key not in self.maps:
            lanes = view.block * view.block * view.image_channels
            node = Node(
                key, "SpaceToDepth", [view.image], [key], {"blocksize": view.block}, sources=[view.image], device="NPU"
            )
            size = (view.height // view.block, view.width // view.block)
            self.layers.append(Layer(node, MoveParams(), [view.image], key, size))
            self.new_root(key, LaneMap.identity(lanes), size)
            if view.block == 1:
                self.moved_names[key] = view.image
            else:
                self.made_shapes[key] = (1, lanes, *size)
        name = f"{tensor}#inlanes"
        self.aliases[name], self.moved_names[name] = Alias(key, view.lanes), tensor
        return name

    def _convolution(self, node: Node) -> None:
        x, output = node.inputs[0], node.outputs[0]
        params = self._params(node)
        assert isinstance(params, ConvParams)
        group = Attributes.of(node).group
        outputs = params.weight.shape[0]
        if node.op == "Conv" and group == outputs == self._channels(x):
            x = self._usable(x)
            self._emit(node, params, [x], output, self.view(x)[2]).macs = self._macs(node, params)
            return
        lanes = LaneMap.identity(outputs)
        if node.op == "Conv" and x in self.images:
            folded = fold_convolution(
                node, params, self.images[x], (int(self.shape(output)[2]), int(self.shape(output)[3])), self.arch
            )
            if folded is not None:
                new_node, new_params, fold = folded
                layer = self._emit(new_node, new_params, [self.images[x].image], output, lanes)
                layer.fold, layer.macs = fold, self._macs(node, params)
                return
        x = self._in_lanes(x)
        if x in self.aliases and not self._absorb_is_cheaper(node, params, x, output):
            x = self._compacted(x)
        self._emit(node, params, [x], output, lanes).macs = self._macs(node, params)

    def _macs(self, node: Node, params: ConvParams) -> int:
        size = self.shape(node.inputs[0] if node.op == "ConvTranspose" else node.outputs[0])
        return int(params.weight.size) * int(size[2]) * int(size[3])

    def _absorb_is_cheaper(self, node: Node, params: ConvParams, x: str, output: str) -> bool:
        """Reading a scattered input against moving it first: block products of the array."""
        outputs, kernel_h, kernel_w, _ = params.weight.shape
        span = self.view(x)[2].blocks
        dense = -(-self._channels(x) // LANES)
        out_pixels = int(self.shape(output)[2] * self.shape(output)[3])
        if node.op == "ConvTranspose":
            out_pixels = int(self.shape(x)[2] * self.shape(x)[3])
        saved = (span - dense) * kernel_h * kernel_w * -(-outputs // LANES) * out_pixels
        return saved <= span * dense * int(self.shape(x)[2] * self.shape(x)[3])

    def _pixelwise(self, node: Node) -> None:
        """A kernel: all operands in the lanes of the first."""
        first = self._usable(node.inputs[0])
        lanes, operands = self.view(first)[2], [first]
        for tensor in node.inputs[1:]:
            usable = self._usable(tensor)
            operands.append(usable if self.view(usable)[2].same(lanes) else self._compacted(usable, lanes))
        self._emit(node, self._params(node), operands, node.outputs[0], lanes)

    def _sole_convolution(self, tensor: str, node: Node) -> Layer | None:
        """The layer on the array that makes `tensor` for `node` alone."""
        alone = [n for n in self.graph.nodes for t in n.inputs if t == tensor] == [node]
        layer = next((y for y in self.layers if y.output == tensor), None)
        if layer is None or not alone or tensor in self.part.outputs or layer.residual is not None:
            return None
        if layer.node.op != "Conv":
            return None
        depthwise = Attributes.of(layer.node).group == self._channels(tensor) == self._channels(layer.node.inputs[0])
        return None if depthwise else layer

    def _residual(self, node: Node) -> bool:
        """Makes an Add the residual stage of a convolution, the one computed last where both operands are; False if it has to stay a layer.

        The stage has no table: with two of them the array would need a second copy of the table memory for every lane.
        """
        params, output = self._params(node), node.outputs[0]
        a, b = node.inputs
        if node.op != "Add" or not isinstance(params, EltwiseParams) or params.stage.kind == "table":
            return False
        if a == b or self.shape(a) != self.shape(b):
            return False
        makers = {t: layer for t in (a, b) if (layer := self._sole_convolution(t, node)) is not None}
        if not makers:
            return False
        inner = max(makers, key=lambda t: self.layers.index(makers[t]))
        conv, skip = makers[inner], self._usable(b if inner == a else a)
        if inner == b:
            params = replace(params, m_a=params.m_b, m_b=params.m_a, z_a=params.z_b, z_b=params.z_a)
        position = self.layers.index(conv)
        del self.layers[position], self.maps[inner], self.sizes[inner]
        for join in self.joined:
            join.position -= join.position > position
        layer = self._emit(conv.node, conv.params, [conv.inputs[0], skip], output, self.view(skip)[2])
        layer.fold, layer.macs = conv.fold, conv.macs
        layer.residual, layer.before_sum = Residual(node, params), inner
        return True

    def _pair(self, node: Node) -> None:
        if self._residual(node):
            return
        a, output = self._usable(node.inputs[0]), node.outputs[0]
        lanes = self.view(a)[2]
        b = node.inputs[1]
        if self._channels(b) == 1 != self._channels(a):
            b = self._in_lanes(b)
        else:
            b = self._usable(b)
            if not self.view(b)[2].same(lanes):
                b = self._compacted(b, lanes)
        self._emit(node, self._params(node), [a, b], output, lanes)


def split_window(node: Node) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attributes of the pooling over rows only and over columns only."""
    kernel, a = node.attrs["kernel_shape"], Attributes.of(node)
    rows = {"kernel_shape": [kernel[0], 1], "strides": [a.strides[0], 1], "pads": [a.pads[0], 0, a.pads[2], 0]}
    cols = {"kernel_shape": [1, kernel[1]], "strides": [1, a.strides[1]], "pads": [0, a.pads[1], 0, a.pads[3]]}
    return rows | {"dilations": [a.dilations[0], 1]}, cols | {"dilations": [1, a.dilations[1]]}


def separable(node: Node, shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Are two one-dimensional maximum poolings clearly cheaper than one?"""
    kernel_h, kernel_w = node.attrs["kernel_shape"]
    split = out[2] * shape[3] * kernel_h + out[2] * out[3] * kernel_w
    return bool(kernel_h > 1 and kernel_w > 1 and 4 * split <= 3 * out[2] * out[3] * kernel_h * kernel_w)


def run(qgraph: QGraph, arch: Arch) -> LaneResult:
    """The step."""
    result = LaneResult(qgraph, arch, [])
    for index, part in enumerate(qgraph.graph.partitions):
        if part.device != "NPU":
            continue
        worker = _Partition(qgraph, arch, index, result.places)
        result.partitions.append(worker.run())
        result.moved_names |= worker.moved_names
        result.in_place |= worker.in_place
    number = 0
    for lowered in result.partitions:
        for layer in lowered.layers:
            layer.id = f"L{number:04d}"
            number += 1
    return result


def verify(result: LaneResult) -> None:
    """Every operand and output has a place; lanes are distinct and inside their storage; operands that must share a map do."""
    for lowered in result.partitions:
        for layer in lowered.layers:
            for tensor in (*layer.inputs, layer.output):
                place = result.places.get(tensor)
                if place is None:
                    raise VerifyError(f"lanes: node {layer.name}: tensor {tensor} has no place")
                lanes, storage = place.map.lanes, place.storage
                if len(np.unique(lanes)) != len(lanes) or lanes.min() < 0 or lanes.max() >= place.map.blocks * LANES:
                    raise VerifyError(
                        f"lanes: node {layer.name}: tensor {tensor}: two channels in one lane, or a lane outside its blocks"
                    )
                if sum(count for _, count in place.runs) != place.map.blocks:
                    raise VerifyError(
                        f"lanes: node {layer.name}: tensor {tensor}: its runs of blocks do not fit its map"
                    )
                if not storage.tight and place.end_block > storage.blocks:
                    raise VerifyError(
                        f"lanes: node {layer.name}: tensor {tensor} reaches outside storage {storage.name}"
                    )
