"""ThresholdedRelu on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class ThresholdedRelu(Unary):
    """y = x where x > alpha, else 0"""

    names = ("ThresholdedRelu",)
    onnx = ("ThresholdedRelu",)
    formula = FORMULAS["ThresholdedRelu"]
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.3}),)
