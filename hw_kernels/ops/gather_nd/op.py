"""GatherND on the CPU partition (batch_dims 0)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class GatherND(Mover, HostOp):
    """the last axis of the indices addresses leading axes of the data"""

    names = ("GatherND",)
    onnx = ("GatherND",)

    cases = (
        Case([(3, 2)], constants=[(2, 1)], values=lambda random: [random.normal(size=(3, 2)), np.array([[2], [0]])]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [inputs[0][tuple(np.moveaxis(np.asarray(inputs[1], np.int64), -1, 0))]]
