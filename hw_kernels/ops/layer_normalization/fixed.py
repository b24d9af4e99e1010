"""LayerNormalization in integers, as kernel.hpp has it: values and bias with 8 fraction bits, scale with 12, epsilon with 16."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.fixed_math import normalised, scaled
from npuforge.hw_kernels.operator import HlsKernel, KernelCase

MAX_LENGTH = 4096


def fixed_layer_normalization(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: int) -> np.ndarray:
    """int16 [n] to int16 [n]."""
    values = normalised([int(v) for v in x], epsilon)
    return np.array([scaled(v, int(s), int(b)) for v, s, b in zip(values, scale, bias, strict=True)], np.int16)


def _case(random: np.random.Generator) -> KernelCase:
    length = int(random.choice([1, 2, int(random.integers(1, 200)), 4096]))
    x, scale, bias = random.integers(-32768, 32768, (3, length)).astype(np.int16)
    x = (x // int(random.choice([1, 100, 32767]))).astype(np.int16)
    epsilon = int(random.choice([0, 1, 65536]))
    expected = fixed_layer_normalization(x, scale, bias, epsilon)
    return [x, scale, bias, length, epsilon, np.zeros(length, np.int16)], [expected]


KERNEL = HlsKernel(
    f"layer_normalization<{MAX_LENGTH}>",
    ("const int16_t*", "const int16_t*", "const int16_t*", "int32_t", "int32_t", "int16_t*"),
    _case,
)
