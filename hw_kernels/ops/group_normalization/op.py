"""GroupNormalization and InstanceNormalization on the CPU partition: mean and variance over the channels of a group and the map."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed, HostOp
from npuforge.hw_kernels.normalise import Scaled, normalise, normalise_gradient
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register
from npuforge.hw_kernels.ops.group_normalization.fixed import KERNEL, KERNEL_BF16, KERNEL_INT8


@register
class GroupNormalization(HostOp):
    """y = scale[c] * (x - mean) / sqrt(variance + epsilon) + bias[c], mean and variance of each image's num_groups groups of channels"""

    kernel = KERNEL
    kernel_int8 = KERNEL_INT8
    kernel_bf16 = KERNEL_BF16
    names = ("GroupNormalization",)
    onnx = ("GroupNormalization",)
    cases = (
        Case([(2, 6, 3, 4)], {"num_groups": 3}, [(6,), (6,)]),
        Case([(1, 4, 5)], {"num_groups": 1, "epsilon": 1e-2}, [(4,), (4,)], why="one group"),
        Case([(2, 3, 2, 2)], {"num_groups": 3}, [(3,), (3,)], why="one channel a group"),
    )

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        groups = int(node.attrs["num_groups"])
        if groups < 1 or shapes[0][1] % groups or any(s != (shapes[0][1],) for s in shapes[1:3]):
            raise ModelError(
                f"node {node.name}: {groups} groups do not divide {shapes[0][1]} channels, or scale and bias {shapes[1:3]} are not per channel"
            )
        return [shapes[0]]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        normalised, _ = self._groups(node, inputs[0])
        shape = (-1, *[1] * (inputs[0].ndim - 2))
        return [normalised.reshape(inputs[0].shape) * inputs[1].reshape(shape) + inputs[2].reshape(shape)]

    def _groups(self, node: Node, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        groups = int(node.attrs["num_groups"])
        grouped = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
        return normalise(grouped, (2,), float(node.attrs.get("epsilon", 1e-5)))

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Of x, scale and bias."""
        x, dy = np.asarray(inputs[0], np.float64), output_gradients[0]
        normalised, inverse = self._groups(node, x)
        axes, shape = (0, *range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
        scaled = (dy * np.asarray(inputs[1]).reshape(shape)).reshape(normalised.shape)
        dx = normalise_gradient(scaled, normalised, inverse, (2,)).reshape(x.shape)
        return [dx, (dy * normalised.reshape(x.shape)).sum(axes), dy.sum(axes)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """By `Scaled`, on groups."""
        x, dy = np.asarray(inputs[0], np.float64), output_gradients[0]
        normalised, inverse = self._groups(node, x)
        axes, shape = (0, *range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
        v = [np.zeros(np.shape(i)) if d is None else d for i, d in zip(inputs, directions, strict=True)]

        def grouped(values: np.ndarray) -> np.ndarray:
            return np.broadcast_to(values.reshape(shape), x.shape).reshape(normalised.shape)

        layer = Scaled(normalised, inverse, (2,), grouped(np.asarray(inputs[1], np.float64)))
        found = layer.second(dy.reshape(normalised.shape), v[0].reshape(normalised.shape), grouped(v[1]), grouped(v[2]))
        of_x, of_scale, of_dy = (f.reshape(x.shape) for f in found)
        return [of_x, of_scale.sum(axes), np.zeros(np.shape(inputs[2]))], [of_dy]


@register
class InstanceNormalization(Deployed):
    """y = scale[c] * (x - mean) / sqrt(variance + epsilon) + bias[c], mean and variance of every map"""

    kernel_int8 = KERNEL_INT8
    kernel_bf16 = KERNEL_BF16
    names = ("InstanceNormalization",)
    onnx = ("InstanceNormalization",)
    cases = (Case([(2, 3, 4, 5)], constants=[(3,), (3,)]), Case([(1, 2, 30)], {"epsilon": 1e-2}, [(2,), (2,)]))

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, shape = inputs[0], (-1, *[1] * (inputs[0].ndim - 2))
        normalised = normalise(x, tuple(range(2, x.ndim)), float(node.attrs.get("epsilon", 1e-5)))[0]
        return [normalised * inputs[1].reshape(shape) + inputs[2].reshape(shape)]
