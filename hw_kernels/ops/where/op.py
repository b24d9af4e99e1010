"""Where on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class Where(HostOp):
    """y = condition ? a : b"""

    names = ("Where",)
    onnx = ("Where",)
    cases = (Case([(2, 1), (1, 3), (2, 3)]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.where(inputs[0], inputs[1], inputs[2])]
