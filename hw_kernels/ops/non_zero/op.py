"""NonZero on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class NonZero(Deployed):
    """the positions of all elements that are not 0, one column each, in order"""

    names = ("NonZero",)
    onnx = ("NonZero",)
    shape_from_values = True
    cases = (Case([(2, 3)], values=lambda random: [np.array([[0.0, 1.0, -2.0], [0.0, 0.0, 3.0]])]),)

    def output_types(self, node: Node, types: list[str]) -> list[str]:
        return ["int64"]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.array(np.nonzero(inputs[0]), np.int64)]
