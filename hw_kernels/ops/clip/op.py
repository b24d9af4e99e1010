"""Clip on the CPU partition: limits as attributes or as scalar inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp, optional
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register

LARGEST = float(np.finfo(np.float32).max)  # ONNX's limits where none are given: infinities become the largest float


@register
class Clip(HostOp):
    """y = min(max(x, low), high)"""

    names = ("Clip",)
    onnx = ("Clip",)
    cases = (
        Case([(1, 3, 4, 5)], {"min": -0.5, "max": 0.7}),
        Case([(2, 3)], {"max": 0.1}),
        Case(
            [(2, 3)],
            constants=[(), ()],
            values=lambda random: [random.normal(size=(2, 3)), np.array(-0.25), np.array(0.5)],
            why="limits as inputs",
        ),
    )

    def _limits(self, node: Node, inputs: list[Any]) -> tuple[Any, Any]:
        low = inputs[1] if optional(inputs, 1) is not None else node.attrs.get("min", -LARGEST)
        high = inputs[2] if optional(inputs, 2) is not None else node.attrs.get("max", LARGEST)
        return low, high

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        low, high = self._limits(node, inputs)
        return [np.minimum(np.maximum(inputs[0], low), high)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """1 strictly inside the limits (0 for NaN, as PyTorch's clamp); limits given as inputs get what they replace."""
        x, dy = np.asarray(inputs[0], np.float64), output_gradients[0]
        low, high = self._limits(node, inputs)
        limits = [np.asarray((dy * (x < low)).sum()), np.asarray((dy * (x > high)).sum())]
        given = [g if optional(inputs, i) is not None else None for i, g in enumerate(limits, start=1)]
        return [dy * ((x > low) & (x < high)), *given][: len(inputs)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Linear between the limits."""
        x = np.asarray(inputs[0], np.float64)
        low, high = self._limits(node, inputs)
        v, v_low, v_high = (0.0 if v is None else v for v in (*directions, None, None)[:3])
        of_dy = v * ((x > low) & (x < high)) + v_low * (x < low) + v_high * (x > high)
        return [None if i is None else np.zeros(np.shape(i)) for i in inputs], [of_dy]
