"""Hardmax on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed, without_nan
from npuforge.hw_kernels.operator import Case, register


@register
class Hardmax(Deployed):
    """1 at the first largest value along the axis, 0 elsewhere"""

    names = ("Hardmax",)
    onnx = ("Hardmax",)
    cases = (Case([(2, 5)]), Case([(3, 4, 2)], {"axis": 1}))

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axis, y = int(node.attrs.get("axis", -1)), np.zeros_like(inputs[0])
        np.put_along_axis(y, np.expand_dims(np.argmax(without_nan(inputs[0], axis), axis), axis), 1.0, axis)
        return [y]
