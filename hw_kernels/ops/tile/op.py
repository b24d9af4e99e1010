"""Tile on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import DROPPED, HostOp, integers
from npuforge.hw_kernels.operator import Case, register


@register
class Tile(Mover, HostOp):
    """the input repeated along every axis"""

    names = ("Tile",)
    onnx = ("Tile",)
    placed_as = DROPPED

    shape_from_values = True
    cases = (Case([(2, 3)], constants=[(2,)], values=lambda r: [r.normal(size=(2, 3)), np.array([2, 3])]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.tile(inputs[0], integers(node, inputs, "repeats", 1) or [])]
