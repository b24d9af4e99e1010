"""Trigonometric and hyperbolic functions and their inverses on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import DeployedUnary
from npuforge.hw_kernels.operator import Case, register


@register
class Sin(DeployedUnary):
    """y = sin(x)"""

    names = ("Sin",)
    onnx = ("Sin",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.sin(x)


@register
class Cos(DeployedUnary):
    """y = cos(x)"""

    names = ("Cos",)
    onnx = ("Cos",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.cos(x)


@register
class Tan(DeployedUnary):
    """y = tan(x)"""

    names = ("Tan",)
    onnx = ("Tan",)
    cases = (Case([(2, 5)], values=lambda random: [random.uniform(-0.95, 0.95, (2, 5))]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.tan(x)


@register
class Asin(DeployedUnary):
    """y = asin(x)"""

    names = ("Asin",)
    onnx = ("Asin",)
    cases = (Case([(2, 5)], values=lambda random: [random.uniform(-0.95, 0.95, (2, 5))]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.arcsin(x)


@register
class Acos(DeployedUnary):
    """y = acos(x)"""

    names = ("Acos",)
    onnx = ("Acos",)
    cases = (Case([(2, 5)], values=lambda random: [random.uniform(-0.95, 0.95, (2, 5))]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.arccos(x)


@register
class Atan(DeployedUnary):
    """y = atan(x)"""

    names = ("Atan",)
    onnx = ("Atan",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.arctan(x)


@register
class Sinh(DeployedUnary):
    """y = sinh(x)"""

    names = ("Sinh",)
    onnx = ("Sinh",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.sinh(x)


@register
class Cosh(DeployedUnary):
    """y = cosh(x)"""

    names = ("Cosh",)
    onnx = ("Cosh",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.cosh(x)


@register
class Asinh(DeployedUnary):
    """y = asinh(x)"""

    names = ("Asinh",)
    onnx = ("Asinh",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.arcsinh(x)


@register
class Acosh(DeployedUnary):
    """y = acosh(x)"""

    names = ("Acosh",)
    onnx = ("Acosh",)
    cases = (Case([(2, 5)], values=lambda random: [random.uniform(1.05, 4.0, (2, 5))]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.arccosh(x)


@register
class Atanh(DeployedUnary):
    """y = atanh(x)"""

    names = ("Atanh",)
    onnx = ("Atanh",)
    cases = (Case([(2, 5)], values=lambda random: [random.uniform(-0.95, 0.95, (2, 5))]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.arctanh(x)
