"""DepthToSpace on the CPU partition, modes DCR and CRD."""

from __future__ import annotations

from typing import Any

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register
from npuforge.hw_kernels.ops.depth_to_space.fixed import KERNEL, KERNEL_BF16, KERNEL_INT8


@register
class DepthToSpace(Mover, HostOp):
    """blocks of channels become blocks of pixels"""

    kernel = KERNEL
    kernel_int8 = KERNEL_INT8
    kernel_bf16 = KERNEL_BF16
    names = ("DepthToSpace",)
    onnx = ("DepthToSpace",)
    placed_as = "before a convolution a transposed convolution on the NPU, where that is quicker than the CPU"
    cases = (
        Case([(1, 12, 2, 3)], {"blocksize": 2}),
        Case([(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
        Case(
            [(2, 68, 1, 1)], {"blocksize": 2, "mode": "CRD"}, why="one pixel, one channel more than a block, two images"
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        n, c, h, w = inputs[0].shape
        b = int(node.attrs["blocksize"])
        if node.attrs.get("mode", "DCR") == "DCR":
            blocks = inputs[0].reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = inputs[0].reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return [blocks.reshape(n, c // (b * b), h * b, w * b)]
