"""LayerNormalization and RMSNormalization on the CPU partition, over the axes from `axis` on."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import unbroadcast
from npuforge.hw_kernels.host import Deployed, HostOp, optional
from npuforge.hw_kernels.normalise import Scaled, normalise, normalise_gradient
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register
from npuforge.hw_kernels.ops.layer_normalization.fixed import KERNEL, KERNEL_BF16, KERNEL_INT8


@register
class LayerNormalization(HostOp):
    """y = scale * (x - mean) / sqrt(variance + epsilon) + bias over the axes from `axis` on"""

    kernel = KERNEL
    kernel_int8 = KERNEL_INT8
    kernel_bf16 = KERNEL_BF16
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

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """By `Scaled`, axes from `axis` on."""
        x, dy = np.asarray(inputs[0], np.float64), output_gradients[0]
        axes = tuple(range(int(node.attrs.get("axis", -1)) % x.ndim, x.ndim))
        normalised, inverse = normalise(x, axes, float(node.attrs.get("epsilon", 1e-5)))
        v = [np.zeros(np.shape(i)) if d is None else d for i, d in zip(inputs, directions, strict=True)]
        v_bias = v[2] if optional(inputs, 2) is not None else np.zeros(1)
        layer = Scaled(normalised, inverse, axes, np.asarray(inputs[1], np.float64))
        of_x, of_scale, of_dy = layer.second(dy, v[0], v[1], v_bias)
        results: Gradients = [of_x, unbroadcast(of_scale, np.shape(inputs[1]))]
        return results if len(inputs) < 3 else [*results, np.zeros(np.shape(inputs[2]))], [of_dy]


@register
class RMSNormalization(Deployed):
    """y = scale * x / sqrt(mean of x^2 + epsilon) over the axes from `axis` on"""

    kernel_int8 = KERNEL_INT8
    kernel_bf16 = KERNEL_BF16
    names = ("RMSNormalization",)
    onnx = ("RMSNormalization",)
    cases = (Case([(2, 3, 8)], constants=[(8,)]), Case([(2, 3, 4, 5)], {"axis": 1, "epsilon": 1e-3}, [(3, 4, 5)]))

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x = inputs[0]
        axes = tuple(range(int(node.attrs.get("axis", -1)) % x.ndim, x.ndim))
        return [inputs[1] * x / np.sqrt((x * x).mean(axes, keepdims=True) + float(node.attrs.get("epsilon", 1e-5)))]
