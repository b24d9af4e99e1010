"""Sub: element-wise a - b of two feature maps, each with its own scales."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Activation
from npuforge.compile.ir.quantization import EltwiseParams
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.eltwise import TwoOperands
from npuforge.hw_kernels.gradients import Linear
from npuforge.hw_kernels.operator import Case, register
from npuforge.hw_kernels.ops.sub.program import SUB


@register
class Sub(Linear, TwoOperands):
    """y = activation(a - b)"""

    names = ("Sub",)
    program = SUB
    cost = SUB.cost
    onnx = ("Sub",)
    cases = (
        Case([(1, 16, 5, 5), (1, 16, 5, 5)]),
        Case([(1, 21, 4, 3), (1, 21, 4, 3)], activation=Activation("Relu")),
        Case(
            [(1, 21, 4, 3), (1, 21, 1, 1)],
            activation=Activation("LeakyRelu", alpha=0.2),
            why="broadcast over height and width",
        ),
        Case([(1, 8, 4, 3), (1, 1, 4, 3)], activation=Activation("Silu"), why="broadcast over channels, table output"),
    )

    def function(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a - b)

    def combine(self, a: np.ndarray, b: np.ndarray, params: EltwiseParams) -> np.ndarray:
        return np.asarray(params.m_a.astype(np.int64) * a - params.m_b.astype(np.int64) * b)

    def slopes(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ones_like(a), -np.ones_like(b)

    def combine_bf16(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return bf16.subtract(a, b)
