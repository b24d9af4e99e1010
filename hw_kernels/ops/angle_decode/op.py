"""AngleDecode: the angle in [-90, 90) degrees from (sin 2a, cos 2a), which need not have length 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import cordic
from npuforge.hw_kernels.dsl.array import array_kernel, part, vatan2, vcmpsel, vmuls
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, HlsKernel, KernelCase, SecondGradients, Shape, register
from npuforge.hw_kernels.ops.angle_decode.fixed import KERNEL_BF16, KERNEL_INT8


@array_kernel
def angle_decode(x: Any, *, axis: int = 1) -> Any:
    """The same for the NPU DSL."""
    count = x.shape[axis]
    sine, cosine = part(x, axis, 0, count // 2), part(x, axis, count // 2, count)
    angle = vmuls(vatan2(sine, cosine), 0.5)
    return vcmpsel(angle, math.pi / 2, "ge", -math.pi / 2, angle)


def _kernel_case(random: np.random.Generator) -> KernelCase:
    sine, cosine = random.integers(-32768, 32768, (2, 16)).astype(np.int16) >> random.integers(0, 14, (2, 16)).astype(
        np.int16
    )
    sine[:5], cosine[:5] = [0, 0, -32768, 1, -1], [0, -32768, -32768, -32768, -32768]
    return [sine, cosine, np.zeros(16, np.int16)], [cordic.angle_of(cosine, sine)]


@register
class AngleDecode(HostOp):
    """a = atan2(s, c)/2 in [-pi/2, pi/2), (s, c) the halves of x along `axis`; 0 where both are 0"""

    names = ("npuforge::AngleDecode",)
    host_types = ("float32",)
    attributes = ("axis",)
    onnx = ("npuforge::AngleDecode",)
    kernel = HlsKernel("angle_decode", ("const int16_t*", "const int16_t*", "int16_t*"), _kernel_case)
    dsl = angle_decode
    kernel_int8, kernel_bf16 = KERNEL_INT8, KERNEL_BF16
    cases = (
        Case([(1, 6, 4, 5)], {"axis": 1}),
        Case([(5, 2)], {"axis": -1}),
        Case([(0, 2)], {"axis": -1}, why="no detection"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        axis = int(node.attrs.get("axis", 1)) % len(shapes[0])
        if shapes[0][axis] % 2:
            raise ModelError(
                f"node {node.name}: AngleDecode needs sines and cosines along axis {axis}, found {shapes[0][axis]} values"
            )
        return [(*shapes[0][:axis], shapes[0][axis] // 2, *shapes[0][axis + 1 :])]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        sine, cosine = np.split(inputs[0], 2, int(node.attrs.get("axis", 1)))
        angle = 0.5 * np.arctan2(sine, cosine)
        return [np.where(angle >= np.pi / 2, -np.pi / 2, angle)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """(c, -s) / (2 (s*s + c*c)) times da; 0 where both are 0."""
        axis, da = int(node.attrs.get("axis", 1)), output_gradients[0]
        sine, cosine = np.split(np.asarray(inputs[0], np.float64), 2, axis)
        square = sine * sine + cosine * cosine
        factor = np.divide(0.5 * da, square, out=np.zeros_like(square), where=square > 0)
        return [np.concatenate([factor * cosine, -factor * sine], axis)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Of da (v_s c - v_c s) / (2 (s*s + c*c)); 0 where both are 0."""
        axis, da = int(node.attrs.get("axis", 1)), output_gradients[0]
        sine, cosine = np.split(np.asarray(inputs[0], np.float64), 2, axis)
        v_s, v_c = np.split(np.asarray(directions[0]), 2, axis)
        square = sine * sine + cosine * cosine
        inverse = np.divide(1.0, square, out=np.zeros_like(square), where=square > 0)
        turn = (v_s * cosine - v_c * sine) * inverse
        of_s, of_c = -v_c - 2.0 * turn * sine, v_s - 2.0 * turn * cosine
        return [np.concatenate([0.5 * da * inverse * of_s, 0.5 * da * inverse * of_c], axis)], [0.5 * turn]
