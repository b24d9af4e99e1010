"""CustomGELU on the CPU partition; on the NPU it is an Affine with this activation."""

from __future__ import annotations

from typing import Any

from npuforge.hw_kernels.dsl.kernel import kernel, vadd, vadds, vmaxs, vmins, vmul, vmuls, vtanh
from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@kernel
def custom_gelu(x: Any) -> Any:
    """The same for the NPU DSL."""
    bounded = vmins(vmaxs(x, -100.0), 100.0)  # beyond, tanh is +-1 to the last bit
    cube = vmul(vmul(bounded, bounded), bounded)
    inner = vmuls(vadd(bounded, vmuls(cube, 0.044715)), 0.7978845608028654)
    return vmul(vmuls(x, 0.5), vadds(vtanh(inner), 1.0))


@register
class CustomGELU(Unary):
    """y = 0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))"""

    names = ("com.example::CustomGELU",)
    host_types = ("float32",)
    attributes = ()
    onnx = ("com.example::CustomGELU",)
    formula = FORMULAS["CustomGELU"]
    dsl = custom_gelu
    cases = (Case([(1, 3, 4, 5)]), Case([(2, 1, 1, 1)], why="one channel, one pixel, two images"))
