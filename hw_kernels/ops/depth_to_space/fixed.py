"""DepthToSpace on bytes [H, W, C], as kernel.hpp has it."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.operator import HlsKernel, KernelCase

MAX_CHANNELS = 1024


def moved(x: np.ndarray, block: int, column_row: bool) -> np.ndarray:
    """int8 [H*block, W*block, C] of [H, W, C*block*block], by ONNX's reshape and transpose."""
    height, width, depth = x.shape
    channels = depth // (block * block)
    if column_row:
        split = x.reshape(height, width, channels, block, block).transpose(0, 3, 1, 4, 2)
    else:
        split = x.reshape(height, width, block, block, channels).transpose(0, 2, 1, 3, 4)
    return split.reshape(height * block, width * block, channels)


def _case(random: np.random.Generator) -> KernelCase:
    height, width, channels, block = (int(v) for v in random.integers(1, 5, 4))
    x = random.integers(-128, 128, (height, width, channels * block * block)).astype(np.int8)
    expected = moved(x, block, column_row := bool(random.integers(0, 2)))
    return [x, height, width, channels, block, int(column_row), np.zeros_like(expected)], [expected]


KERNEL = HlsKernel(f"depth_to_space<{MAX_CHANNELS}>", ("const int8_t*", *["int32_t"] * 5, "int8_t*"), _case)
