"""OneHot on the CPU partition, constant depth."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class OneHot(Deployed):
    """values[1] where the new axis equals the index (negative: from the end), values[0] elsewhere"""

    names = ("OneHot",)
    onnx = ("OneHot",)
    shape_from_values = True
    cases = (
        Case(
            [(2, 3)],
            constants=[(), (2,)],
            values=lambda random: [random.integers(-5, 5, (2, 3)), np.array(4), np.array([0.5, 2.0])],
        ),
        Case(
            [(3,)],
            {"axis": 0},
            [(), (2,)],
            values=lambda random: [np.array([0, 2, 7]), np.array(3), np.array([0.0, 1.0])],
        ),
    )

    def output_types(self, node: Node, types: list[str]) -> list[str]:
        return [types[2]]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        depth = int(np.ravel(inputs[1])[0])
        indices = np.asarray(inputs[0]).astype(np.int64)
        indices = np.where(indices < 0, indices + depth, indices)
        hit = indices[..., None] == np.arange(depth)
        return [np.moveaxis(np.where(hit, inputs[2][1], inputs[2][0]), -1, int(node.attrs.get("axis", -1)))]
