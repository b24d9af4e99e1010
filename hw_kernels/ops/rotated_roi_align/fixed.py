"""RotatedRoiAlign in integers, as kernel.hpp has it: one region, 16 int8 channels; pixels with 8 fraction bits, results with 7."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.cordic import rotate
from npuforge.hw_kernels.fixed_math import divide_rounded
from npuforge.hw_kernels.operator import HlsKernel, KernelCase

MAX_BINS = 32


def fixed_align(pixels: np.ndarray, region: list[int], angle: int, rows: int, columns: int, samples: int) -> np.ndarray:
    """int16 [rows, columns, 16] of int8 pixels [height, width, 16]; region: centre x, y, width, height; angle int16, a turn as 2^16."""
    height, width, lanes = pixels.shape
    sine, cosine = (int(v[()]) for v in rotate(np.array(angle, np.int16)))
    total = np.zeros((rows, columns, lanes), np.int64)
    for i, j in np.ndindex(rows * samples, columns * samples):
        v = divide_rounded(region[3] * (2 * i + 1 - rows * samples), 2 * rows * samples)
        u = divide_rounded(region[2] * (2 * j + 1 - columns * samples), 2 * columns * samples)
        x = region[0] - 128 + ((u * cosine - v * sine + 2**13) >> 14)
        y = region[1] - 128 + ((u * sine + v * cosine + 2**13) >> 14)
        if x < -256 or x > width * 256 or y < -256 or y > height * 256:
            continue
        (left, share_x), (top, share_y) = (
            divmod(min(max(at, 0), (size - 1) * 256), 256) for at, size in ((x, width), (y, height))
        )
        for row, weight_y in ((top, 256 - share_y), (min(top + 1, height - 1), share_y)):
            for column, weight_x in ((left, 256 - share_x), (min(left + 1, width - 1), share_x)):
                total[i // samples, j // samples] += weight_y * weight_x * pixels[row, column].astype(np.int64)
    divisor = samples * samples * 512
    return np.array([divide_rounded(int(v), divisor) for v in total.ravel()], np.int16).reshape(total.shape)


def _case(random: np.random.Generator) -> KernelCase:
    height, width, rows, columns = (int(v) for v in random.integers(1, 8, 4))
    samples, angle = int(random.integers(1, 5)), int(random.integers(-32768, 32768))
    pixels = random.integers(-128, 128, (height, width, 16)).astype(np.int8)
    region = random.integers(-512, 2048, 4).astype(np.int32)
    expected = fixed_align(pixels, [int(v) for v in region], angle, rows, columns, samples)
    y = np.zeros((rows, columns, 16), np.int16)
    return [pixels, height, width, region, angle, rows, columns, samples, y], [expected]


KERNEL = HlsKernel(
    f"rotated_roi_align<{MAX_BINS}>",
    ("const int8_t*", "int32_t", "int32_t", "const int32_t*", *["int32_t"] * 4, "int16_t*"),
    _case,
)
