"""Max and Min of any number of inputs on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import unbroadcast
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register


class Extreme(HostOp):
    """What Max and Min share."""

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """To the inputs that hold the extreme, in equal shares."""
        shares = self._shares(node, inputs)
        return [unbroadcast(output_gradients[0] * s, np.shape(x)) for x, s in zip(inputs, shares, strict=True)]

    def _shares(self, node: Node, inputs: list[Any]) -> list[np.ndarray]:
        result = self.compute(node, inputs)[0]
        hits = [np.broadcast_to(x == result, result.shape) for x in inputs]
        return [hit / np.sum(hits, axis=0) for hit in hits]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Linear between the places where inputs are equal."""
        pairs = zip(self._shares(node, inputs), directions, strict=True)
        of_dy = sum(share * v for share, v in pairs if v is not None)
        return [np.zeros(np.shape(x)) for x in inputs], [np.asarray(of_dy)]


@register
class Max(Extreme):
    """y = the largest of all inputs"""

    names = ("Max",)
    onnx = ("Max",)
    placed_as = "Clip or Relu on the NPU with one number, LeakyRelu as Max(x, a*x)"
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
    placed_as = "Clip on the NPU with one number"
    cases = (Case([(2, 3, 4), (3, 1), (4,)]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        result = inputs[0]
        for x in inputs[1:]:
            result = np.minimum(result, x)
        return [result]
