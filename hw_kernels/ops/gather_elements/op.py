"""GatherElements on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class GatherElements(Mover, HostOp):
    """y[i][j] = x[index[i][j]][j] for axis 0, and so on"""

    names = ("GatherElements",)
    onnx = ("GatherElements",)

    cases = (
        Case(
            [(3, 2)],
            {"axis": 0},
            [(2, 2)],
            values=lambda random: [random.normal(size=(3, 2)), np.array([[0, 2], [-1, 2]])],
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axis = int(node.attrs.get("axis", 0))
        data, indices = inputs[0], np.asarray(inputs[1], np.int64)
        grid: list[Any] = list(np.indices(indices.shape))
        grid[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
        return [data[tuple(grid)]]
