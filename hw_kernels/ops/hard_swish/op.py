"""HardSwish on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class HardSwish(Unary):
    """y = x * clip(x/6 + 1/2, 0, 1)"""

    names = ("HardSwish",)
    onnx = ("HardSwish",)
    formula = FORMULAS["HardSwish"]
    cases = (Case([(1, 3, 4, 5)]),)
