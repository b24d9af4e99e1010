"""Base classes of operators that only the CPU partition runs: their float64 meaning and their test cases; no integer semantics.

The C++ is `cpu.hpp` beside each `op.py`. `numpy` broadcasting and axes are ONNX's. Axes and shapes come from attributes (older operator sets)
or from the integer inputs (newer ones): `integers` reads either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels.formulas import Formula
from npuforge.hw_kernels.gradients import broadcast, unbroadcast
from npuforge.hw_kernels.operator import Gradients, Op, SecondGradients, Shape

Inputs = list[np.ndarray]


DROPPED = "dropped by the import where it changes nothing"  # `placed_as` of several operators
MOVED = "part of a ChannelGather on the NPU where it and its neighbours move whole channels"
TAKEN_OVER = "in pairs taken over by the import as the scales of tensors and weights"


def runs_on_the_host(node: Node, graph: Graph) -> bool:
    """the NPU has no such operator: it runs on the CPU partition"""
    return False


class HostOp(Op):
    """An operator of the CPU partition. `compute` gets all inputs (None where omitted), floats as float64."""

    constraints = (runs_on_the_host,)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        """The meaning; results may have any number type."""
        raise NotImplementedError

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [np.shape(y) for y in self.compute(node, [np.ones(s) for s in shapes])]

    def reference(self, node: Node, inputs: Inputs) -> Inputs:
        wide = [x.astype(np.float64) if x is not None and x.dtype.kind == "f" else x for x in inputs]
        return [np.asarray(y) for y in self.compute(node, wide)]


class Deployed(HostOp):
    """An operator of deployed networks that the kit does not train."""

    no_gradient = "runs in deployed networks only: its gradient is the training framework's"


class DeployedUnary(Deployed):
    """y = function(x), element by element."""

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0]]

    def function(self, x: np.ndarray, node: Node) -> Any:
        """The function of one float64 array."""
        raise NotImplementedError

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            return [self.function(inputs[0], node)]


class Unary(HostOp):
    """y = formula(x), element by element, with both derivatives."""

    formula: ClassVar[Formula | None] = None

    def formula_of(self, node: Node) -> Formula:
        """The formula that the node's attributes select."""
        assert self.formula is not None
        return self.formula

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0]]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            return [self.formula_of(node).value(np, inputs[0], node.attrs)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        return [output_gradients[0] * self.formula_of(node).slope(np, np.asarray(inputs[0], np.float64), node.attrs)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        formula, x, dy, v = self.formula_of(node), np.asarray(inputs[0], np.float64), output_gradients[0], directions[0]
        assert v is not None
        return [v * dy * formula.curvature(np, x, node.attrs)], [v * formula.slope(np, x, node.attrs)]


class Step(HostOp):
    """y = function(x), element by element and constant between jumps."""

    no_gradient = "constant between jumps: the derivative is 0 wherever it exists"

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0]]

    def function(self, x: np.ndarray, node: Node) -> Any:
        """The function of one float64 array."""
        raise NotImplementedError

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [self.function(inputs[0], node)]


class Binary(HostOp):
    """y = function(a, b) with broadcasting."""

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [broadcast(shapes)]

    def function(self, a: Any, b: Any, node: Node) -> Any:
        """The function of two arrays of one type."""
        raise NotImplementedError

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            return [self.function(inputs[0], inputs[1], node)]

    def slopes(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the broadcast function in a and b."""
        raise NotImplementedError

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        if type(self).slopes is Binary.slopes:
            raise NotImplementedError
        a, b = (np.asarray(x, np.float64) for x in inputs)
        return [
            unbroadcast(output_gradients[0] * d, np.shape(x))
            for d, x in zip(self.slopes(a, b, node), inputs, strict=True)
        ]

    def curvatures(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[Any, Any, Any]:
        """Second derivatives of the broadcast function: in a twice, in a and b, in b twice."""
        raise NotImplementedError

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        a, b = (np.asarray(x, np.float64) for x in inputs)
        v_a, v_b = (np.zeros(x.shape) if d is None else d for x, d in zip((a, b), directions, strict=True))
        (slope_a, slope_b), (aa, ab, bb), dy = self.slopes(a, b, node), self.curvatures(a, b, node), output_gradients[0]
        of_a, of_b = dy * (aa * v_a + ab * v_b), dy * (ab * v_a + bb * v_b)
        return [unbroadcast(of_a, a.shape), unbroadcast(of_b, b.shape)], [slope_a * v_a + slope_b * v_b]


def integers(node: Node, inputs: list[Any], name: str, position: int) -> list[int] | None:
    """An integer list: attribute `name` if there, else input `position`, else None."""
    if node.attrs.get(name) is not None:
        return [int(v) for v in np.ravel(node.attrs[name])]
    if position < len(inputs) and inputs[position] is not None:
        return [int(v) for v in np.ravel(inputs[position])]
    return None


def optional(inputs: list[Any], position: int) -> Any:
    """Input `position`, None if there is none."""
    return inputs[position] if position < len(inputs) else None


def without_nan(key: np.ndarray, axis: int) -> np.ndarray:
    """A key whose largest element along the axis is where the kernels find it: comparisons with NaN are false, so it is passed over, and where it
    comes first nothing replaces it."""
    first = np.isnan(np.take(key, [0], axis))
    position = np.arange(key.shape[axis]).reshape([-1 if i == axis % key.ndim else 1 for i in range(key.ndim)])
    return np.where(first, np.where(position == 0, 0.0, -np.inf), np.where(np.isnan(key), -np.inf, key))


def spread(node: Node, x: np.ndarray, parameter: np.ndarray) -> np.ndarray:
    """A scale or zero point of QuantizeLinear and DequantizeLinear in a shape that broadcasts to `x`."""
    parameter = np.asarray(parameter)
    if parameter.size == 1:
        return parameter.reshape(())
    axis, block = int(node.attrs.get("axis", 1)) % x.ndim, int(node.attrs.get("block_size", 0))
    if block:
        return np.repeat(parameter, block, axis)[tuple(slice(0, d) for d in x.shape)]
    return parameter.reshape([-1 if d == axis else 1 for d in range(x.ndim)])


REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {  # of the scatter operators: (old, update) -> new
    "none": lambda old, update: update,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
