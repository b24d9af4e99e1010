"""Shape and Size on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class ShapeOf(HostOp):
    """the dimensions, from `start` to `end`"""

    names = ("Shape",)
    onnx = ("Shape",)
    cases = (Case([(1, 2, 3)], {"start": 1}),)
    no_gradient = "sizes do not depend on values"

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        shape = np.shape(inputs[0])
        return [np.asarray(shape[node.attrs.get("start", 0) : node.attrs.get("end", len(shape))], np.int64)]


@register
class Size(HostOp):
    """the number of elements"""

    names = ("Size",)
    onnx = ("Size",)
    cases = (Case([(1, 2, 3)]),)
    no_gradient = "sizes do not depend on values"

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.asarray(np.size(inputs[0]), np.int64)]
