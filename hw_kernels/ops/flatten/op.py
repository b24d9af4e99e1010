"""Flatten on the CPU partition: a view as a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import MOVED, HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class Flatten(Mover, HostOp):
    """axes before `axis` and axes from it on become rows and columns"""

    names = ("Flatten",)
    onnx = ("Flatten",)
    placed_as = MOVED
    cases = (
        Case([(2, 3, 4)], {"axis": 2}),
        Case([(2, 3, 4)], {"axis": 0}),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        shape = np.shape(inputs[0])
        axis = int(node.attrs.get("axis", 1))
        rows = int(np.prod(shape[: axis if axis >= 0 else len(shape) + axis], dtype=np.int64))
        return [np.reshape(inputs[0], (rows, -1))]
