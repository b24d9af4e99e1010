"""TopK on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp, integers
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register


@register
class TopK(HostOp):
    """the k largest (largest = 0: smallest) along `axis` and their positions, sorted, ties by position, NaN last"""

    names = ("TopK",)
    onnx = ("TopK",)
    cases = (Case([(2, 6)], {"k": 3}, outputs=2),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axis, k = int(node.attrs.get("axis", -1)), (integers(node, inputs, "k", 1) or [0])[0]
        key = -inputs[0] if node.attrs.get("largest", 1) else inputs[0]
        order = np.take(np.argsort(key, axis, kind="stable"), range(k), axis)
        return [np.take_along_axis(inputs[0], order, axis), order][: len(node.outputs)]

    def _order(self, node: Node, inputs: list[Any]) -> tuple[np.ndarray, int]:
        axis, k = int(node.attrs.get("axis", -1)), (integers(node, inputs, "k", 1) or [0])[0]
        x = np.asarray(inputs[0], np.float64)
        key = -x if node.attrs.get("largest", 1) else x
        return np.take(np.argsort(key, axis, kind="stable"), range(k), axis), axis

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """To the elements chosen."""
        order, axis = self._order(node, inputs)
        dx = np.zeros(np.shape(inputs[0]))
        np.put_along_axis(dx, order, output_gradients[0], axis)
        return [dx, *[None] * (len(inputs) - 1)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Linear as long as the same elements are chosen; positions have no derivative."""
        order, axis = self._order(node, inputs)
        v = np.zeros(np.shape(inputs[0])) if directions[0] is None else directions[0]
        of_dys = [np.take_along_axis(v, order, axis), np.zeros(order.shape)][: len(output_gradients)]
        return [np.zeros(np.shape(inputs[0])), *[None] * (len(inputs) - 1)], of_dys
