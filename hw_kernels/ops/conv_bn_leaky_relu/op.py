"""ConvBnLeakyRelu: convolution, batch normalisation (inference) and LeakyReLU in one node; the NPU runs it as one convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.hw_kernels.convolution_program import bias_of_zeros
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, Shape, find, register
from npuforge.hw_kernels.ops.conv_bn_leaky_relu.program import conv_bn_leaky_relu


def _values(shape: tuple[int, ...], weight: tuple[int, ...]) -> Any:
    def draw(random: np.random.Generator) -> list[Any]:
        channels = weight[0]
        normal = [random.normal(0.0, 0.5, s) for s in (shape, weight, *[(channels,)] * 4)]
        return [*normal, random.uniform(0.2, 2.0, channels)]

    return draw


@register
class ConvBnLeakyRelu(HostOp):
    """y = leaky(scale*(conv(x, w) + b - mean)/sqrt(variance + epsilon) + bias); inputs x, w, b, scale, bias, mean, variance"""

    dsl = conv_bn_leaky_relu
    names = ("npuforge::ConvBnLeakyRelu",)
    optional_inputs = (2,)
    attributes = ("kernel_shape", "strides", "pads", "dilations", "group", "epsilon", "alpha")
    onnx = ("npuforge::ConvBnLeakyRelu",)
    lowers_to = ("Conv", "BatchNormalization", "LeakyRelu")
    cases = (
        Case(
            [(2, 3, 6, 5)],
            {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "alpha": 0.1},
            [(4, 3, 3, 3), *[(4,)] * 5],
            values=_values((2, 3, 6, 5), (4, 3, 3, 3)),
        ),
        Case(
            [(1, 4, 5, 5)],
            {"kernel_shape": [3, 3], "strides": [2, 2], "group": 2, "epsilon": 1e-3, "alpha": 0.3},
            [(2, 2, 3, 3), *[(2,)] * 5],
            values=_values((1, 4, 5, 5), (2, 2, 3, 3)),
            why="grouped, strided",
        ),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        conv = find("Conv")
        assert conv is not None
        return conv.infer(self._parts(node)[0], shapes[:2])

    def absent_input(self, position: int, shapes: Sequence[Shape | None]) -> np.ndarray | None:
        return bias_of_zeros(shapes)

    def _parts(self, node: Node) -> tuple[Node, Node]:
        """The convolution, and the batch normalisation with the LeakyReLU behind it."""
        attrs = {k: v for k, v in node.attrs.items() if k not in ("alpha", "epsilon")}
        inner, outer = [f"{node.outputs[0]}/conv"], [f"{node.outputs[0]}/normalised"]
        conv = Node(f"{node.name}/conv", "Conv", node.inputs[:3], inner, attrs, sources=list(node.sources))
        epsilon = {"epsilon": float(node.attrs.get("epsilon", 1e-5))}
        norm = Node(
            f"{node.name}/norm",
            "BatchNormalization",
            [*inner, *node.inputs[3:]],
            outer,
            epsilon,
            sources=list(node.sources),
        )
        return conv, norm

    def _leaky(self, node: Node) -> Activation:
        return Activation("LeakyRelu", alpha=float(node.attrs.get("alpha", 0.01)))

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        conv, norm = self._parts(node)
        x = _op("Conv").reference(conv, inputs[:3])
        y = _op("BatchNormalization").reference(norm, [*x, *inputs[3:]])[0]
        return [np.where(y < 0, y * self._leaky(node).alpha, y)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Of all seven inputs, by the chain of the three operators' own gradients."""
        conv, norm = self._parts(node)
        x = _op("Conv").reference(conv, inputs[:3])[0]
        y = _op("BatchNormalization").reference(norm, [x, *inputs[3:]])[0]
        dy = output_gradients[0] * np.where(y > 0, 1.0, self._leaky(node).alpha)
        dx, *rest = _op("BatchNormalization").gradient(norm, [x, *inputs[3:]], [dy])
        assert dx is not None
        return [*_op("Conv").gradient(conv, inputs[:3], [dx]), *rest]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """The same chain backwards; the slope of LeakyReLU does not change."""
        conv, norm = self._parts(node)
        x = _op("Conv").reference(conv, inputs[:3])[0]
        inner = [x, *inputs[3:]]
        slope = np.where(_op("BatchNormalization").reference(norm, inner)[0] > 0, 1.0, self._leaky(node).alpha)
        dy = output_gradients[0] * slope
        dx = _op("BatchNormalization").gradient(norm, inner, [dy])[0]
        of_conv, of_dx = _op("Conv").second_gradient(conv, inputs[:3], [dx], directions[:3])
        (of_x, *of_rest), of_dy = _op("BatchNormalization").second_gradient(
            norm, inner, [dy], [*of_dx, *directions[3:]]
        )
        through = _op("Conv").gradient(conv, inputs[:3], [of_x])
        return [*(a + b for a, b in zip(of_conv, through, strict=True)), *of_rest], [of_dy[0] * slope]

    def lower(self, node: Node, graph: Graph) -> list[Node] | None:
        conv, norm = self._parts(node)
        alpha = {"alpha": self._leaky(node).alpha}
        leaky = Node(node.name, "LeakyRelu", list(norm.outputs), list(node.outputs), alpha, sources=list(node.sources))
        return [replace(conv), norm, leaky]


def _op(name: str) -> Any:
    return find(name)
