"""Max and Min of any number of inputs on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import unbroadcast
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, register


class Extreme(HostOp):
    """What Max and Min share."""

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """To the inputs that hold the extreme, in equal shares."""
        result = self.compute(node, inputs)[0]
        hits = [np.broadcast_to(x == result, result.shape) for x in inputs]
        share = output_gradients[0] / np.sum(hits, axis=0)
        return [unbroadcast(share * hit, np.shape(x)) for x, hit in zip(inputs, hits, strict=True)]


@register
class Max(Extreme):
    """y = the largest of all inputs"""

    names = ("Max",)
    onnx = ("Max",)
    cases = (Case([(2, 3, 4), (3, 1), (4,)]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        result = inputs[0]
        for x in inputs[1:]:
            result = np.maximum(result, x)
        return [result]


@register
class Min(Extreme):
    """y = the smallest of all inputs"""

    names = ("Min",)
    onnx = ("Min",)
    cases = (Case([(2, 3, 4), (3, 1), (4,)]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        result = inputs[0]
        for x in inputs[1:]:
            result = np.minimum(result, x)
        return [result]
