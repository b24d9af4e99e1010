"""ClipSigmoid on the CPU partition; on the NPU it is an Affine with this activation."""

from __future__ import annotations

from typing import Any

from npuforge.hw_kernels.dsl.kernel import kernel, vmaxs, vmins, vsigmoid
from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@kernel
def clip_sigmoid(x: Any) -> Any:
    """The same for the NPU DSL."""
    return vmins(vmaxs(vsigmoid(x), 0.1), 0.9)


@register
class ClipSigmoid(Unary):
    """y = min(max(sigmoid(x), 0.1), 0.9)"""

    names = ("npuforge::ClipSigmoid",)
    host_types = ("float32",)
    attributes = ()
    onnx = ("npuforge::ClipSigmoid",)
    formula = FORMULAS["ClipSigmoid"]
    dsl = clip_sigmoid
    cases = (Case([(1, 3, 4, 5)]), Case([(2, 1, 1, 1)], why="one channel, one pixel, two images"))
