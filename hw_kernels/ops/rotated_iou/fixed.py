"""RotatedIou in integers, as kernel.hpp has it: int16 boxes with 4 fraction bits, overlaps with 14; and the NPU's int8 and bf16."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels.edges import bf16_of_fixed, int8_of_fixed, leaving
from npuforge.hw_kernels.kernel_data import padded, raised, real, rounding_bound, scales, store
from npuforge.hw_kernels.operator import HlsKernel, KernelCase, KernelForm, KernelRun
from npuforge.hw_kernels.rotated import overlap as exact_overlap
from npuforge.hw_kernels.rotated_fixed import overlap, random_boxes
from npuforge.hw_kernels.rotated_lists import pairs

MAX_BOXES = 256
BITS = 14  # fraction bits of overlaps


def _case(random: np.random.Generator) -> KernelCase:
    counts = [int(v) for v in random.integers(0, 9, 2)]
    a = random_boxes(random, counts[0])
    b = random_boxes(random, counts[1])
    if counts[0] and counts[1]:
        b[0] = a[0]
    expected = np.array([[overlap(p, q) for q in b.tolist()] for p in a.tolist()], np.int16).reshape(counts)
    return [a, counts[0], b, counts[1], np.zeros(counts, np.int16)], [expected]


KERNEL = HlsKernel(
    f"rotated_iou<{MAX_BOXES}>", ("const int16_t*", "int32_t", "const int16_t*", "int32_t", "int16_t*"), _case
)


def on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Values of a box lie in the lanes, the second list's boxes in the output's. Bound: the last rounding, a unit of 2^-14, and `overlap_bound`'s."""
    a, b = (store(x, 1, mode) for x in inputs)
    pair, of_a, of_b, off = pairs(a, b)
    count_a, count_b = len(a.bits), len(b.bits)
    found = np.array([[pair(i, j) for j in range(count_b)] for i in range(count_a)], np.int64).reshape(count_a, count_b)
    expected = np.array([[exact_overlap(p, q) for q in b.real] for p in a.real]).reshape(count_a, count_b)
    if mode == "bf16":
        out = TensorQuant(np.ones(count_b), np.zeros(count_b, np.int32), dtype="bf16")
        y, records = bf16_of_fixed(found, BITS), []
    else:
        out = raised(scales(expected, 1, mode), np.full(count_b, 2.0**-BITS / 32767))
        edge = leaving(out.scale, out.zero_point, BITS)
        y, records = int8_of_fixed(found, edge), [edge.records]
    lanes = padded(y)
    call = [a.lanes, count_a, *of_a, b.lanes, count_b, *of_b, *records, np.zeros_like(lanes)]
    bound = rounding_bound(expected, out, 1) + off * (1 + 2.0**-8) + 2.0**-BITS
    return KernelRun([(call, [lanes])], [a.real, b.real], [real(y, out, 1)], [bound])


_OUTSIDE = (-1, MAX_BOXES + 1)
_SHIFTS = (-1, 33)
KERNEL_INT8 = KernelForm(
    f"rotated_iou_int8<{MAX_BOXES}>",
    (*("const int8_t*", "int32_t", "const int32_t*", "int32_t") * 2, "const int32_t*", "int8_t*"),
    on_the_npus_data,
    {1: _OUTSIDE, 3: _SHIFTS, 5: _OUTSIDE, 7: _SHIFTS},
)
KERNEL_BF16 = KernelForm(
    f"rotated_iou_bf16<{MAX_BOXES}>",
    ("const uint16_t*", "int32_t", "const uint16_t*", "int32_t", "uint16_t*"),
    on_the_npus_data,
    {1: _OUTSIDE, 3: _OUTSIDE},
)
