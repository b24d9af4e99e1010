"""MatMul on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Bilinear, unbroadcast
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, register


@register
class MatMul(Bilinear, HostOp):
    """matrix product, leading dimensions broadcast, vectors as in numpy"""

    names = ("MatMul",)
    host_types = ("float32", "int32", "int64")
    onnx = ("MatMul",)
    cases = (
        Case([(2, 4, 5)], constants=[(5, 3)]),
        Case([(4, 5), (5,)]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [np.matmul(inputs[0], inputs[1])]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """dA = dY B', dB = A' dY, summed over broadcast leading dimensions."""
        a, b, dy = (np.asarray(v, np.float64) for v in (*inputs[:2], output_gradients[0]))
        wide_a, wide_b = (a[None, :] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
        if a.ndim == 1:
            dy = np.expand_dims(dy, -1 if b.ndim == 1 else -2)
        if b.ndim == 1:
            dy = np.expand_dims(dy, -1)
        da = unbroadcast(dy @ np.swapaxes(wide_b, -1, -2), wide_a.shape)
        db = unbroadcast(np.swapaxes(wide_a, -1, -2) @ dy, wide_b.shape)
        return [da.reshape(a.shape), db.reshape(b.shape)]
