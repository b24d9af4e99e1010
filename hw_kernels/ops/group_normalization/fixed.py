"""GroupNormalization in integers, as kernel.hpp has it, one group: values and bias with 8 fraction bits, scale with 12, epsilon with 16."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.fixed_math import normalised, scaled
from npuforge.hw_kernels.operator import HlsKernel, KernelCase

MAX_VALUES = 32768


def fixed_group_normalization(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: int) -> np.ndarray:
    """int16 [channels, pixels] to the same."""
    values = normalised([int(v) for v in x.ravel()], epsilon)
    pixels = x.shape[1]
    rows = [scaled(v, int(scale[i // pixels]), int(bias[i // pixels])) for i, v in enumerate(values)]
    return np.array(rows, np.int16).reshape(x.shape)


def _case(random: np.random.Generator) -> KernelCase:
    channels, pixels = (int(v) for v in random.choice([(1, 1), (3, 7), (16, 64), (5, 1), (32, 128)]))
    x = (random.integers(-32768, 32768, (channels, pixels)) // int(random.choice([1, 100]))).astype(np.int16)
    scale, bias = random.integers(-32768, 32768, (2, channels)).astype(np.int16)
    epsilon = int(random.choice([0, 1, 65536]))
    expected = fixed_group_normalization(x, scale, bias, epsilon)
    return [x, scale, bias, channels, pixels, epsilon, np.zeros((channels, pixels), np.int16)], [expected]


KERNEL = HlsKernel(
    f"group_normalization<{MAX_VALUES}>",
    ("const int16_t*", "const int16_t*", "const int16_t*", "int32_t", "int32_t", "int32_t", "int16_t*"),
    _case,
)
