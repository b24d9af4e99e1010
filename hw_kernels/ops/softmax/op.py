"""Softmax and LogSoftmax on the CPU partition, along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register
from npuforge.hw_kernels.ops.softmax.fixed import KERNEL, KERNEL_BF16, KERNEL_INT8


def _wide_logits(random: np.random.Generator) -> list[np.ndarray]:
    logits = random.normal(0.0, 1.0, (2, 8, 3)) * np.array([1e5, 1e3, 300, 30, 10, 3, 1, 0.1])[:, None]
    return [logits]


@register
class Softmax(HostOp):
    """y = exp(x) / sum of exp(x) along `axis`"""

    kernel = KERNEL
    kernel_int8 = KERNEL_INT8
    kernel_bf16 = KERNEL_BF16
    names = ("Softmax",)
    onnx = ("Softmax",)
    cases = (
        Case([(1, 3, 5)], {"axis": 1}),
        Case([(2, 4)]),
        Case([(1, 4, 16, 6)], {"axis": 2}, why="a box head's bins: 4 sides of 16, 6 boxes"),
        Case([(2, 17, 3, 2)], {"axis": 3}, why="along pixels, one channel more than a block, two images"),
        Case([(1, 21, 2, 3)], {"axis": 1}, why="class scores of a map"),
        Case([(3, 1, 1, 1)], {"axis": 1}, why="one channel, one pixel"),
        Case([(2, 8, 3)], {"axis": 2}, values=_wide_logits, why="logits of unlike channels, up to 1e5"),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axis = int(node.attrs.get("axis", -1))
        shifted = inputs[0] - inputs[0].max(axis, keepdims=True, initial=-np.inf)
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
        shifted = inputs[0] - inputs[0].max(axis, keepdims=True, initial=-np.inf)
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
