"""GatherND on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class GatherND(Mover, HostOp):
    """behind `batch_dims` shared axes, the last axis of the indices addresses axes of the data"""

    names = ("GatherND",)
    onnx = ("GatherND",)

    cases = (
        Case([(3, 2)], constants=[(2, 1)], values=lambda random: [random.normal(size=(3, 2)), np.array([[2], [0]])]),
        Case(
            [(2, 3, 2)],
            {"batch_dims": 1},
            [(2, 1)],
            values=lambda random: [random.normal(size=(2, 3, 2)), np.array([[2], [-1]])],
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        indices, batch = np.asarray(inputs[1], np.int64), int(node.attrs.get("batch_dims", 0))
        own = np.ix_(*(np.arange(d) for d in indices.shape[:batch]))  # each batch position addresses itself
        shared = tuple(i.reshape(*i.shape, *[1] * (indices.ndim - 1 - batch)) for i in own)
        return [inputs[0][(*shared, *np.moveaxis(indices, -1, 0))]]
