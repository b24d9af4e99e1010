"""Pad on the CPU partition: constant, reflect, edge, wrap; pads as attribute (opset 2) or input (opset 11), axes (opset 18)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp, integers, optional
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register


def _filled_with_zero(node: Node) -> Node:
    return replace(node, attrs={k: v for k, v in node.attrs.items() if k != "value"})


@register
class Pad(Mover, HostOp):
    """a border of a value, of the mirrored, the nearest or the opposite elements; negative pads crop"""

    names = ("Pad",)
    onnx = ("Pad",)
    cases = (
        Case([(1, 2, 4, 5)], {"pads": [0, 0, 1, 2, 0, 0, 2, 3], "value": -1.0}),
        Case([(3, 4)], {"pads": [1, 1, 1, 2], "mode": "reflect"}),
        Case([(3, 4)], {"pads": [1, 2, 4, 0], "mode": "wrap"}),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, pads = inputs[0], integers(node, inputs, "pads", 1) or []
        axes = integers(node, inputs, "axes", 3) or list(range(x.ndim))
        widths = [(0, 0)] * x.ndim
        for i, axis in enumerate(axes):
            begin, end = pads[i], pads[i + len(axes)]
            widths[axis] = (max(begin, 0), max(end, 0))
            x = np.take(x, range(max(-begin, 0), x.shape[axis] - max(-end, 0)), axis)
        mode = node.attrs.get("mode", "constant")
        if mode != "constant":
            return [np.pad(x, widths, mode=mode)]
        given = optional(inputs, 2)
        value = node.attrs.get("value", 0.0) if given is None else np.ravel(given)[0]
        return [np.pad(x, widths, mode="constant", constant_values=value)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """As a move; a fill given as an attribute has no gradient."""
        return super().gradient(_filled_with_zero(node), inputs, output_gradients)

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """As a move."""
        return super().second_gradient(_filled_with_zero(node), inputs, output_gradients, directions)
