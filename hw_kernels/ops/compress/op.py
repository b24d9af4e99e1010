"""Compress on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class Compress(Deployed):
    """the slices along `axis` (or the elements of the flat input) whose condition holds"""

    names = ("Compress",)
    onnx = ("Compress",)
    shape_from_values = True
    cases = (
        Case(
            [(3, 2), (3,)],
            {"axis": 0},
            values=lambda random: [random.normal(size=(3, 2)), np.array([True, False, True])],
        ),
        Case(
            [(3, 2), (5,)],
            values=lambda random: [random.normal(size=(3, 2)), np.array([True, False, False, True, True])],
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axis = node.attrs.get("axis")
        return [np.compress(inputs[1], inputs[0], None if axis is None else int(axis))]
