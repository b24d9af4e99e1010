"""Transpose on the CPU partition: any permutation, reversed axes when absent."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class Transpose(Mover, HostOp):
    """axis i of the result is axis perm[i] of the input"""

    names = ("Transpose",)
    onnx = ("Transpose",)
    cases = (
        Case([(1, 2, 3, 4)], {"perm": [0, 2, 3, 1]}),
        Case([(2, 3)]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.ascontiguousarray(np.transpose(inputs[0], node.attrs.get("perm")))]
