"""Mod on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Binary
from npuforge.hw_kernels.operator import Case, register


@register
class Mod(Binary):
    """y = a mod b, sign of the divisor; fmod = 1: sign of the dividend"""

    names = ("Mod",)
    onnx = ("Mod",)
    no_gradient = "remainders are taken of positions and sizes; the derivative jumps"
    cases = (Case([(2, 3, 4), (3, 1)], {"fmod": 1}), Case([(1, 4), (1, 4)], {"fmod": 1}))

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.fmod(a, b) if node.attrs.get("fmod", 0) else np.mod(a, b)
