"""AngleEncode: a box's angle as sine and cosine of twice the angle, which do not jump where -90 degrees meets 90."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import cordic
from npuforge.hw_kernels.dsl.array import array_kernel, concat, vcos, vmuls, vsin
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, HlsKernel, KernelCase, SecondGradients, Shape, register
from npuforge.hw_kernels.ops.angle_encode.fixed import KERNEL_BF16, KERNEL_INT8


@array_kernel
def angle_encode(x: Any, *, axis: int = 1) -> Any:
    """The same for the NPU DSL."""
    twice = vmuls(x, 2.0)
    return concat([vsin(twice), vcos(twice)], axis)


def _kernel_case(random: np.random.Generator) -> KernelCase:
    angle = random.integers(-32768, 32768, 16).astype(np.int16)
    angle[:4] = [-32768, 32767, -16385, 16384]
    return [angle, np.zeros(16, np.int16), np.zeros(16, np.int16)], list(cordic.rotate(angle))


@register
class AngleEncode(HostOp):
    """y = (sin 2a, cos 2a) along `axis`, a in radians; a and a + pi are the same box and give the same code"""

    names = ("npuforge::AngleEncode",)
    host_types = ("float32",)
    attributes = ("axis",)
    onnx = ("npuforge::AngleEncode",)
    kernel = HlsKernel("angle_encode", ("const int16_t*", "int16_t*", "int16_t*"), _kernel_case)
    dsl = angle_encode
    kernel_int8, kernel_bf16 = KERNEL_INT8, KERNEL_BF16
    cases = (
        Case([(1, 3, 4, 5)], {"axis": 1}, why="three anchors: six channels"),
        Case([(24, 1)], {"axis": -1}),
        Case([(0, 1)], {"axis": -1}, why="no detection"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        axis = int(node.attrs.get("axis", 1)) % len(shapes[0])
        return [(*shapes[0][:axis], 2 * shapes[0][axis], *shapes[0][axis + 1 :])]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        twice = 2.0 * inputs[0]
        return [np.concatenate([np.sin(twice), np.cos(twice)], int(node.attrs.get("axis", 1)))]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """2 cos 2a dsin - 2 sin 2a dcos."""
        ds, dc = np.split(output_gradients[0], 2, int(node.attrs.get("axis", 1)))
        twice = 2.0 * np.asarray(inputs[0], np.float64)
        return [2.0 * (np.cos(twice) * ds - np.sin(twice) * dc)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """-4 (sin 2a dsin + cos 2a dcos) in a."""
        axis, v = int(node.attrs.get("axis", 1)), np.asarray(directions[0])
        ds, dc = np.split(output_gradients[0], 2, axis)
        twice = 2.0 * np.asarray(inputs[0], np.float64)
        of_codes = np.concatenate([2.0 * np.cos(twice) * v, -2.0 * np.sin(twice) * v], axis)
        return [-4.0 * (np.sin(twice) * ds + np.cos(twice) * dc) * v], [of_codes]
