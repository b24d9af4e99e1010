"""Gemm on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Bilinear, unbroadcast
from npuforge.hw_kernels.host import HostOp, optional
from npuforge.hw_kernels.operator import Case, Gradients, register


@register
class Gemm(Bilinear, HostOp):
    """y = alpha * A * B + beta * C"""

    names = ("Gemm",)
    host_types = ("float32",)
    onnx = ("Gemm",)
    cases = (
        Case([(4, 6)], {"transB": 1, "alpha": 0.5, "beta": 2.0}, constants=[(5, 6), (5,)]),
        Case([(4, 6)], {"transA": 1}, constants=[(4, 3)]),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        a = inputs[0].T if node.attrs.get("transA", 0) else inputs[0]
        b = inputs[1].T if node.attrs.get("transB", 0) else inputs[1]
        product = node.attrs.get("alpha", 1.0) * (a @ b)
        c = optional(inputs, 2)
        return [product if c is None else product + node.attrs.get("beta", 1.0) * c]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Of A, B and C."""
        flip_a, flip_b = bool(node.attrs.get("transA", 0)), bool(node.attrs.get("transB", 0))
        a, b = (
            np.asarray(v.T if flip else v, np.float64) for v, flip in zip(inputs[:2], (flip_a, flip_b), strict=True)
        )
        dy, alpha = output_gradients[0], float(node.attrs.get("alpha", 1.0))
        da, db = alpha * (dy @ b.T), alpha * (a.T @ dy)
        results: Gradients = [da.T if flip_a else da, db.T if flip_b else db]
        if optional(inputs, 2) is not None:
            results.append(unbroadcast(float(node.attrs.get("beta", 1.0)) * dy, np.shape(inputs[2])))
        return results
