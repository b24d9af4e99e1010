"""Softmax in integers, as kernel.hpp has it: logits with 8 fraction bits, probabilities with 14."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.fixed_math import divide_rounded, exponential_of_minus
from npuforge.hw_kernels.operator import HlsKernel, KernelCase

MAX_LENGTH = 1024


def fixed_softmax(x: np.ndarray) -> np.ndarray:
    """int16 [n] to int16 [n]."""
    logits = [int(v) for v in x]
    powers = [exponential_of_minus((max(logits) - v) * 16) for v in logits]
    return np.array([divide_rounded(p << 14, sum(powers)) for p in powers], np.int16)


def _case(random: np.random.Generator) -> KernelCase:
    length = int(random.choice([1, 2, 16, int(random.integers(1, 100)), MAX_LENGTH]))
    x = random.integers(-32768, 32768, length) // int(random.choice([1, 8, 64]))
    x = x.astype(np.int16)
    return [x, length, np.zeros(length, np.int16)], [fixed_softmax(x)]


KERNEL = HlsKernel(f"softmax<{MAX_LENGTH}>", ("const int16_t*", "int32_t", "int16_t*"), _case)
