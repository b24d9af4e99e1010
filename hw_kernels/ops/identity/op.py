"""Identity and Dropout (inference, with its mask) on the CPU partition."""

from __future__ import annotations

from typing import Any

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import DROPPED, HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class Identity(Mover, HostOp):
    """y = x"""

    names = ("Identity", "Dropout")
    onnx = ("Identity", "Dropout")
    placed_as = DROPPED
    cases = (Case([(1, 3, 4)]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [inputs[0]]
