"""Sum and Mean of any number of inputs on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import DROPPED, Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class Sum(Deployed):
    """y = the sum of all inputs"""

    names = ("Sum",)
    onnx = ("Sum",)
    placed_as = "Add on the NPU for maps of one shape"
    cases = (Case([(2, 3, 4), (3, 1), (4,)]), Case([(2, 3)], why="one input"))

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        result = inputs[0]
        for x in inputs[1:]:
            result = result + x
        return [result]


@register
class Mean(Sum):
    """y = the mean of all inputs"""

    names = ("Mean",)
    onnx = ("Mean",)
    placed_as = DROPPED

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [super().compute(node, inputs)[0] / len(inputs)]
