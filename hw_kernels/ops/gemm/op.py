"""Gemm on the CPU partition."""

from __future__ import annotations

from typing import Any

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp, optional
from npuforge.hw_kernels.operator import Case, register


@register
class Gemm(HostOp):
    """y = alpha * A * B + beta * C"""

    names = ("Gemm",)
    onnx = ("Gemm",)
    cases = (
        Case([(4, 6)], {"transB": 1, "alpha": 0.5, "beta": 2.0}, constants=[(5, 6), (5,)]),
        Case([(4, 6)], {"transA": 1}, constants=[(4, 3)]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        a = inputs[0].T if node.attrs.get("transA", 0) else inputs[0]
        b = inputs[1].T if node.attrs.get("transB", 0) else inputs[1]
        product = node.attrs.get("alpha", 1.0) * (a @ b)
        c = optional(inputs, 2)
        return [product if c is None else product + node.attrs.get("beta", 1.0) * c]
