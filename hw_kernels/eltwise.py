"""What the element-wise operators share: broadcasting, the scaled difference d, constraints. The operators are in `ops/add`, `sub`, `mul`, `affine`."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.bf16 import Bf16EltwiseParams
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import EltwiseParams, QGraph
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.activations import apply_activation
from npuforge.hw_kernels.arithmetic import apply_stage
from npuforge.hw_kernels.bf16 import to_float32
from npuforge.hw_kernels.bf16_lanes import staged
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.gradients import before_activation, broadcast, unbroadcast
from npuforge.hw_kernels.operator import Gradients, Op, Shape


def two_activations(node: Node, graph: Graph) -> bool:
    """both operands are computed feature maps (a constant operand becomes an Affine)"""
    return len(node.inputs) == 2 and not any(t in graph.constants for t in node.inputs)


def second_broadcasts(node: Node, graph: Graph) -> bool:
    """the first operand has the output's shape; the second may have one row, one column or one channel"""
    a, b = (graph.tensors[t].shape for t in node.inputs)
    out = graph.tensors[node.outputs[0]].shape
    return a == out and all(s in (1, o) for s, o in zip(b, out, strict=True))


class TwoOperands(Op):
    """Base of Add, Sub, Mul."""

    constraints = (c.feature_maps, c.map_sizes, two_activations, second_broadcasts, c.known_activation)

    def function(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The float64 meaning before the activation."""
        raise NotImplementedError

    def combine(self, a: np.ndarray, b: np.ndarray, params: EltwiseParams) -> np.ndarray:
        """d from the centred operands, int64."""
        raise NotImplementedError

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        return [broadcast(shapes)]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        result = self.function(inputs[0].astype(np.float64), inputs[1].astype(np.float64))
        return [apply_activation(result, node.activation)]

    def slopes(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of `function` in a and b, before broadcasting is undone."""
        raise NotImplementedError

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        dy = before_activation(self, node, inputs, output_gradients)[0]
        operands = [np.asarray(x, np.float64) for x in inputs]
        return [unbroadcast(dy * d, x.shape) for d, x in zip(self.slopes(*operands), operands, strict=True)]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        params = qgraph.params[node.name]
        assert isinstance(params, EltwiseParams)
        a = inputs[0].astype(np.int64) - params.z_a.astype(np.int64)
        b = inputs[1].astype(np.int64) - params.z_b.astype(
            np.int64
        )  # z_b has one entry per output channel: broadcasts too
        return apply_stage(self.combine(a, b, params), params.stage)

    def combine_bf16(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """d from float32 operands, one rounded operation."""
        raise NotImplementedError

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        assert isinstance(work.params, Bf16EltwiseParams)
        a, b = (to_float32(x[..., lanes.lanes]) for x, lanes in zip(inputs, work.in_maps, strict=True))
        return staged(self.combine_bf16(a, np.broadcast_to(b, a.shape)), work.params.stage, work.out_map)
