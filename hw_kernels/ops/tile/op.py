"""Tile on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp, integers
from npuforge.hw_kernels.operator import register


@register
class Tile(HostOp):
    """the input repeated along every axis"""

    names = ("Tile",)
    onnx = ("Tile",)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.tile(inputs[0], integers(node, inputs, "repeats", 1) or [])]
