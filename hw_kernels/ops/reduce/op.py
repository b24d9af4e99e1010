"""The Reduce operators on the CPU partition; axes as attribute or input."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Linear
from npuforge.hw_kernels.host import HostOp, integers
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, register


def _shared(hits: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """1 at the extreme, equal elements sharing it."""
    return np.asarray(hits / hits.sum(axes, keepdims=True))


def _others(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Product of all elements but each one, also where some are 0."""
    zeros = (x == 0).sum(axes, keepdims=True)
    rest = np.where(x == 0, 1.0, x).prod(axes, keepdims=True)
    return np.where(zeros == 0, rest / np.where(x == 0, 1.0, x), np.where((zeros == 1) & (x == 0), rest, 0.0))


def _with_zeros(random: np.random.Generator) -> list[Any]:
    return [np.triu(random.uniform(0.5, 2.0, (4, 4)))]


def _pairs(x: np.ndarray, axes: tuple[int, ...], v: np.ndarray) -> np.ndarray:
    """For each element the sum, over every other one, of v there times the product of all elements but those two; also where some are 0."""
    zero = x == 0
    safe = np.where(zero, 1.0, x)
    rest, count = safe.prod(axes, keepdims=True), zero.sum(axes, keepdims=True)
    of_zeros = np.where(zero, v, 0.0).sum(axes, keepdims=True)
    of_others = np.where(zero, 0.0, v / safe).sum(axes, keepdims=True)
    none = rest / safe * (of_others - v / safe)
    one = np.where(zero, rest * of_others, of_zeros * rest / safe)
    two = np.where(zero, rest * (of_zeros - v), 0.0)
    return np.asarray(np.select([count == 0, count == 1, count == 2], [none, one, two], 0.0))


