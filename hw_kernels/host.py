"""Base classes of operators that only the CPU partition runs: their float64 meaning and their test cases; no integer semantics.

The C++ is `cpu.hpp` beside each `op.py`. `numpy` broadcasting and axes are ONNX's. Axes and shapes come from attributes (older operator sets)
or from the integer inputs (newer ones): `integers` reads either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels.operator import Op, Shape

Inputs = list[np.ndarray]


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


class Unary(HostOp):
    """y = function(x), element by element."""

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0]]

    def function(self, x: np.ndarray, node: Node) -> Any:
        """The function of one float64 array."""
        raise NotImplementedError

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            return [self.function(inputs[0], node)]


class Binary(HostOp):
    """y = function(a, b) with broadcasting."""

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [np.broadcast_shapes(*shapes)]

    def function(self, a: Any, b: Any, node: Node) -> Any:
        """The function of two arrays of one type."""
        raise NotImplementedError

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            return [self.function(inputs[0], inputs[1], node)]


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
