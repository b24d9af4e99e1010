"""Trilu on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed, optional
from npuforge.hw_kernels.operator import Case, register


@register
class Trilu(Deployed):
    """the upper (or lower) triangle of every matrix from diagonal k on, 0 elsewhere"""

    names = ("Trilu",)
    onnx = ("Trilu",)
    cases = (
        Case([(2, 3, 4)]),
        Case([(4, 3)], {"upper": 0}, values=lambda random: [random.normal(size=(4, 3)), np.array(-1)], constants=[()]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        k = int(np.ravel(inputs[1])[0]) if optional(inputs, 1) is not None else 0
        return [np.triu(inputs[0], k) if node.attrs.get("upper", 1) else np.tril(inputs[0], k)]
