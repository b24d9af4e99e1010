"""Erf on the CPU partition."""

from __future__ import annotations

import math

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Erf(Unary):
    """y = erf(x)"""

    names = ("Erf",)
    onnx = ("Erf",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> np.ndarray:
        return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))
