"""LpNormalization on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


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
