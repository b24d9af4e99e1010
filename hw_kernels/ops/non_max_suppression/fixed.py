"""NonMaxSuppression in integers, as kernel.hpp has it: one class, int16 corners, overlaps compared exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from npuforge.hw_kernels.operator import HlsKernel, KernelCase
from npuforge.hw_kernels.suppress_fixed import kernel_case

MAX_BOXES = 1024


def overlap(a: np.ndarray, b: np.ndarray) -> Fraction:
    """Exact intersection over union of boxes (low, low, high, high), 0 for empty ones."""
    (p, q), wide = (v.astype(object) for v in (a, b)), 0
    areas = [max(0, v[2] - v[0]) * max(0, v[3] - v[1]) for v in (p, q)]
    sides = [max(wide, min(p[i + 2], q[i + 2]) - max(p[i], q[i])) for i in (0, 1)]
    common = sides[0] * sides[1]
    return Fraction(common, areas[0] + areas[1] - common) if common and all(areas) else Fraction(0)


def _case(random: np.random.Generator) -> KernelCase:
    count = int(random.integers(0, 20))
    spread = int(random.choice([10, 1000, 16384]))
    low = random.integers(-spread, spread, (count, 2))
    boxes = np.concatenate([low, low + random.integers(-2, spread, (count, 2))], 1).clip(-32768, 32767).astype(np.int16)
    return kernel_case(boxes, lambda i, j, t: overlap(boxes[i], boxes[j]) > Fraction(t, 2**14), random)


KERNEL = HlsKernel(
    f"non_max_suppression<{MAX_BOXES}>",
    ("const int16_t*", "const int16_t*", *["int32_t"] * 4, "int32_t*", "int32_t*"),
    _case,
)
