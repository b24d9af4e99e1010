"""AlignNhwc16: a feature map in the NPU's layout, N, H, W, C with C padded with zeros to a multiple of 16."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, HlsKernel, KernelCase, Shape, register

LANES = 16


def _kernel_case(random: np.random.Generator) -> KernelCase:
    channels, pixels = int(random.integers(1, 40)), int(random.integers(1, 20))
    x = random.integers(-128, 128, (channels, pixels)).astype(np.int8)
    expected = np.zeros((pixels, -(-channels // LANES) * LANES), np.int8)
    expected[:, :channels] = x.T
    return [x, channels, pixels, np.ones_like(expected)], [expected]


@register
class AlignNhwc16(Mover, HostOp):
    """y[n, h, w, c] = x[n, c, h, w], zeros up to the next multiple of 16 channels"""

    names = ("npuforge::AlignNhwc16",)
    onnx = ("npuforge::AlignNhwc16",)
    kernel = HlsKernel("align_nhwc16", ("const int8_t*", "int32_t", "int32_t", "int8_t*"), _kernel_case)
    cases = (
        Case([(2, 3, 4, 5)]),
        Case([(1, 16, 2, 3)], why="nothing to pad"),
        Case([(1, 17, 1, 1)], why="one channel more than a block, one pixel"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        if len(shapes[0]) != 4:
            raise ModelError(f"node {node.name}: AlignNhwc16 needs a map N, C, H, W, found the shape {shapes[0]}")
        n, channels, h, w = shapes[0]
        return [(n, h, w, -(-channels // LANES) * LANES)]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        y = np.zeros(self.infer(node, [np.shape(inputs[0])])[0])
        y[..., : inputs[0].shape[1]] = np.moveaxis(inputs[0], 1, -1)
        return [y]
