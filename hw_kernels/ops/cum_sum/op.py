"""CumSum and CumProd along a constant axis on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


class Cumulative(Deployed):
    """What the two share: `exclusive` leaves the element itself out, `reverse` starts at the end."""

    start = 0.0
    cases = (
        Case([(2, 5)], constants=[()], values=lambda random: [random.normal(size=(2, 5)), np.array(1)]),
        Case(
            [(4, 3)],
            {"exclusive": 1, "reverse": 1},
            [()],
            values=lambda random: [random.normal(size=(4, 3)), np.array(-2)],
        ),
    )

    def accumulate(self, x: np.ndarray, axis: int) -> Any:
        """Running results along the axis."""
        raise NotImplementedError

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [shapes[0]]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, axis = inputs[0], int(np.ravel(inputs[1])[0])
        if node.attrs.get("reverse", 0):
            x = np.flip(x, axis)
        y = self.accumulate(x, axis)
        if node.attrs.get("exclusive", 0):
            y = np.roll(y, 1, axis)
            np.moveaxis(y, axis, 0)[0] = self.start
        return [np.flip(y, axis) if node.attrs.get("reverse", 0) else y]


@register
class CumSum(Cumulative):
    """y[i] = x[0] + ... + x[i] along the axis"""

    names = ("CumSum",)
    onnx = ("CumSum",)

    def accumulate(self, x: np.ndarray, axis: int) -> Any:
        return np.cumsum(x, axis)


@register
class CumProd(Cumulative):
    """y[i] = x[0] * ... * x[i] along the axis"""

    names = ("CumProd",)
    onnx = ("CumProd",)
    start = 1.0

    def accumulate(self, x: np.ndarray, axis: int) -> Any:
        return np.cumprod(x, axis)
