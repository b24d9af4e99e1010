"""Unsqueeze on the CPU partition: a view with new axes of size 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import MOVED, HostOp, integers
from npuforge.hw_kernels.operator import Case, register


@register
class Unsqueeze(Mover, HostOp):
    """axes of size 1 at the positions named in the result"""

    names = ("Unsqueeze",)
    onnx = ("Unsqueeze",)
    placed_as = MOVED
    cases = (Case([(2, 3)], {"axes": [0, -1]}),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.expand_dims(inputs[0], tuple(integers(node, inputs, "axes", 1) or []))]
