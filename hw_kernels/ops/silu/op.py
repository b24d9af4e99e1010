"""Silu on the CPU partition; on the NPU it is an Affine with this activation."""

from __future__ import annotations

from typing import Any

from npuforge.hw_kernels.dsl.kernel import kernel, vsilu
from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@kernel
def silu(x: Any) -> Any:
    """The same for the NPU DSL."""
    return vsilu(x)


@register
class Silu(Unary):
    """y = x * sigmoid(x)"""

    names = ("npuforge::Silu",)
    host_types = ("float32",)
    attributes = ()
    onnx = ("npuforge::Silu",)
    formula = FORMULAS["Silu"]
    dsl = silu
    cases = (Case([(1, 3, 4, 5)]), Case([(2, 1, 1, 1)], why="one channel, one pixel, two images"))
