"""Expand on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import DROPPED, HostOp, integers
from npuforge.hw_kernels.operator import Case, register


@register
class Expand(Mover, HostOp):
    """broadcasting to a shape"""

    names = ("Expand",)
    onnx = ("Expand",)
    placed_as = DROPPED

    shape_from_values = True
    cases = (Case([(3, 1)], constants=[(3,)], values=lambda r: [r.normal(size=(3, 1)), np.array([2, 1, 4])]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        shape = tuple(integers(node, inputs, "shape", 1) or [])
        return [inputs[0] * np.ones(shape, np.asarray(inputs[0]).dtype)]
