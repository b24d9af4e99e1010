"""Mul: element-wise product of two feature maps (squeeze-excite gates, attention masks)."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Activation
from npuforge.compile.ir.quantization import EltwiseParams
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.eltwise import TwoOperands
from npuforge.hw_kernels.gradients import Bilinear
from npuforge.hw_kernels.operator import Case, register
from npuforge.hw_kernels.ops.mul.program import MUL


@register
class Mul(Bilinear, TwoOperands):
    """y = activation(a * b)"""

    names = ("Mul",)
    program = MUL
    cost = MUL.cost
    onnx = ("Mul",)
    cases = (
        Case([(1, 16, 5, 5), (1, 16, 5, 5)]),
        Case([(1, 21, 4, 3), (1, 21, 1, 1)], why="squeeze-excite gate"),
        Case([(1, 8, 4, 3), (1, 1, 4, 3)], activation=Activation("Relu"), why="broadcast over channels"),
        Case([(1, 5, 4, 3), (1, 5, 4, 3)], activation=Activation("Sigmoid"), why="table output"),
    )

    def function(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a * b)

    def combine(self, a: np.ndarray, b: np.ndarray, params: EltwiseParams) -> np.ndarray:
        return np.asarray(a * b * params.m_a.astype(np.int64))

    def slopes(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return b, a

    def combine_bf16(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return bf16.multiply(a, b)
