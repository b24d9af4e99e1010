"""Pow on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Binary
from npuforge.hw_kernels.operator import Case, register


@register
class Pow(Binary):
    """y = a ** b"""

    names = ("Pow",)
    onnx = ("Pow",)
    cases = (Case([(2, 3, 4), (3, 1)]), Case([(1, 4), (1, 4)]))

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.power(a, b)
