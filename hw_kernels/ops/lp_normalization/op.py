"""LpNormalization on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register


@register
class LpNormalization(HostOp):
    """y = x / norm of x along `axis` (p = 1 or 2); 0 where the norm is 0"""

    names = ("LpNormalization",)
    onnx = ("LpNormalization",)
    cases = (
        Case([(2, 3, 4)], {"axis": 1}),
        Case([(2, 3)], {"p": 1}),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        norm = np.linalg.norm(
            inputs[0], ord=int(node.attrs.get("p", 2)), axis=int(node.attrs.get("axis", -1)), keepdims=True
        )
        return [np.divide(inputs[0], norm, out=np.zeros_like(inputs[0]), where=norm != 0)]

    def _parts(self, node: Node, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """y, the slope of the norm in every element, 1/norm (0 where the norm is 0), the axis."""
        order, axis = int(node.attrs.get("p", 2)), int(node.attrs.get("axis", -1))
        norm = np.linalg.norm(x, ord=order, axis=axis, keepdims=True)
        y = self.compute(node, [x])[0]
        return y, y if order == 2 else np.sign(x), np.divide(1.0, norm, out=np.zeros_like(norm), where=norm != 0), axis

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """(dy - s (y.dy)) / norm with the norm's slope s: y for p = 2, sign(x) for p = 1; 0 where the norm is 0."""
        y, slope, inverse, axis = self._parts(node, np.asarray(inputs[0], np.float64))
        dy = output_gradients[0]
        return [(dy - slope * (y * dy).sum(axis, keepdims=True)) * inverse]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """y changes by (v - y (s.v)) / norm in the direction v, the norm by s.v, s as y for p = 2 and not at all for p = 1."""
        y, slope, inverse, axis = self._parts(node, np.asarray(inputs[0], np.float64))
        dy, v = output_gradients[0], np.zeros_like(y) if directions[0] is None else directions[0]

        def along(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return np.asarray((a * b).sum(axis, keepdims=True))

        moved, growth = (v - y * along(slope, v)) * inverse, along(slope, v) * inverse
        turned = moved if int(node.attrs.get("p", 2)) == 2 else np.zeros_like(y)
        gradient = (dy - slope * along(y, dy)) * inverse
        of_x = -(turned * along(y, dy) + slope * along(moved, dy)) * inverse - gradient * growth
        return [of_x], [moved]
