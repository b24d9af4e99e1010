"""Angles in bf16 radians to a whole turn as 2^16, of any size; the normative bits of hls/turns.hpp. And int8 angles by an edge."""

from __future__ import annotations

import math

import numpy as np

from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels.arithmetic import rounding_shift
from npuforge.hw_kernels.edges import fixed_of_bf16

BITS, LIMIT = 20, 2**30  # fraction bits of bf16 radians inside; 1,024 radians
UNITS = round(2**30 / math.pi)  # of a radian, 180 degrees as 2^16, with 14 fraction bits
FAR = 137  # exponent field of 1,024 radians


def wrapped(units: np.ndarray) -> np.ndarray:
    """int16: what is left of whole turns of twice the angle."""
    return ((np.asarray(units, np.int64) + 32768) % 65536 - 32768).astype(np.int16)


def _rests() -> np.ndarray:
    """What is left of whole half turns of 2^(e - 134) radians, 180 degrees as 2^32; e = 137 .. 254. Pi by Machin's formula."""
    bits = 400

    def arctangent_of_inverse(n: int) -> int:
        term = (1 << bits) // n
        total, k, sign = term, 1, -1
        while term:
            term //= n * n
            k += 2
            total, sign = total + sign * (term // k), -sign
        return total

    pi = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    turns = [(((1 << (e - 134 + bits + 64)) // pi + 2**31) >> 32) % 2**32 for e in range(FAR, 255)]
    return np.array(turns, np.int64)


RESTS = _rests()


def turns(angles: np.ndarray) -> np.ndarray:
    """int16: twice an angle in bf16, a whole turn as 2^16; 0 for what is not finite."""
    exponent = ((angles >> 7) & 0xFF).astype(np.int64)
    near = rounding_shift(fixed_of_bf16(angles, BITS, LIMIT) * UNITS, BITS + 14)
    rest = ((angles & 0x7F) | 0x80).astype(np.int64) * RESTS[np.clip(exponent - FAR, 0, len(RESTS) - 1)] % 2**32
    far = ((rest + 2**15) >> 16) * np.where(angles >> 15 != 0, -1, 1)
    return wrapped(np.where(exponent < FAR, near, np.where(exponent == 255, 0, far)))


def whole_turns(angles: np.ndarray) -> np.ndarray:
    """int16: an angle in bf16, a whole turn as 2^16: twice its half."""
    bits = np.asarray(angles, np.uint16)
    exponent = (bits >> 7) & 0xFF
    halved = np.where(exponent == 255, bits, bits - np.where(exponent < 2, 0, 0x80)).astype(np.uint16)
    return np.where(exponent < 2, 0, turns(halved)).astype(np.int16)


def units_of_turn(quant: TensorQuant, channel: int) -> float:
    """Of one step of an int8 channel in radians, a whole turn as 2^16: what is left of whole turns, within +-32767."""
    units = quant.scale.astype(np.float64)[channel] * 2**15 / math.pi
    return float(np.clip((units + 32768) % 65536 - 32768, -32767, 32767))
