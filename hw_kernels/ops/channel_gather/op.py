"""ChannelGather: output channel c is input channel indices[c], or a real 0 where the index is -1."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.bf16_lanes import in_lanes
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.operator import Case, Shape, register
from npuforge.hw_kernels.ops.channel_gather.program import CHANNEL_GATHER


def indices_in_range(node: Node, graph: Graph) -> bool:
    """every index names an input channel, or is -1 for zeros"""
    channels = graph.tensors[node.inputs[0]].shape[1]
    return all(-1 <= i < channels for i in node.attrs["indices"])


@register
class ChannelGather(Mover):
    """y[c] = x[indices[c]], 0 where indices[c] = -1"""

    names = ("ChannelGather",)
    attributes = ("indices",)
    program = CHANNEL_GATHER
    cost = CHANNEL_GATHER.cost
    onnx = ("Slice", "Split", "Gather", "Reshape", "Transpose", "Pad")
    moves_bytes = True
    error_steps = 0.0
    constraints = (c.feature_maps, c.map_sizes, indices_in_range, c.no_activation)
    cases = (
        Case([(1, 8, 3, 3)], {"indices": [0, 4, 1, 5, 2, 6, 3, 7]}, why="channel shuffle"),
        Case([(1, 20, 3, 3)], {"indices": list(range(3, 17))}, why="slice"),
        Case([(1, 4, 3, 3)], {"indices": [0, 1, 2, 3, -1, -1]}, why="zeros appended"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        n, _, h, w = shapes[0]
        return [(n, len(node.attrs["indices"]), h, w)]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        index = np.asarray(node.attrs["indices"], np.int64)
        return [np.where((index >= 0)[:, None, None], inputs[0][:, index], 0.0)]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        index = np.asarray(node.attrs["indices"], np.int64)
        zero = qgraph.quant[node.outputs[0]].zero_point.astype(np.int8)
        return np.where(index >= 0, inputs[0][..., index], zero)

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        """On the device a change of the lane map, or a moving convolution, which makes +0 of -0."""
        index = np.asarray(work.node.attrs["indices"], np.int64)
        channels = inputs[0][..., work.in_maps[0].lanes]
        return in_lanes(np.where(index >= 0, channels[..., index], np.uint16(0)), work.out_map)

    def source_channels(self, node: Node, channels: list[int]) -> list[tuple[int, int]]:
        return [(0, int(i)) for i in node.attrs["indices"]]