class Reduction(HostOp):
    """One value of all elements along the axes named, or along all."""

    cases: ClassVar[tuple[Case, ...]] = (
        Case([(1, 3, 4, 5)], {"axes": [2, 3], "keepdims": 1}),
        Case([(2, 3)], {"axes": [-1], "keepdims": 0}),
        Case([(2, 3)]),
    )

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        """The reduction."""
        raise NotImplementedError

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        axes = integers(node, inputs, "axes", 1)
        if not axes:
            if node.attrs.get("noop_with_empty_axes", 0):
                return [inputs[0]]
            axes = list(range(np.ndim(inputs[0])))
        return [self.reduce(inputs[0], tuple(axes), bool(node.attrs.get("keepdims", 1)))]

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Derivative of the result (kept axes) in every element."""
        raise NotImplementedError

    def curve(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...], v: np.ndarray) -> np.ndarray:
        """By how much `spread` changes in the direction v of the elements; 0 for a piecewise-linear reduction."""
        return np.zeros_like(x)

    def _axes(self, node: Node, inputs: list[Any]) -> tuple[int, ...] | None:
        """None: nothing is reduced."""
        axes = tuple(integers(node, inputs, "axes", 1) or ())
        if not axes and node.attrs.get("noop_with_empty_axes", 0):
            return None
        return axes or tuple(range(np.ndim(inputs[0])))

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """The result's gradient times the derivative in each element."""
        x, axes = np.asarray(inputs[0], np.float64), self._axes(node, inputs)
        if axes is None:
            return [output_gradients[0], *[None] * (len(inputs) - 1)]
        y = np.asarray(self.reduce(x, axes, True))
        gradient = np.asarray(output_gradients[0]).reshape(y.shape) * self.spread(x, y, axes)
        return [gradient, *[None] * (len(inputs) - 1)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """`spread` and `curve` in the direction given."""
        x, axes, dy = np.asarray(inputs[0], np.float64), self._axes(node, inputs), np.asarray(output_gradients[0])
        v = np.zeros_like(x) if directions[0] is None else np.asarray(directions[0])
        others: list[np.ndarray | None] = [None] * (len(inputs) - 1)
        if axes is None:
            return [np.zeros_like(x), *others], [v]
        y = np.asarray(self.reduce(x, axes, True))
        of_x = dy.reshape(y.shape) * self.curve(x, y, axes, v)
        return [of_x, *others], [(v * self.spread(x, y, axes)).sum(axes).reshape(dy.shape)]


@register
class ReduceSum(Linear, Reduction):
    """y = sum along the axes"""

    names = ("ReduceSum",)
    onnx = ("ReduceSum",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return x.sum(axes, keepdims=keep)

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.ones_like(x)


@register
class ReduceMean(Linear, Reduction):
    """y = mean along the axes"""

    names = ("ReduceMean",)
    onnx = ("ReduceMean",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return x.mean(axes, keepdims=keep)

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.full_like(x, y.size / x.size)


@register
class ReduceMax(Reduction):
    """y = largest along the axes, NaN ignored"""

    names = ("ReduceMax",)
    onnx = ("ReduceMax",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return np.where(np.isnan(x), -np.inf, x).max(axes, keepdims=keep)

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return _shared(x == y, axes)


@register
class ReduceMin(Reduction):
    """y = smallest along the axes, NaN ignored"""

    names = ("ReduceMin",)
    onnx = ("ReduceMin",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return np.where(np.isnan(x), np.inf, x).min(axes, keepdims=keep)

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return _shared(x == y, axes)


@register
class ReduceProd(Reduction):
    """y = product along the axes"""

    names = ("ReduceProd",)
    onnx = ("ReduceProd",)
    cases = (*Reduction.cases, Case([(4, 4)], {"axes": [1]}, values=_with_zeros, why="none, one, two, three zeros"))

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return x.prod(axes, keepdims=keep)

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return _others(x, axes)

    def curve(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...], v: np.ndarray) -> np.ndarray:
        return _pairs(x, axes, v)


@register
class ReduceL2(Reduction):
    """y = square root of the sum of squares along the axes"""

    names = ("ReduceL2",)
    onnx = ("ReduceL2",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return np.sqrt((x * x).sum(axes, keepdims=keep))

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.divide(x, y, out=np.zeros_like(x), where=y != 0)

    def curve(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...], v: np.ndarray) -> np.ndarray:
        slope = self.spread(x, y, axes)
        return np.divide(v - slope * (slope * v).sum(axes, keepdims=True), y, out=np.zeros_like(x), where=y != 0)


@register
class ReduceL1(Reduction):
    """y = sum of the magnitudes along the axes"""

    names = ("ReduceL1",)
    onnx = ("ReduceL1",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return np.abs(x).sum(axes, keepdims=keep)

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.sign(x)


@register
class ReduceSumSquare(Reduction):
    """y = sum of the squares along the axes"""

    names = ("ReduceSumSquare",)
    onnx = ("ReduceSumSquare",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return (x * x).sum(axes, keepdims=keep)

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return 2.0 * x

    def curve(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...], v: np.ndarray) -> np.ndarray:
        return 2.0 * v


@register
class ReduceLogSum(Reduction):
    """y = logarithm of the sum along the axes"""

    names = ("ReduceLogSum",)
    onnx = ("ReduceLogSum",)
    cases = (Case([(2, 3)], {"axes": [-1]}, values=lambda random: [random.uniform(0.1, 2.0, (2, 3))]),)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return np.log(x.sum(axes, keepdims=keep))

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(np.exp(-y), x.shape)

    def curve(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...], v: np.ndarray) -> np.ndarray:
        return np.broadcast_to(-np.exp(-2.0 * y) * v.sum(axes, keepdims=True), x.shape)


@register
class ReduceLogSumExp(Reduction):
    """y = logarithm of the sum of exponentials along the axes, without overflow"""

    names = ("ReduceLogSumExp",)
    onnx = ("ReduceLogSumExp",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        largest = x.max(axes, keepdims=True)
        largest = np.where(np.isfinite(largest), largest, 0.0)
        y = largest + np.log(np.exp(x - largest).sum(axes, keepdims=True))
        return y if keep else np.squeeze(y, axes)

    def spread(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.asarray(np.exp(x - y))

    def curve(self, x: np.ndarray, y: np.ndarray, axes: tuple[int, ...], v: np.ndarray) -> np.ndarray:
        share = self.spread(x, y, axes)
        return share * (v - (share * v).sum(axes, keepdims=True))
