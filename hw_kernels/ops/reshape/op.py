"""Reshape on the CPU partition: a view; 0 copies a dimension (unless allowzero), one -1 is computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp, integers
from npuforge.hw_kernels.operator import Case, register


@register
class Reshape(Mover, HostOp):
    """the same elements under another shape"""

    names = ("Reshape",)
    onnx = ("Reshape",)
    shape_from_values = True
    cases = (
        Case([(2, 3, 4)], constants=[(2,)], values=lambda r: [r.normal(size=(2, 3, 4)), np.array([0, -1])]),
        Case([(2, 3, 4)], constants=[(2,)], values=lambda r: [r.normal(size=(2, 3, 4)), np.array([4, 6])]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        shape = integers(node, inputs, "shape", 1) or []
        if not node.attrs.get("allowzero", 0):
            shape = [np.shape(inputs[0])[i] if dim == 0 else dim for i, dim in enumerate(shape)]
        return [np.reshape(inputs[0], shape)]
