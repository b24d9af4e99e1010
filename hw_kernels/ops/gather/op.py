"""Gather on the CPU partition: slices of one axis; negative indices count from the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import register


@register
class Gather(HostOp):
    """y = x at the indices along `axis`"""

    names = ("Gather",)
    onnx = ("Gather",)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.take(inputs[0], np.asarray(inputs[1], np.int64), int(node.attrs.get("axis", 0)))]
