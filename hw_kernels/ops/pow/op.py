"""Pow on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Binary
from npuforge.hw_kernels.operator import Case, register


@register
class Pow(Binary):
    """y = a ** b"""

    names = ("Pow",)
    onnx = ("Pow",)
    placed_as = "part of a written-out GELU (tanh form) on the NPU"
    cases = (
        Case([(2, 3, 4), (3, 1)], values=lambda r: [r.uniform(0.2, 3.0, (2, 3, 4)), r.normal(size=(3, 1))]),
        Case([(1, 4), (1, 4)], values=lambda r: [r.uniform(0.2, 3.0, (1, 4)), np.array([[0.0, 1.0, 2.0, -1.5]])]),
    )

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.power(a, b)

    def slopes(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(all="ignore"):
            logarithm = np.where(a > 0, np.log(np.where(a > 0, a, 1.0)), 0.0)
            return np.where(b == 0, 0.0, b * np.power(a, b - 1.0)), np.power(a, b) * logarithm

    def curvatures(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[Any, Any, Any]:
        with np.errstate(all="ignore"):
            logarithm = np.where(a > 0, np.log(np.where(a > 0, a, 1.0)), 0.0)
            twice = b * (b - 1.0)
            return (
                np.where(twice == 0, 0.0, twice * np.power(a, b - 2.0)),
                np.power(a, b - 1.0) * (1.0 + b * logarithm),
                np.power(a, b) * logarithm * logarithm,
            )
