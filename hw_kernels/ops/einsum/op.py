"""Einsum on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class Einsum(Deployed):
    """the sum of products that the equation names"""

    names = ("Einsum",)
    host_types = ("float32",)
    onnx = ("Einsum",)
    cases = (
        Case([(2, 3, 4), (2, 4, 5)], {"equation": "bij,bjk->bik"}),
        Case([(3, 4)], {"equation": "ij->ji"}),
        Case([(3, 3)], {"equation": "ii->i"}, why="a diagonal"),
        Case([(2, 3, 4), (4,)], {"equation": "...i,i"}, why="implicit result with an ellipsis"),
        Case(
            [(2, 1, 3), (4, 3, 5), (5,)],
            {"equation": "b...i,...ij,j->b..."},
            why="three operands, a broadcast ellipsis",
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.einsum(str(node.attrs["equation"]), *inputs)]
