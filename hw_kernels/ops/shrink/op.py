"""Shrink on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Shrink(Unary):
    """y = x + bias below -lambd, x - bias above lambd, 0 between"""

    names = ("Shrink",)
    host_types = ("float32",)
    onnx = ("Shrink",)
    formula = FORMULAS["Shrink"]
    cases = (Case([(1, 3, 4, 5)], {"lambd": 0.7, "bias": 0.2}), Case([(20,)]))
