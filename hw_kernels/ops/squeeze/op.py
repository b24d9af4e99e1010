"""Squeeze on the CPU partition: a view without axes of size 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import MOVED, HostOp, integers
from npuforge.hw_kernels.operator import Case, register


@register
class Squeeze(Mover, HostOp):
    """drops the axes named, or all of size 1"""

    names = ("Squeeze",)
    onnx = ("Squeeze",)
    placed_as = MOVED
    cases = (
        Case([(1, 3, 1, 2)], {"axes": [0, -2]}),
        Case([(1, 3, 1)]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axes = integers(node, inputs, "axes", 1)
        return [np.squeeze(inputs[0], None if axes is None else tuple(axes))]
