"""LayerNormalization on the CPU partition: mean and variance over the axes from `axis` on."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import unbroadcast
from npuforge.hw_kernels.host import HostOp, optional
from npuforge.hw_kernels.normalise import normalise, normalise_gradient
from npuforge.hw_kernels.operator import Case, Gradients, register


@register
class LayerNormalization(HostOp):
    """y = scale * (x - mean) / sqrt(variance + epsilon) + bias over the axes from `axis` on"""

    names = ("LayerNormalization",)
    onnx = ("LayerNormalization",)
    cases = (
        Case([(2, 3, 8)], constants=[(8,), (8,)]),
        Case([(2, 3, 4, 5)], {"axis": 1, "epsilon": 1e-3}, [(3, 4, 5)], why="three axes, no bias"),
        Case([(3, 1)], constants=[(1,), (1,)], why="one value: its variance is 0"),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x = inputs[0]
        axes = tuple(range(int(node.attrs.get("axis", -1)) % x.ndim, x.ndim))
        y = normalise(x, axes, float(node.attrs.get("epsilon", 1e-5)))[0] * inputs[1]
        return [y if optional(inputs, 2) is None else y + inputs[2]]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Of x, scale and bias."""
        x, dy = np.asarray(inputs[0], np.float64), output_gradients[0]
        axes = tuple(range(int(node.attrs.get("axis", -1)) % x.ndim, x.ndim))
        normalised, inverse = normalise(x, axes, float(node.attrs.get("epsilon", 1e-5)))
        dx = normalise_gradient(dy * inputs[1], normalised, inverse, axes)
        results: Gradients = [dx, unbroadcast(dy * normalised, np.shape(inputs[1]))]
        return results if optional(inputs, 2) is None else [*results, unbroadcast(dy, np.shape(inputs[2]))]
