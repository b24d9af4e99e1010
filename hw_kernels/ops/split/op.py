"""Split on the CPU partition: sizes as attribute (opset 11), input (opset 13), num_outputs (opset 18), or equal parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp, integers
from npuforge.hw_kernels.operator import Case, register


@register
class Split(Mover, HostOp):
    """consecutive parts along one axis"""

    names = ("Split",)
    onnx = ("Split",)
    cases = (Case([(1, 6, 2)], {"axis": 1, "split": [6]}), Case([(1, 6, 2)], {"axis": 1, "split": [2, 4]}, outputs=2))

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axis, parts = int(node.attrs.get("axis", 0)), len(node.outputs)
        sizes = integers(node, inputs, "split", 1)
        if sizes is None:
            size = -(-np.shape(inputs[0])[axis] // parts)
            return [
                np.take(inputs[0], range(size * i, min(size * (i + 1), np.shape(inputs[0])[axis])), axis)
                for i in range(parts)
            ]
        return list(np.split(inputs[0], np.cumsum(sizes)[:-1], axis))
