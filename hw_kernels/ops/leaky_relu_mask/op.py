"""LeakyReluMask: LeakyReLU with its mask as a second output, so that the backward pass needs neither the input nor the gradient's sign."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, Shape, register


@register
class LeakyReluMask(HostOp):
    """y = x where mask, alpha*x elsewhere; mask = 1 where x > 0, else 0"""

    names = ("npuforge::LeakyReluMask",)
    onnx = ("npuforge::LeakyReluMask",)
    cases = (
        Case([(2, 3, 4, 5)], {"alpha": 0.1}, outputs=2),
        Case([(1, 17, 1, 1)], {"alpha": -1.5}, outputs=2, why="a negative slope"),
        Case(
            [(1, 1, 1, 3)],
            values=lambda r: [np.array([[[[-2.0, 1e-3, 5.0]]]])],
            outputs=2,
            why="the default slope 0.01",
        ),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0]] * len(node.outputs)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        mask = (inputs[0] > 0).astype(np.float64)
        alpha = float(node.attrs.get("alpha", 0.01))
        return [np.where(inputs[0] < 0, alpha * inputs[0], inputs[0]), mask][: len(node.outputs)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """dy where the mask is set, alpha*dy elsewhere; the mask itself is constant between jumps."""
        return [output_gradients[0] * self._slope(node, inputs)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """0 in x."""
        assert directions[0] is not None
        rest = [np.zeros(np.shape(inputs[0]))] * (len(output_gradients) - 1)
        return [np.zeros(np.shape(inputs[0]))], [directions[0] * self._slope(node, inputs), *rest]

    def _slope(self, node: Node, inputs: list[Any]) -> np.ndarray:
        return np.where(np.asarray(inputs[0]) > 0, 1.0, float(node.attrs.get("alpha", 0.01)))

    def lower(self, node: Node, graph: Graph) -> list[Node] | None:
        mask = node.outputs[1] if len(node.outputs) > 1 else ""
        if mask and (mask in graph.outputs or graph.consumers(mask)):
            return None
        alpha = float(node.attrs.get("alpha", 0.01))
        return [
            Node(
                node.name,
                "LeakyRelu",
                list(node.inputs),
                node.outputs[:1],
                {"alpha": alpha},
                sources=list(node.sources),
            )
        ]
