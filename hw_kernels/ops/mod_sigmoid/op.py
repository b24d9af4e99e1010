"""ModSigmoid: a sigmoid whose threshold is learnt, one per channel or one for all; at inference a bias in front of a sigmoid."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels.dsl.kernel import kernel, vsigmoid, vsub
from npuforge.hw_kernels.formulas import FORMULAS, sigmoid
from npuforge.hw_kernels.host import Binary
from npuforge.hw_kernels.operator import Case, register


@kernel
def mod_sigmoid(x: Any, threshold: Any) -> Any:
    """The same for the NPU DSL."""
    return vsigmoid(vsub(x, threshold))


@register
class ModSigmoid(Binary):
    """y = sigmoid(x - threshold); the threshold broadcasts to x"""

    names = ("npuforge::ModSigmoid",)
    attributes = ()
    onnx = ("npuforge::ModSigmoid",)
    lowers_to = ("Sub", "Sigmoid")
    dsl = mod_sigmoid
    cases = (
        Case([(2, 3, 4, 5)], constants=[(3, 1, 1)]),
        Case(
            [(1, 1, 1, 1)],
            constants=[()],
            values=lambda r: [r.normal(size=(1, 1, 1, 1)), np.array(0.25)],
            why="one threshold",
        ),
    )

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return sigmoid(np, a - b)

    def slopes(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[np.ndarray, np.ndarray]:
        slope = FORMULAS["Sigmoid"].slope(np, a - b, {})
        return slope, -slope

    def curvatures(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[Any, Any, Any]:
        curvature = FORMULAS["Sigmoid"].curvature(np, a - b, {})
        return curvature, -curvature, curvature

    def lower(self, node: Node, graph: Graph) -> list[Node] | None:
        shifted = f"{node.outputs[0]}/shifted"
        return [
            Node(f"{node.name}/shift", "Sub", list(node.inputs), [shifted], sources=list(node.sources)),
            Node(node.name, "Sigmoid", [shifted], list(node.outputs), sources=list(node.sources)),
        ]
