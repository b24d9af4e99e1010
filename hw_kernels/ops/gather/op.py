"""Gather on the CPU partition: slices of one axis; negative indices count from the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class Gather(Mover, HostOp):
    """y = x at the indices along `axis`"""

    names = ("Gather",)
    onnx = ("Gather",)

    cases = (
        Case(
            [(3, 4)],
            constants=[(2, 2)],
            attrs={"axis": 1},
            values=lambda r: [r.normal(size=(3, 4)), np.array([[0, -1], [2, 1]])],
        ),
        Case([(3, 4)], constants=[(2,)], values=lambda r: [r.normal(size=(3, 4)), np.array([2, 2])], why="a row twice"),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.take(inputs[0], np.asarray(inputs[1], np.int64), int(node.attrs.get("axis", 0)))]
