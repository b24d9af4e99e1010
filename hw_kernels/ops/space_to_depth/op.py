"""SpaceToDepth: blocks of pixels become channels, in ONNX's order (by, bx, c)."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.bf16_lanes import fold, in_lanes
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.dsl.tile import Window as TapWindow
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.operator import Case, Shape, register
from npuforge.hw_kernels.ops.space_to_depth.program import SPACE_TO_DEPTH


def block_divides(node: Node, graph: Graph) -> bool:
    """the block size divides height and width"""
    block = node.attrs["blocksize"]
    return all(s % block == 0 for s in graph.tensors[node.inputs[0]].shape[2:])


def space_to_depth(x: np.ndarray, block: int) -> np.ndarray:
    """[N, H, W, C] -> [N, H/b, W/b, b*b*C] with channel (by*b + bx)*C + c."""
    n, h, w, channels = x.shape
    split = x.reshape(n, h // block, block, w // block, block, channels).transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(split).reshape(n, h // block, w // block, block * block * channels)


@register
class SpaceToDepth(Mover):
    """y[(by*b + bx)*C + c, y, x] = x[c, y*b + by, x*b + bx]"""

    names = ("SpaceToDepth",)
    program = SPACE_TO_DEPTH
    cost = SPACE_TO_DEPTH.cost
    onnx = ("SpaceToDepth", "Slice")
    moves_bytes = True
    error_steps = 0.0
    constraints = (c.feature_maps, c.map_sizes, block_divides, c.no_activation)
    cases = (Case([(1, 3, 8, 6)], {"blocksize": 2}, why="Focus"), Case([(1, 16, 4, 4)], {"blocksize": 4}))

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        n, channels, h, w = shapes[0]
        block = int(node.attrs["blocksize"])
        return [(n, channels * block * block, h // block, w // block)]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [space_to_depth(inputs[0].transpose(0, 2, 3, 1), int(node.attrs["blocksize"])).transpose(0, 3, 1, 2)]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        return space_to_depth(inputs[0], int(node.attrs["blocksize"]))

    def source_channels(self, node: Node, channels: list[int]) -> list[tuple[int, int]]:
        return [(0, i) for _ in range(int(node.attrs["blocksize"]) ** 2) for i in range(channels[0])]

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        """On the device a tight image is folded; for a feature map a moving convolution does it (compile/steps/lanes.py)."""
        block = int(work.node.attrs["blocksize"])
        if not work.image_channels:
            moved = space_to_depth(inputs[0][np.newaxis, ..., work.in_maps[0].lanes], block)[0]
            return in_lanes(moved, work.out_map)
        return fold(inputs[0], TapWindow(block, block, block, block), *work.out_size, work.out_map.blocks)
