"""RotatedIou: intersection over union of every pair of rotated boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.dsl.array import array_kernel
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Shape, register
from npuforge.hw_kernels.ops.rotated_iou.fixed import KERNEL, KERNEL_BF16, KERNEL_INT8
from npuforge.hw_kernels.rotated import overlap
from npuforge.hw_kernels.rotated_program import pair_overlaps


def random_boxes(random: np.random.Generator, count: int) -> np.ndarray:
    """[count, 5] boxes that overlap often."""
    return np.concatenate(
        [random.uniform(0, 10, (count, 2)), random.uniform(0.5, 8, (count, 2)), random.uniform(-4, 4, (count, 1))], 1
    )


@array_kernel
def rotated_iou(a: Any, b: Any) -> Any:
    """The same for the NPU DSL."""
    return pair_overlaps(a, b)


@register
class RotatedIou(HostOp):
    """y[i, j] = area of a[i] and b[j] / area of a[i] or b[j]; boxes (cx, cy, width, height, angle in radians)"""

    dsl = rotated_iou
    kernel = KERNEL
    kernel_int8, kernel_bf16 = KERNEL_INT8, KERNEL_BF16
    names = ("npuforge::RotatedIou",)
    host_types = ("float32",)
    attributes = ()
    onnx = ("npuforge::RotatedIou",)
    no_gradient = "used to match and suppress boxes; its derivative jumps where corners cross edges"
    cases = (
        Case([(6, 5), (9, 5)], values=lambda random: [random_boxes(random, 6), random_boxes(random, 9)]),
        Case([(3, 5), (3, 5)], values=lambda random: [np.repeat(random_boxes(random, 1), 3, 0)] * 2, why="equal boxes"),
        Case([(0, 5), (4, 5)], values=lambda random: [np.zeros((0, 5)), random_boxes(random, 4)], why="no detection"),
        Case(
            [(4, 5), (0, 5)], values=lambda random: [random_boxes(random, 4), np.zeros((0, 5))], why="nothing to match"
        ),
        Case([(0, 5), (0, 5)], values=lambda random: [np.zeros((0, 5))] * 2, why="two empty lists"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        if len(shapes) != 2 or any(len(s) != 2 or s[1] != 5 for s in shapes):
            raise ModelError(f"node {node.name}: RotatedIou needs two lists of boxes [N, 5], found {shapes}")
        return [(shapes[0][0], shapes[1][0])]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [
            np.array([[overlap(a, b) for b in inputs[1]] for a in inputs[0]]).reshape(len(inputs[0]), len(inputs[1]))
        ]
