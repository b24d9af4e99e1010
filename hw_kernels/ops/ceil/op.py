"""Ceil on the CPU partition."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Step
from npuforge.hw_kernels.operator import Case, register


@register
class Ceil(Step):
    """y = the smallest integer not below x"""

    names = ("Ceil",)
    onnx = ("Ceil",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> np.ndarray:
        return np.asarray(np.ceil(x))
