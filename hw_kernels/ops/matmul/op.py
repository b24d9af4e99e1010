"""MatMul on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class MatMul(HostOp):
    """matrix product, leading dimensions broadcast, vectors as in numpy"""

    names = ("MatMul",)
    onnx = ("MatMul",)
    cases = (
        Case([(2, 4, 5)], constants=[(5, 3)]),
        Case([(4, 5), (5,)]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.matmul(inputs[0], inputs[1])]
