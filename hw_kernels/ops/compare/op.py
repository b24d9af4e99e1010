"""Equal, Greater, GreaterOrEqual, Less, LessOrEqual on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Binary
from npuforge.hw_kernels.operator import Case, register


@register
class Equal(Binary):
    """y = a == b"""

    names = ("Equal",)
    onnx = ("Equal",)
    no_gradient = "truth values are constant between jumps"
    cases = (Case([(2, 3, 4), (3, 1)]),)

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.equal(a, b)


@register
class Greater(Binary):
    """y = a > b"""

    names = ("Greater",)
    onnx = ("Greater",)
    no_gradient = "truth values are constant between jumps"
    cases = (Case([(2, 3, 4), (3, 1)]),)

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.greater(a, b)


@register
class GreaterOrEqual(Binary):
    """y = a >= b"""

    names = ("GreaterOrEqual",)
    onnx = ("GreaterOrEqual",)
    no_gradient = "truth values are constant between jumps"
    cases = (Case([(2, 3, 4), (3, 1)]),)

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.greater_equal(a, b)


@register
class Less(Binary):
    """y = a < b"""

    names = ("Less",)
    onnx = ("Less",)
    no_gradient = "truth values are constant between jumps"
    cases = (Case([(2, 3, 4), (3, 1)]),)

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.less(a, b)


@register
class LessOrEqual(Binary):
    """y = a <= b"""

    names = ("LessOrEqual",)
    onnx = ("LessOrEqual",)
    no_gradient = "truth values are constant between jumps"
    cases = (Case([(2, 3, 4), (3, 1)]),)

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.less_equal(a, b)
