"""Gelu on the CPU partition, exact or in the tanh form."""

from __future__ import annotations

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.formulas import FORMULAS, Formula
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Gelu(Unary):
    """y = x/2 * (1 + erf(x / sqrt(2))); approximate = tanh: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))"""

    names = ("Gelu",)
    onnx = ("Gelu",)
    cases = (Case([(1, 3, 4, 5)]), Case([(1, 3, 4, 5)], {"approximate": "tanh"}))

    def formula_of(self, node: Node) -> Formula:
        return FORMULAS["CustomGELU" if node.attrs.get("approximate") == "tanh" else "Gelu"]
