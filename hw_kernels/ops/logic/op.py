"""And, Or, Xor, Not on the CPU partition: bool, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Binary, Step
from npuforge.hw_kernels.operator import Case, register


def _bits(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.integers(0, 2, shape).astype(bool)


class Logical(Binary):
    """What the three operators of two bools share."""

    no_gradient = "a bool carries no gradient"
    cases = (Case([(2, 3, 4), (3, 1)], values=lambda random: [_bits(random, 2, 3, 4), _bits(random, 3, 1)]),)


@register
class And(Logical):
    """y = a and b"""

    names = ("And",)
    onnx = ("And",)

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.logical_and(a, b)


@register
class Or(Logical):
    """y = a or b"""

    names = ("Or",)
    onnx = ("Or",)

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.logical_or(a, b)


@register
class Xor(Logical):
    """y = a xor b"""

    names = ("Xor",)
    onnx = ("Xor",)

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.logical_xor(a, b)


@register
class Not(Step):
    """y = not x"""

    names = ("Not",)
    onnx = ("Not",)
    cases = (Case([(2, 5)], values=lambda random: [_bits(random, 2, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.logical_not(x)
