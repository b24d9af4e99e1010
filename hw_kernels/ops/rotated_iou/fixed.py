"""RotatedIou in integers, as kernel.hpp has it: int16 boxes with 4 fraction bits, overlaps with 14."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.operator import HlsKernel, KernelCase
from npuforge.hw_kernels.rotated_fixed import overlap, random_boxes

MAX_BOXES = 256


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
