"""UnalignNhwc16: the inverse of AlignNhwc16; pad lanes are dropped."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.dsl.array import array_kernel, part, transpose
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.kernel_data import real, store
from npuforge.hw_kernels.operator import Case, HlsKernel, KernelCase, KernelForm, KernelRun, Shape, register


@array_kernel
def unalign_nhwc16(x: Any, *, channels: int) -> Any:
    """The same for the NPU DSL."""
    return transpose(part(x, 3, 0, channels), (0, 3, 1, 2))


def _kernel_case(random: np.random.Generator) -> KernelCase:
    channels, pixels, lanes = int(random.integers(1, 33)), int(random.integers(1, 20)), 16 * int(random.integers(2, 4))
    x = random.integers(-128, 128, (pixels, lanes)).astype(np.int8)
    expected = np.ascontiguousarray(x[:, :channels].T)
    return [x, lanes, channels, pixels, np.ones_like(expected)], [expected]


def _on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Bits are moved, channels keep their scales."""
    x, channels = store(inputs[0], -1, mode), int(node.attrs["channels"])
    quant = dataclasses.replace(x.quant, scale=x.quant.scale[:channels], zero_point=x.quant.zero_point[:channels])
    planes = np.ascontiguousarray(np.moveaxis(x.bits[..., :channels], -1, 1))
    _, height, width, lanes = x.bits.shape
    calls: list[KernelCase] = [
        ([image, lanes, channels, height * width, np.zeros_like(out)], [out])
        for image, out in zip(x.bits, planes, strict=True)
    ]
    return KernelRun(calls, [x.real], [real(np.moveaxis(planes, 1, -1), quant, 1)], [0.0])


def _form(element: str) -> KernelForm:
    bounds = {1: (0, 65521), 2: (0, -1), 3: (0, 2**24 + 1)}
    arguments = (f"const {element}*", "int32_t", "int32_t", "int32_t", f"{element}*")
    return KernelForm(f"unalign_nhwc16<{element}>", arguments, _on_the_npus_data, bounds)


@register
class UnalignNhwc16(Mover, HostOp):
    """y[n, c, h, w] = x[n, h, w, c] for c below `channels`"""

    names = ("npuforge::UnalignNhwc16",)
    host_types = ("float32",)
    attributes = ("channels",)
    onnx = ("npuforge::UnalignNhwc16",)
    kernel = HlsKernel("unalign_nhwc16", ("const int8_t*", "int32_t", "int32_t", "int32_t", "int8_t*"), _kernel_case)
    dsl = unalign_nhwc16
    kernel_int8 = _form("int8_t")
    kernel_bf16 = _form("uint16_t")
    cases = (
        Case([(2, 4, 5, 16)], {"channels": 3}),
        Case([(1, 1, 1, 32)], {"channels": 32}, why="nothing to drop"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        channels = int(node.attrs["channels"])
        if len(shapes[0]) != 4 or not 1 <= channels <= shapes[0][3]:
            raise ModelError(
                f"node {node.name}: UnalignNhwc16 to {channels} channels needs N, H, W, C with at least as many, found {shapes[0]}"
            )
        n, h, w, _ = shapes[0]
        return [(n, channels, h, w)]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.ascontiguousarray(np.moveaxis(inputs[0][..., : int(node.attrs["channels"])], -1, 1))]
