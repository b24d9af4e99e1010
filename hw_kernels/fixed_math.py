"""Fixed-point functions of the HLS kernels that no engine runs, in Python's own integers: the normative bits of hls/fixed_math.hpp, normalise.hpp.

Largest errors against float64 (tests/hw_kernels/test_fixed_kernels.py): e^-x and the sigmoid 2^-15, a normalised value 2^-12 of itself and half a unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

SEGMENTS = 64
TABLE = [round(2**30 * 2.0 ** (-k / SEGMENTS)) for k in range(SEGMENTS + 1)]
LOG2_E = round(math.log2(math.e) * 2**16)


def power_of_half(t: int) -> int:
    """2^-t with 30 fraction bits; t has 24."""
    whole, part = t >> 24, t & 0xFFFFFF
    base, following = TABLE[part >> 18], TABLE[(part >> 18) + 1]
    value = base - (((base - following) * (part & 0x3FFFF)) >> 18)
    return value if whole == 0 else 0 if whole > 31 else (value + (1 << (whole - 1))) >> whole


def exponential_of_minus(x: int) -> int:
    """e^-x with 30 fraction bits; x >= 0 has 12."""
    t = (x * LOG2_E) >> 4
    return power_of_half(t) if t < 2**29 else 0


def divide_rounded(numerator: int, denominator: int) -> int:
    """The nearest integer, halves away from 0; the denominator is positive."""
    quotient = (abs(numerator) + denominator // 2) // denominator
    return -quotient if numerator < 0 else quotient


def sigmoid(x: int) -> int:
    """1 / (1 + e^-x) with 15 fraction bits; x has 12."""
    small = exponential_of_minus(abs(x))
    return divide_rounded((small if x < 0 else 2**30) << 15, 2**30 + small)


def normalised(values: Sequence[int], epsilon: int, bits: int = 12, centred: bool = True) -> list[int]:
    """(x - mean) / sqrt(variance + epsilon) with `bits` fraction bits, 20 at most; values have 8, epsilon 16 (or any, and twice as many).

    Not `centred`: x / sqrt(mean of x^2 + epsilon).
    """
    count, total = len(values), sum(values) if centred else 0
    spread = count * sum(v * v for v in values) - total * total + count * count * epsilon
    if spread == 0:
        return [0] * count
    shift = (64 - spread.bit_length() - 1) & ~1
    root = math.isqrt(spread << shift)
    return [divide_rounded((count * v - total) << (shift // 2 + bits), root) for v in values]


def scaled(value: int, scale: int, bias: int) -> int:
    """scale * value + bias in int16 with 8 fraction bits; value and scale have 12, bias 8."""
    return min(max(((value * scale + 2**15) >> 16) + bias, -32768), 32767)
