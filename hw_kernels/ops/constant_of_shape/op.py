"""ConstantOfShape on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class ConstantOfShape(HostOp):
    """one value everywhere"""

    names = ("ConstantOfShape",)
    onnx = ("ConstantOfShape",)

    cases = (
        Case([(3,)], values=lambda random: [np.array([2, 1, 3])]),
        Case([(2,)], {"value": np.array([1.5], np.float32)}, values=lambda random: [np.array([2, 0])], why="nothing"),
    )
    shape_from_values = True
    no_gradient = "the result does not depend on any float input"

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        value = np.ravel(np.asarray(node.attrs.get("value", 0.0), np.float64))[0]
        return [np.full([int(v) for v in np.ravel(inputs[0])], value)]
