"""CsrMatMul: a sparse matrix in compressed rows times a dense one. Any sparsity, empty rows, repeated columns (they add)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Bilinear
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, HlsKernel, KernelCase, Shape, register
from npuforge.hw_kernels.ops.csr_matmul.fixed import KERNEL_BF16, KERNEL_INT8, integer_product
from npuforge.hw_kernels.ops.csr_matmul.program import csr_matmul


def random_csr(random: np.random.Generator, rows: int, columns: int, density: float) -> tuple[np.ndarray, ...]:
    """values, column indices, row pointers."""
    kept = random.random((rows, columns)) < density
    pointers = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return random.normal(size=int(kept.sum())), np.nonzero(kept)[1].astype(np.int64), pointers.astype(np.int64)


def _values(rows: int, inner: int, columns: int, density: float) -> Any:
    def draw(random: np.random.Generator) -> list[Any]:
        values, indices, pointers = random_csr(random, rows, inner, density)
        return [random.normal(size=(inner, columns)), values, indices, pointers]

    return draw


def _kernel_case(random: np.random.Generator) -> KernelCase:
    rows, inner = int(random.integers(0, 9)), int(random.integers(1, 12))
    _, columns, pointers = random_csr(random, rows, inner, float(random.random()))
    values = random.integers(-128, 128, len(columns)).astype(np.int8)
    x, zero = random.integers(-128, 128, (inner, 16)).astype(np.int8), random.integers(-128, 128, 16).astype(np.int8)
    narrow = [columns.astype(np.int32), pointers.astype(np.int32)]
    return [values, *narrow, rows, x, zero, np.zeros((rows, 16), np.int32)], [
        integer_product(values, columns, pointers, x, zero)
    ]


@register
class CsrMatMul(Bilinear, HostOp):
    """y[r] = sum over k in pointers[r] .. pointers[r+1] of values[k] * x[columns[k]]; inputs x [K, N], values, columns, pointers [M+1]"""

    names = ("npuforge::CsrMatMul",)
    host_types = ("float32",)
    attributes = ()
    onnx = ("npuforge::CsrMatMul",)
    shape_from_values = True  # the number of values
    kernel = HlsKernel(
        "csr_matmul",
        (
            *("const int8_t*", "const int32_t*", "const int32_t*", "int32_t", "const int8_t*", "const int8_t*"),
            "int32_t*",
        ),
        _kernel_case,
    )
    dsl = csr_matmul
    kernel_int8, kernel_bf16 = KERNEL_INT8, KERNEL_BF16
    cases = (
        Case([(7, 5)], constants=[(), (), ()], values=_values(6, 7, 5, 0.3)),
        Case([(4, 1)], constants=[(), (), ()], values=_values(3, 4, 1, 1.0), why="dense, one column"),
        Case([(9, 3)], constants=[(), (), ()], values=_values(8, 9, 3, 0.08), why="empty rows"),
        Case(
            [(3, 2)],
            constants=[(), (), ()],
            values=lambda r: [r.normal(size=(3, 2)), r.normal(size=4), np.array([1, 1, 0, 2]), np.array([0, 3, 3, 4])],
            why="a repeated column adds",
        ),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        if len(shapes) != 4 or len(shapes[0]) != 2 or len(shapes[3]) != 1 or shapes[1] != shapes[2]:
            raise ModelError(
                f"node {node.name}: inputs {shapes} of CsrMatMul; expected x [K, N], values [V], columns [V], pointers [M + 1]"
            )
        return [(shapes[3][0] - 1, shapes[0][1])]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, values, columns, pointers = self._checked(node, inputs)
        y = np.zeros((len(pointers) - 1, x.shape[1]))
        np.add.at(y, self._rows(pointers), values[:, None] * x[columns])
        return [y]

    def _rows(self, pointers: np.ndarray) -> np.ndarray:
        """The row of every value."""
        return np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))

    def _checked(self, node: Node, inputs: list[Any]) -> tuple[np.ndarray, ...]:
        x, values, columns, pointers = (np.asarray(v) for v in inputs)
        rising = (
            pointers.size > 0
            and pointers[0] == 0
            and pointers[-1] == values.size
            and bool((np.diff(pointers) >= 0).all())
        )
        if not rising or columns.size != values.size or (columns < 0).any() or (columns >= x.shape[0]).any():
            raise ModelError(
                f"node {node.name}: the sparse matrix is not consistent; row pointers must rise from 0 to {values.size} values, "
                f"columns lie in 0..{x.shape[0] - 1}"
            )
        return x, values, columns, pointers

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """dx = A' dy; dvalues[k] = dy[row of k] . x[column of k]."""
        x, values, columns, pointers = self._checked(node, inputs)
        dx, rows, dy = np.zeros(x.shape), self._rows(pointers), output_gradients[0]
        np.add.at(dx, columns, values[:, None] * dy[rows])
        return [dx, (dy[rows] * x[columns]).sum(axis=1), None, None]
