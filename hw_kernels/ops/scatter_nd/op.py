"""ScatterND on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import REDUCTIONS, HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class ScatterND(Mover, HostOp):
    """a copy of the data with the addressed slices replaced or reduced into (`reduction`), in order"""

    names = ("ScatterND",)
    onnx = ("ScatterND",)

    cases = (
        Case(
            [(4, 3)],
            constants=[(2, 1), (2, 3)],
            values=lambda random: [random.normal(size=(4, 3)), np.array([[3], [1]]), random.normal(size=(2, 3))],
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        result, indices = np.array(inputs[0]), np.asarray(inputs[1], np.int64)
        combine = REDUCTIONS[node.attrs.get("reduction", "none")]
        for position in np.ndindex(*indices.shape[:-1]):
            place = tuple(indices[position])
            result[place] = combine(result[place], inputs[2][position])
        return [result]
