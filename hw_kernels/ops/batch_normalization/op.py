"""BatchNormalization on the CPU partition, inference and training; folding into a convolution and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.normalise import Scaled, normalise, normalise_gradient
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register


def _values(channels: int, shape: tuple[int, ...]) -> Any:
    def draw(random: np.random.Generator) -> list[Any]:
        normal = [random.normal(0.0, 1.0, s) for s in (shape, (channels,), (channels,), (channels,))]
        return [*normal, random.uniform(0.2, 2.0, channels)]

    return draw


def fold(
    weight: np.ndarray, bias: np.ndarray, parameters: list[np.ndarray], epsilon: float = 1e-5
) -> tuple[np.ndarray, np.ndarray]:
    """Weights [O, ...] and bias [O] of a convolution that includes the batch normalisation behind it (scale, bias, mean, variance [O])."""
    scale, shift, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    factor = scale / np.sqrt(variance + epsilon)
    return weight * factor.reshape(-1, *[1] * (weight.ndim - 1)), (bias - mean) * factor + shift


def unfold(
    weight: np.ndarray, bias: np.ndarray, parameters: list[np.ndarray], epsilon: float = 1e-5
) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `fold`: the convolution in front of a batch normalisation with these parameters. ValueError where a scale is 0."""
    scale, shift, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    if (scale == 0).any():
        raise ValueError(
            f"batch normalisation: scale of channel {int(np.argmax(scale == 0))} is 0, what came before it is lost"
        )
    factor = np.sqrt(variance + epsilon) / scale
    return weight * factor.reshape(-1, *[1] * (weight.ndim - 1)), (bias - shift) * factor + mean


@register
class BatchNormalization(HostOp):
    """y = scale * (x - mean) / sqrt(variance + epsilon) + bias per channel; training_mode = 1 takes mean and variance from the batch"""

    names = ("BatchNormalization",)
    onnx = ("BatchNormalization",)
    cases = (
        Case([(2, 3, 4, 5)], constants=[(3,)] * 4, values=_values(3, (2, 3, 4, 5))),
        Case(
            [(1, 1, 1, 1)], {"epsilon": 1e-3}, [(1,)] * 4, values=_values(1, (1, 1, 1, 1)), why="one channel, one pixel"
        ),
        Case([(4, 2)], constants=[(2,)] * 4, values=_values(2, (4, 2)), why="no map"),
        Case(
            [(3, 2, 4, 4)],
            {"training_mode": 1, "momentum": 0.8},
            [(2,)] * 4,
            values=_values(2, (3, 2, 4, 4)),
            outputs=3,
            why="training: running statistics are the second and third output",
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, epsilon = inputs[0], float(node.attrs.get("epsilon", 1e-5))
        if node.attrs.get("training_mode", 0):
            return self._train(node, inputs, epsilon)
        scale, bias, mean, variance = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in inputs[1:5])
        return [scale * (x - mean) / np.sqrt(variance + epsilon) + bias]

    def _train(self, node: Node, inputs: list[Any], epsilon: float) -> list[Any]:
        x, momentum = inputs[0], float(node.attrs.get("momentum", 0.9))
        axes = (0, *range(2, x.ndim))
        scale, bias = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in inputs[1:3])
        y = normalise(x, axes, epsilon)[0] * scale + bias
        mean = momentum * inputs[3] + (1.0 - momentum) * x.mean(axes)
        variance = momentum * inputs[4] + (1.0 - momentum) * x.var(axes)
        return [y, mean, variance][: len(node.outputs)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Of x, scale, bias, mean and variance. In training the batch's own mean and variance, and with them the running ones, depend on x."""
        x, scale, _, mean, variance = (np.asarray(v, np.float64) for v in inputs)
        axes, shape, dy = (0, *range(2, x.ndim)), (-1, *[1] * (x.ndim - 2)), output_gradients[0]
        epsilon, training = float(node.attrs.get("epsilon", 1e-5)), bool(node.attrs.get("training_mode", 0))
        if training:
            normalised, inverse = normalise(x, axes, epsilon)
            dx = normalise_gradient(dy * scale.reshape(shape), normalised, inverse, axes)
            momentum, count = float(node.attrs.get("momentum", 0.9)), x.size // x.shape[1]
            running = [*output_gradients[1:], *[np.zeros(x.shape[1])] * (3 - len(output_gradients))]
            fresh = [(1.0 - momentum) / count * g.reshape(shape) for g in running]
            dx = dx + fresh[0] + 2.0 * fresh[1] * (x - x.mean(axes, keepdims=True))
            return [dx, (dy * normalised).sum(axes), dy.sum(axes), momentum * running[0], momentum * running[1]]
        inverse = 1.0 / np.sqrt(variance.reshape(shape) + epsilon)
        centred, scaled = x - mean.reshape(shape), dy * scale.reshape(shape) * inverse
        d_variance = -0.5 * (scaled * centred * inverse * inverse).sum(axes)
        return [scaled, (dy * centred * inverse).sum(axes), dy.sum(axes), -scaled.sum(axes), d_variance]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """By `Scaled` in training, running statistics included; at inference of scale * (x - mean) * r, r = 1/sqrt(variance + epsilon)."""
        x, scale, _, mean, variance = (np.asarray(v, np.float64) for v in inputs)
        axes, shape = (0, *range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
        dy, epsilon = output_gradients[0], float(node.attrs.get("epsilon", 1e-5))
        v_x, *rest = (np.zeros(np.shape(i)) if d is None else d for i, d in zip(inputs, directions, strict=True))
        v_scale, v_bias, v_mean, v_variance = (v.reshape(shape) for v in rest)
        wide = scale.reshape(shape)
        if node.attrs.get("training_mode", 0):
            normalised, inverse = normalise(x, axes, epsilon)
            of_x, of_scale, of_dy = Scaled(normalised, inverse, axes, wide).second(dy, v_x, v_scale, v_bias)
            momentum, count = float(node.attrs.get("momentum", 0.9)), x.size // x.shape[1]
            fresh, centred = (1.0 - momentum) / count, x - x.mean(axes, keepdims=True)
            of_running = [
                momentum * rest[2] + fresh * v_x.sum(axes),
                momentum * rest[3] + 2.0 * fresh * (v_x * centred).sum(axes),
            ]
            if len(output_gradients) > 2:
                spread = v_x - v_x.mean(axes, keepdims=True)
                of_x = of_x + 2.0 * fresh * output_gradients[2].reshape(shape) * spread
            zero = np.zeros_like(scale)
            return [of_x, of_scale.sum(axes), zero, zero, zero], [of_dy, *of_running][: len(output_gradients)]
        inverse, centred = 1.0 / np.sqrt(variance.reshape(shape) + epsilon), x - mean.reshape(shape)
        cube = inverse**3
        of_dy = v_x * wide * inverse + v_scale * centred * inverse + v_bias - v_mean * wide * inverse
        of_dy = of_dy - 0.5 * v_variance * wide * centred * cube
        of_x = dy * (v_scale * inverse - 0.5 * v_variance * wide * cube)
        of_scale = (dy * (v_x * inverse - v_mean * inverse - 0.5 * v_variance * centred * cube)).sum(axes)
        of_inverse = (
            dy
            * (v_x * wide + v_scale * centred - v_mean * wide - 1.5 * v_variance * wide * centred * inverse * inverse)
        ).sum(axes)
        of_variance = -0.5 * (variance + epsilon) ** -1.5 * of_inverse
        return [of_x, of_scale, np.zeros_like(scale), -of_x.sum(axes), of_variance], [of_dy]
