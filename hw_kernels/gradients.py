"""What operators share to give gradients: undoing broadcasts, operators that only move elements, linear and bilinear operators, fused activations.

`Op.gradient` is the vector-Jacobian product: gradients of all inputs (None for inputs without one) from the gradients of all outputs, float64.
`Op.second_gradient` differentiates that once more: from `directions`, the gradients of what `gradient` returned, those of the inputs and of the
output gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Activation, Node
from npuforge.hw_kernels.activations import activation_curvature, activation_slope
from npuforge.hw_kernels.operator import Gradients, Op, SecondGradients


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """numpy's broadcasting rule, ValueError where shapes do not fit; sizes that a framework holds open stay so (numpy makes numbers of them)."""
    rank = max(len(s) for s in shapes)
    found: list[int] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, start=rank - len(shape)):
            if isinstance(size, int) and size == 1:
                continue
            if isinstance(found[axis], int) and found[axis] == 1:
                found[axis] = size
            elif found[axis] != size:
                raise ValueError(
                    f"shapes {[tuple(s) for s in shapes]} do not broadcast: {found[axis]} and {size} at dimension {axis}"
                )
    return tuple(found)


def unbroadcast(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of an operand of `shape` from that of its broadcast copy: sums over the repeated axes."""
    extra = gradient.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        i + extra for i, size in enumerate(shape) if size == 1 and gradient.shape[i + extra] != 1
    )
    return np.asarray(gradient.sum(axis=axes)).reshape(shape)


def is_float(value: Any) -> bool:
    """Whether an input can have a gradient."""
    return value is not None and np.asarray(value).dtype.kind == "f"


def before_activation(op: Op, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> list[np.ndarray]:
    """Gradients of the outputs before the fused activation (which sits behind output 0)."""
    if node.activation.kind == "none":
        return output_gradients
    plain = op.reference(replace(node, activation=Activation()), inputs)[0]
    return [output_gradients[0] * activation_slope(plain, node.activation), *output_gradients[1:]]


def second_through_activation(
    op: Op, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
) -> SecondGradients:
    """`second_gradient` with a fused activation (behind the one output), by the chain rule over that of the operator alone."""
    plain = replace(node, activation=Activation())
    before, dy = op.reference(plain, inputs)[0], output_gradients[0]
    slope, curvature = activation_slope(before, node.activation), activation_curvature(before, node.activation)
    of_inputs, (of_before,) = op.second_gradient(plain, inputs, [dy * slope], directions)
    through = op.gradient(plain, inputs, [of_before * dy * curvature])
    summed = [b if a is None else a if b is None else a + b for a, b in zip(of_inputs, through, strict=True)]
    return summed, [of_before * slope]


def moved_gradient(op: Op, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
    """For an operator that copies elements (and fills with 0): every input element gets the sum of its copies' gradients.

    The operator itself says where elements go: its reference is run on their numbers, 1, 2, ... (0 is a fill).
    """
    numbers: list[Any] = []
    starts: list[int | None] = []
    count = 1
    for value in inputs:
        if not is_float(value):
            numbers.append(value)
            starts.append(None)
            continue
        size = int(np.size(value))
        numbers.append(np.arange(count, count + size, dtype=np.float64).reshape(np.shape(value)))
        starts.append(count)
        count += size
    total = np.zeros(count)
    for places, gradient in zip(op.reference(node, numbers), output_gradients, strict=True):
        total += np.bincount(places.astype(np.int64).ravel(), np.asarray(gradient, np.float64).ravel(), count)
    return [
        None if start is None else total[start : start + np.size(value)].reshape(np.shape(value))
        for start, value in zip(starts, inputs, strict=True)
    ]


class Linear(Op):
    """Mixin: the outputs are linear in all float inputs together, so the second derivative is that of a fused activation."""

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """d/d(output gradients) is the operator itself."""
        if node.activation.kind != "none":
            return second_through_activation(self, node, inputs, output_gradients, directions)
        moved = [
            (np.zeros(np.shape(x)) if d is None else d) if is_float(x) else x
            for x, d in zip(inputs, directions, strict=True)
        ]
        return [np.zeros(np.shape(x)) if is_float(x) else None for x in inputs], list(self.reference(node, moved))


class Mover(Linear):
    """Mixin: the outputs are copies of float input elements, or 0."""

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Each element gets the sum over its copies."""
        return moved_gradient(self, node, inputs, output_gradients)


class Bilinear(Op):
    """Mixin: y = B(inputs[0], inputs[1]) + L(inputs[2]), B linear in each; behind it a fused activation."""

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """From the operator's own reference and gradient: d(dy) = B(vx, w) + B(x, vw) + L(vb), dx = B'(dy, vw), dw = B'(vx, dy)."""
        if node.activation.kind != "none":
            return second_through_activation(self, node, inputs, output_gradients, directions)
        zeros = [np.zeros(np.shape(x)) if is_float(x) else x for x in inputs]
        v = [z if d is None else np.asarray(d) for z, d in zip(zeros, directions, strict=True)]
        first = self.reference(node, [v[0], inputs[1], *v[2:]])[0]
        second = self.reference(node, [inputs[0], v[1], *zeros[2:]])[0]
        dx = self.gradient(node, [inputs[0], v[1], *inputs[2:]], output_gradients)[0]
        dw = self.gradient(node, [v[0], inputs[1], *inputs[2:]], output_gradients)[1]
        return [dx, dw, *(z if is_float(x) else None for z, x in zip(zeros[2:], inputs[2:], strict=True))], [
            first + second
        ]
