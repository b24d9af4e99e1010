"""YoloDecode in integers, as kernel.hpp has it: one anchor at one cell. Logits have 8 fraction bits, pixels 4, scores 14."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.fixed_math import LOG2_E, exponential_of_minus, power_of_half, sigmoid
from npuforge.hw_kernels.operator import HlsKernel, KernelCase

MAX_CLASSES = 128
LOG_MAX = 10 * 256  # largest tw, th: beyond it the size stays


def half_extent(extent: int, t: int) -> int:
    """extent/2 * e^t."""
    if t <= 0:
        return (extent * exponential_of_minus(-t * 16) + 2**30) >> 31
    exponent = min(t, LOG_MAX) * LOG2_E
    shift = 30 - (exponent >> 24)
    return (extent * power_of_half(2**24 - exponent % 2**24) + (1 << (shift - 1))) >> shift


def fixed_decode(
    t: np.ndarray, anchor: tuple[int, int], cell: tuple[int, int], stride: int
) -> tuple[list[int], int, int]:
    """Box (x1, y1, x2, y2), score and class of int16 values t; `cell` is column, row."""
    values = [int(v) for v in t]
    centre = [((sigmoid(v * 16) + (c << 15)) * stride + 2**10) >> 11 for v, c in zip(values, cell, strict=False)]
    half = [half_extent(extent, v) for extent, v in zip(anchor, values[2:4], strict=True)]
    label = int(np.argmax(t[5:]))
    score = (sigmoid(values[4] * 16) * sigmoid(values[5 + label] * 16) + 2**15) >> 16
    return [centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]], score, label


def _case(random: np.random.Generator) -> KernelCase:
    classes = int(random.choice([1, 2, 80, MAX_CLASSES]))
    t = (random.integers(-32768, 32768, 5 + classes) // int(random.choice([1, 8, 64]))).astype(np.int16)
    anchor, cell = random.integers(0, 2**16 + 1, 2).astype(np.int32), [int(v) for v in random.integers(0, 16385, 2)]
    stride = int(random.choice([1, 8, 32, 256]))
    box, score, label = fixed_decode(t, (int(anchor[0]), int(anchor[1])), (cell[0], cell[1]), stride)
    outputs = [np.zeros(4, np.int32), np.zeros(1, np.int16), np.zeros(1, np.int32)]
    expected: list[np.ndarray] = [np.array(box, np.int32), np.array([score], np.int16), np.array([label], np.int32)]
    return [t, anchor, *cell, stride, classes, *outputs], expected


KERNEL = HlsKernel(
    f"yolo_decode<{MAX_CLASSES}>",
    ("const int16_t*", "const int32_t*", *["int32_t"] * 4, "int32_t*", "int16_t*", "int32_t*"),
    _case,
)
