"""ScatterElements on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import REDUCTIONS, Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class ScatterElements(Deployed):
    """a copy of the data with single elements replaced or reduced into (`reduction`), in order"""

    names = ("ScatterElements",)
    onnx = ("ScatterElements",)
    shape_from_values = True
    cases = (
        Case(
            [(3, 4), (2, 3), (2, 3)],
            {"axis": 1},
            values=lambda random: [
                random.normal(size=(3, 4)),
                np.array([[0, 3, -2], [1, 0, 2]]),
                random.normal(size=(2, 3)),
            ],
        ),
        *(
            Case(
                [(4,), (3,), (3,)],
                {"reduction": kind},
                values=lambda random: [random.normal(size=4), np.array([1, 1, -1]), random.normal(size=3)],
            )
            for kind in ("add", "mul", "max", "min")
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        data, indices, updates = np.array(inputs[0]), np.asarray(inputs[1]), inputs[2]
        axis, combine = int(node.attrs.get("axis", 0)) % data.ndim, REDUCTIONS[node.attrs.get("reduction", "none")]
        for position in np.ndindex(indices.shape):
            target = list(position)
            target[axis] = indices[position]
            data[tuple(target)] = combine(data[tuple(target)], updates[position])
        return [data]
