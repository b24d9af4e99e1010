"""LpNormalization on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, register


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

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """(dy - y (y.dy)) / norm for p = 2; (dy - sign(x) (y.dy)) / norm for p = 1; 0 where the norm is 0."""
        order, axis = int(node.attrs.get("p", 2)), int(node.attrs.get("axis", -1))
        x, dy = np.asarray(inputs[0], np.float64), output_gradients[0]
        norm = np.linalg.norm(x, ord=order, axis=axis, keepdims=True)
        y = self.compute(node, [x])[0]
        direction = y if order == 2 else np.sign(x)
        wide = dy - direction * (y * dy).sum(axis, keepdims=True)
        return [np.divide(wide, norm, out=np.zeros_like(x), where=norm != 0)]
