"""Softmax and LogSoftmax on the CPU partition, along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register
from npuforge.hw_kernels.ops.softmax.fixed import KERNEL


@register
class Softmax(HostOp):
    """y = exp(x) / sum of exp(x) along `axis`"""

    kernel = KERNEL
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

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """y (dy - sum of y dy along the axis)."""
        axis = int(node.attrs.get("axis", -1))
        y, dy = self.compute(node, [np.asarray(inputs[0], np.float64)])[0], output_gradients[0]
        return [y * (dy - (y * dy).sum(axis, keepdims=True))]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Of v . y (dy - y.dy), by the rule above applied to both factors."""
        axis, v, dy = int(node.attrs.get("axis", -1)), np.asarray(directions[0]), output_gradients[0]
        y = self.compute(node, [np.asarray(inputs[0], np.float64)])[0]
        of_y = v * dy - v * (y * dy).sum(axis, keepdims=True) - dy * (v * y).sum(axis, keepdims=True)
        dx = self.gradient(node, inputs, [of_y])[0]
        return [dx], [y * (v - (y * v).sum(axis, keepdims=True))]


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

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """dy - softmax(x) * sum of dy along the axis."""
        axis = int(node.attrs.get("axis", -1))
        y, dy = np.exp(self.compute(node, [np.asarray(inputs[0], np.float64)])[0]), output_gradients[0]
        return [dy - y * dy.sum(axis, keepdims=True)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Of v . (dy - y * sum of dy): y moves as softmax does."""
        axis, v, dy = int(node.attrs.get("axis", -1)), np.asarray(directions[0]), output_gradients[0]
        y = np.exp(self.compute(node, [np.asarray(inputs[0], np.float64)])[0])
        weighed = (v * y).sum(axis, keepdims=True)
        return [-dy.sum(axis, keepdims=True) * y * (v - weighed)], [v - weighed]
