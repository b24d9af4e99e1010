"""AlignNhwc16: a feature map in the NPU's layout, N, H, W, C with C padded with zeros to a multiple of 16."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.dsl.array import array_kernel, broadcast, concat, transpose
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.kernel_data import real, store
from npuforge.hw_kernels.operator import Case, HlsKernel, KernelCase, KernelForm, KernelRun, Shape, register

LANES = 16


@array_kernel
def align_nhwc16(x: Any) -> Any:
    """The same for the NPU DSL."""
    y = transpose(x, (0, 2, 3, 1))
    missing = -x.shape[1] % LANES
    return concat([y, broadcast(0.0, (*y.shape[:3], missing))], 3) if missing else y


def _kernel_case(random: np.random.Generator) -> KernelCase:
    channels, pixels = int(random.integers(1, 40)), int(random.integers(1, 20))
    x = random.integers(-128, 128, (channels, pixels)).astype(np.int8)
    expected = np.zeros((pixels, -(-channels // LANES) * LANES), np.int8)
    expected[:, :channels] = x.T
    return [x, channels, pixels, np.ones_like(expected)], [expected]


def _on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Bits are moved, channels keep their scales; a pad lane stands for 0."""
    x = store(inputs[0], 1, mode)
    y = x.lanes
    pads = y.shape[-1] - x.bits.shape[-1]
    quant = dataclasses.replace(
        x.quant,
        scale=np.append(x.quant.scale, np.ones(pads)),
        zero_point=np.append(x.quant.zero_point, np.zeros(pads, np.int32)),
    )
    planes = np.ascontiguousarray(np.moveaxis(x.bits, -1, 1))
    _, channels, height, width = planes.shape
    calls: list[KernelCase] = [
        ([plane, channels, height * width, np.zeros_like(out)], [out]) for plane, out in zip(planes, y, strict=True)
    ]
    return KernelRun(calls, [x.real], [real(y, quant, -1)], [0.0])


def _form(element: str) -> KernelForm:
    bounds = {1: (0, -1, 65521), 2: (0, 2**24 + 1)}
    arguments = (f"const {element}*", "int32_t", "int32_t", f"{element}*")
    return KernelForm(f"align_nhwc16<{element}>", arguments, _on_the_npus_data, bounds)


@register
class AlignNhwc16(Mover, HostOp):
    """y[n, h, w, c] = x[n, c, h, w], zeros up to the next multiple of 16 channels"""

    names = ("npuforge::AlignNhwc16",)
    host_types = ("float32",)
    attributes = ()
    onnx = ("npuforge::AlignNhwc16",)
    kernel = HlsKernel("align_nhwc16", ("const int8_t*", "int32_t", "int32_t", "int8_t*"), _kernel_case)
    dsl = align_nhwc16
    kernel_int8 = _form("int8_t")
    kernel_bf16 = _form("uint16_t")
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
