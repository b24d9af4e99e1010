"""Affine: a stand-alone activation, or a per-channel multiply and add, on one feature map."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.bf16 import Bf16EltwiseParams
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.ir.quantization import EltwiseParams, QGraph
from npuforge.hw_kernels import bf16, bf16_lanes
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.activations import apply_activation
from npuforge.hw_kernels.arithmetic import apply_stage
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.gradients import before_activation, second_through_activation
from npuforge.hw_kernels.operator import Case, Gradients, Op, SecondGradients, Shape, register
from npuforge.hw_kernels.ops.affine.program import AFFINE


def parameters_per_channel(node: Node, graph: Graph) -> bool:
    """scale and bias have one finite value per channel"""
    channels = graph.tensors[node.inputs[0]].shape[1]
    values = [np.asarray(node.attrs[k], np.float64) for k in ("scale", "bias")]
    return all(v.shape == (channels,) and bool(np.isfinite(v).all()) for v in values)


@register
class Affine(Op):
    """y = activation(scale[c] * x + bias[c])"""

    names = ("Affine",)
    host_types = ("float32",)
    attributes = ("scale", "bias")
    program = AFFINE
    cost = AFFINE.cost
    onnx = (
        *("Relu", "LeakyRelu", "PRelu", "Clip", "Abs", "Elu", "Celu", "Selu", "Softplus", "Erf"),
        *("Sigmoid", "Tanh", "Gelu", "Mish", "Swish", "HardSwish", "HardSigmoid"),
        *("com.example::CustomGELU", "npuforge::Silu", "npuforge::SiluPolynomial", "npuforge::ClipSigmoid"),
        *("BatchNormalization", "Add", "Sub", "Mul", "Div", "Neg"),
    )
    constraints = (c.feature_maps, c.map_sizes, c.known_activation, parameters_per_channel)
    cases = (
        Case(
            [(1, 4, 5, 5)],
            {"scale": [1.0] * 4, "bias": [0.0] * 4},
            activation=Activation("Silu"),
            why="stand-alone curve",
        ),
        Case([(1, 3, 5, 5)], {"scale": [0.5, -2.0, 0.0], "bias": [1.0, 0.25, -3.0]}, why="negative and zero scale"),
        Case([(1, 17, 2, 3)], {"scale": [1.0] * 17, "bias": [0.0] * 17}, activation=Activation("LeakyRelu", alpha=0.1)),
        *(
            Case(
                [(1, 5, 7, 6)],
                {"scale": [4.0, 1.0, -2.0, 0.5, 8.0], "bias": [0.0, 0.5, 0.0, -1.0, 0.0]},
                activation=activation,
                why="beyond both ends of the table",
            )
            for activation in (
                *(Activation(kind) for kind in ("Softplus", "Erf", "SiluPolynomial")),
                *(Activation("Elu", alpha=alpha) for alpha in (1.0, 3.0)),
            )
        ),
        Case(
            [(1, 17, 2, 3)], {"scale": [1.0] * 17, "bias": [0.0] * 17}, activation=Activation("LeakyRelu", alpha=-1.0)
        ),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0]]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        scale, bias = (np.asarray(node.attrs[k], np.float64)[:, None, None] for k in ("scale", "bias"))
        return [apply_activation(inputs[0].astype(np.float64) * scale + bias, node.activation)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """scale[c] times the activation's slope."""
        scale = np.asarray(node.attrs["scale"], np.float64)[:, None, None]
        return [before_activation(self, node, inputs, output_gradients)[0] * scale]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Linear but for the activation."""
        if node.activation.kind != "none":
            return second_through_activation(self, node, inputs, output_gradients, directions)
        scale = np.asarray(node.attrs["scale"], np.float64)[:, None, None]
        v = np.zeros(np.shape(inputs[0])) if directions[0] is None else directions[0]
        return [np.zeros(np.shape(inputs[0]))], [v * scale]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        params = qgraph.params[node.name]
        assert isinstance(params, EltwiseParams)
        centred = inputs[0].astype(np.int64) - params.z_a.astype(np.int64)
        return apply_stage(params.m_a.astype(np.int64) * centred + params.k.astype(np.int64), params.stage)

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        assert isinstance(work.params, Bf16EltwiseParams) and work.params.factor is not None
        product = bf16.multiply(bf16.to_float32(inputs[0][..., work.in_maps[0].lanes]), work.params.factor)
        return bf16_lanes.staged(product, work.params.stage, work.out_map)
