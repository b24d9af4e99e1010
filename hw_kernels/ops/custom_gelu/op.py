"""CustomGELU on the CPU partition; on the NPU it is an Affine with this activation."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class CustomGELU(Unary):
    """y = 0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))"""

    names = ("com.example::CustomGELU",)
    onnx = ("com.example::CustomGELU",)
    formula = FORMULAS["CustomGELU"]
    cases = (Case([(1, 3, 4, 5)]), Case([(2, 1, 1, 1)], why="one channel, one pixel, two images"))
