"""Elu, Selu and Celu on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Elu(Unary):
    """y = x, or alpha * (exp(x) - 1) where x < 0"""

    names = ("Elu",)
    onnx = ("Elu",)
    formula = FORMULAS["Elu"]
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.5}),)


@register
class Selu(Unary):
    """y = gamma * x, or gamma * alpha * (exp(x) - 1) where x <= 0"""

    names = ("Selu",)
    onnx = ("Selu",)
    formula = FORMULAS["Selu"]
    cases = (Case([(1, 3, 4, 5)]),)


@register
class Celu(Unary):
    """y = x, or alpha * (exp(x / alpha) - 1) where x < 0"""

    names = ("Celu",)
    onnx = ("Celu",)
    formula = FORMULAS["Celu"]
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.5}), Case([(1, 3, 4, 5)], {"alpha": 3.0}))
