"""ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL2 on the CPU partition; axes as attribute or input."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp, integers
from npuforge.hw_kernels.operator import Case, register


class Reduction(HostOp):
    """One value of all elements along the axes named, or along all."""

    cases = (
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


@register
class ReduceSum(Reduction):
    """y = sum along the axes"""

    names = ("ReduceSum",)
    onnx = ("ReduceSum",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return x.sum(axes, keepdims=keep)


@register
class ReduceMean(Reduction):
    """y = mean along the axes"""

    names = ("ReduceMean",)
    onnx = ("ReduceMean",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return x.mean(axes, keepdims=keep)


@register
class ReduceMax(Reduction):
    """y = largest along the axes"""

    names = ("ReduceMax",)
    onnx = ("ReduceMax",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return x.max(axes, keepdims=keep)


@register
class ReduceMin(Reduction):
    """y = smallest along the axes"""

    names = ("ReduceMin",)
    onnx = ("ReduceMin",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return x.min(axes, keepdims=keep)


@register
class ReduceProd(Reduction):
    """y = product along the axes"""

    names = ("ReduceProd",)
    onnx = ("ReduceProd",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return x.prod(axes, keepdims=keep)


@register
class ReduceL2(Reduction):
    """y = square root of the sum of squares along the axes"""

    names = ("ReduceL2",)
    onnx = ("ReduceL2",)

    def reduce(self, x: np.ndarray, axes: tuple[int, ...], keep: bool) -> Any:
        return np.sqrt((x * x).sum(axes, keepdims=keep))
