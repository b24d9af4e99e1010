"""Concat along channels: bytes side by side, every channel keeps its scale."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.bf16_lanes import in_lanes
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.operator import Case, Shape, register
from npuforge.hw_kernels.ops.concat.program import CONCAT


def along_channels(node: Node, graph: Graph) -> bool:
    """the axis is the channel axis"""
    return node.attrs.get("axis", 1) in (1, -3)


def computed_inputs(node: Node, graph: Graph) -> bool:
    """all inputs are computed feature maps"""
    return not any(t in graph.constants for t in node.inputs)


@register
class Concat(Mover):
    """y = the channels of all inputs in order"""

    names = ("Concat",)
    program = CONCAT
    cost = CONCAT.cost
    onnx = ("Concat",)
    moves_bytes = True
    error_steps = 0.0
    constraints = (c.feature_maps, c.map_sizes, along_channels, computed_inputs, c.no_activation)
    cases = (
        Case([(1, 16, 4, 4), (1, 32, 4, 4)], {"axis": 1}),
        Case([(1, 24, 3, 5), (1, 7, 3, 5), (1, 1, 3, 5)], {"axis": 1}, why="channels that do not fill a block"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        axis = int(node.attrs.get("axis", 1)) % len(shapes[0])  # the CPU partition joins along any
        return [(*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :])]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [np.concatenate(inputs, axis=int(node.attrs.get("axis", 1)))]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        return np.concatenate(inputs, axis=3)

    def source_channels(self, node: Node, channels: list[int]) -> list[tuple[int, int]]:
        return [(number, i) for number, count in enumerate(channels) for i in range(count)]

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        """On the device parts are written where the concat has them; one that must be copied there is a layer with one input."""
        if len(inputs) == 1:
            return inputs[0]
        parts = [x[..., lanes.lanes] for x, lanes in zip(inputs, work.in_maps, strict=True)]
        return in_lanes(np.concatenate(parts, axis=2), work.out_map)
