"""Shrink on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import DeployedUnary
from npuforge.hw_kernels.operator import Case, register


@register
class Shrink(DeployedUnary):
    """y = x + bias below -lambd, x - bias above lambd, 0 between"""

    names = ("Shrink",)
    onnx = ("Shrink",)
    cases = (Case([(1, 3, 4, 5)], {"lambd": 0.7, "bias": 0.2}), Case([(20,)]))

    def function(self, x: np.ndarray, node: Node) -> Any:
        bias, limit = float(node.attrs.get("bias", 0.0)), float(node.attrs.get("lambd", 0.5))
        return np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0.0))
