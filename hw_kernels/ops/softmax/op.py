"""Softmax and LogSoftmax on the CPU partition, along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register


@register
class Softmax(HostOp):
    """y = exp(x) / sum of exp(x) along `axis`"""

    names = ("Softmax",)
    onnx = ("Softmax",)
    cases = (
        Case([(1, 3, 5)], {"axis": 1}),
        Case([(2, 4)]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axis = int(node.attrs.get("axis", -1))
        shifted = inputs[0] - inputs[0].max(axis, keepdims=True)
        total = np.exp(shifted).sum(axis, keepdims=True)
        return [np.exp(shifted) / total]


@register
class LogSoftmax(HostOp):
    """y = x - ln(sum of exp(x)) along `axis`"""

    names = ("LogSoftmax",)
    onnx = ("LogSoftmax",)
    cases = (
        Case([(1, 3, 5)], {"axis": 1}),
        Case([(2, 4)]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axis = int(node.attrs.get("axis", -1))
        shifted = inputs[0] - inputs[0].max(axis, keepdims=True)
        total = np.exp(shifted).sum(axis, keepdims=True)
        return [shifted - np.log(total)]
