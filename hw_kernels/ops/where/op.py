"""Where on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


def _condition(random: np.random.Generator) -> list[Any]:
    return [random.random((2, 1)) < 0.5, random.normal(size=(1, 3)), random.normal(size=(2, 3))]


@register
class Where(Mover, HostOp):
    """y = condition ? a : b"""

    names = ("Where",)
    onnx = ("Where",)
    cases = (Case([(2, 1), (1, 3), (2, 3)], values=_condition),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.where(inputs[0], inputs[1], inputs[2])]
