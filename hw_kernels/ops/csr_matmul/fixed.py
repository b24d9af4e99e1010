"""CsrMatMul on the NPU's int8 (int32 sums) and bf16 (float32 sums in the engine's order), as kernel.hpp has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.arithmetic import round_half_up, sat8
from npuforge.hw_kernels.edges import Edge, int8_of_fixed, leaving
from npuforge.hw_kernels.kernel_data import nothing_to_do, padded, real, rounding_bound, scales, store
from npuforge.hw_kernels.operator import KernelForm, KernelRun


def integer_product(
    values: np.ndarray, columns: np.ndarray, pointers: np.ndarray, x: np.ndarray, zero: np.ndarray
) -> np.ndarray:
    """The normative sums, int32 [rows, 16]: int8 values times (int8 x - zero points)."""
    rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    sums = np.zeros((len(pointers) - 1, x.shape[1]), np.int64)
    np.add.at(sums, rows, values.astype(np.int64)[:, None] * (x.astype(np.int64) - zero)[columns])
    return sums.astype(np.int32)


def float_product(values: np.ndarray, columns: np.ndarray, pointers: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The normative bf16 bits [rows, N] of bf16 values and x [inner, N]: 16 values of a row at a time as a balanced tree, trees in order to +0."""
    given, weights = bf16.to_float32(x), bf16.to_float32(values)
    sums = np.zeros((len(pointers) - 1, x.shape[1]), np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for row in range(len(sums)):
            for start in range(int(pointers[row]), int(pointers[row + 1]), bf16.LANES):
                chosen = slice(start, min(start + bf16.LANES, int(pointers[row + 1])))
                lanes, weight = np.zeros((bf16.LANES, x.shape[1]), np.float32), np.zeros((bf16.LANES, 1), np.float32)
                count = chosen.stop - chosen.start
                lanes[:count], weight[:count, 0] = given[columns[chosen]], weights[chosen]
                sums[row] = bf16.add(sums[row], bf16.tree(lanes, weight)[:, 0])
    return bf16.from_float32(sums)


def on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Columns of x lie in the lanes. int8 values have one scale and no zero point, as weights. Bound: the last rounding and, in int8, 2^-15 of the value by
    its multiplier; in bf16 2^-24 of the sum of magnitudes for each addition on the way."""
    if not np.size(inputs[0]):
        return nothing_to_do(node, inputs)
    x, (values, columns, pointers) = store(inputs[0], 1, mode), (np.asarray(v) for v in inputs[1:])
    narrow = [columns.astype(np.int32), pointers.astype(np.int32)]
    rows, (inner, channels) = len(pointers) - 1, x.bits.shape

    def product(weights: np.ndarray, dense: np.ndarray) -> np.ndarray:
        y = np.zeros((rows, channels))
        np.add.at(y, np.repeat(np.arange(rows), np.diff(pointers)), weights[:, None] * dense[columns])
        return y

    lanes = x.lanes
    if mode == "bf16":
        stored = bf16.from_float32(values)
        known = bf16.to_float32(stored).astype(np.float64)
        out = TensorQuant(np.ones(channels), np.zeros(channels, np.int32), dtype="bf16")
        y = padded(float_product(stored, columns, pointers, x.bits))
        call = [stored, *narrow, rows, lanes, inner, lanes.shape[1], np.zeros_like(y)]
        steps = np.diff(pointers)[:, None] / bf16.LANES + 6.0
        slack = 2.0**-24 * steps * product(np.abs(known), np.abs(x.real))
    else:
        largest = float(np.abs(values).max(initial=0.0)) or 1.0
        scale = largest / 127 if mode == "fine" else 2.0 ** -np.floor(np.log2(127 / largest))
        stored = sat8(round_half_up(values / scale))
        known = stored * scale
        out = scales(product(known, x.real), 1, mode)
        edge = leaving(out.scale.astype(np.float64) / (scale * x.quant.scale.astype(np.float64)), out.zero_point, 0)
        pads = (0, lanes.shape[1] - channels)
        full = Edge(*(np.pad(v, pads) for v in (edge.multiplier, edge.shift, edge.zero_point)))
        zero = np.pad(x.quant.zero_point, pads).astype(np.int8)
        y = int8_of_fixed(integer_product(stored, columns, pointers, lanes, zero), full)
        call = [stored, *narrow, rows, lanes, inner, lanes.shape[1], zero, full.records, np.zeros_like(y)]
        slack = 2.0**-15 * np.abs(product(known, x.real))
    expected = product(known, x.real)
    bound = rounding_bound(expected, out, 1) + slack + 1e-12
    return KernelRun([(call, [y])], [x.real, known, columns, pointers], [real(y[:, :channels], out, 1)], [bound])


_INDICES = ("const int32_t*", "const int32_t*", "int32_t")
_BOUNDS = {3: (-1, 4097), 5: (0, 2, 2**16 + 1), 6: (0, 17, 2**12 + 16)}
KERNEL_INT8 = KernelForm(
    "csr_matmul_int8",
    ("const int8_t*", *_INDICES, "const int8_t*", "int32_t", "int32_t", "const int8_t*", "const int32_t*", "int8_t*"),
    on_the_npus_data,
    _BOUNDS,
)
KERNEL_BF16 = KernelForm(
    "csr_matmul_bf16",
    ("const uint16_t*", *_INDICES, "const uint16_t*", "int32_t", "int32_t", "uint16_t*"),
    on_the_npus_data,
    _BOUNDS,
)
