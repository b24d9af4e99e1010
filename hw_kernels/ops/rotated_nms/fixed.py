"""RotatedNms in integers, as kernel.hpp has it: one class, overlaps with 14 fraction bits."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.operator import HlsKernel, KernelCase
from npuforge.hw_kernels.rotated_fixed import overlap, random_boxes
from npuforge.hw_kernels.suppress_fixed import kernel_case

MAX_BOXES = 512


def _case(random: np.random.Generator) -> KernelCase:
    boxes = random_boxes(random, int(random.integers(0, 14)))
    rows = boxes.tolist()
    return kernel_case(boxes, lambda i, j, threshold: overlap(rows[i], rows[j]) > threshold, random)


KERNEL = HlsKernel(
    f"rotated_nms<{MAX_BOXES}>",
    ("const int16_t*", "const int16_t*", *["int32_t"] * 4, "int32_t*", "int32_t*"),
    _case,
)
