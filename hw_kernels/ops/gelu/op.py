"""Gelu on the CPU partition, exact or in the tanh form."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Activation, Node
from npuforge.hw_kernels.activations import apply_activation
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Gelu(Unary):
    """y = x/2 * (1 + erf(x / sqrt(2))); approximate = tanh: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))"""

    names = ("Gelu",)
    onnx = ("Gelu",)
    cases = (Case([(1, 3, 4, 5)]), Case([(1, 3, 4, 5)], {"approximate": "tanh"}))

    def function(self, x: np.ndarray, node: Node) -> np.ndarray:
        kind = "CustomGELU" if node.attrs.get("approximate") == "tanh" else "Gelu"
        return apply_activation(x, Activation(kind))
