"""Log on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Log(Unary):
    """y = ln(x)"""

    names = ("Log",)
    onnx = ("Log",)
    placed_as = "part of a written-out Mish on the NPU"
    formula = FORMULAS["Log"]
    cases = (Case([(1, 3, 4, 5)], values=lambda random: [random.uniform(0.1, 4.0, (1, 3, 4, 5))]),)
