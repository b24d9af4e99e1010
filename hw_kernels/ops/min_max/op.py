"""Max and Min of any number of inputs on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class Max(HostOp):
    """y = the largest of all inputs"""

    names = ("Max",)
    onnx = ("Max",)
    cases = (Case([(2, 3, 4), (3, 1), (4,)]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        result = inputs[0]
        for x in inputs[1:]:
            result = np.maximum(result, x)
        return [result]


@register
class Min(HostOp):
    """y = the smallest of all inputs"""

    names = ("Min",)
    onnx = ("Min",)
    cases = (Case([(2, 3, 4), (3, 1), (4,)]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        result = inputs[0]
        for x in inputs[1:]:
            result = np.minimum(result, x)
        return [result]
