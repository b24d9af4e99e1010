"""Edges of a kernel of its own: the NPU's int8 and bf16 to the fixed-point integers it computes with, and back; the normative bits of hls/edges.hpp.

int8 enters and leaves through a multiplier and a shift per channel (DESIGN section 4, one rounding half up), so that channels of unlike scales meet
in one fixed-point unit. bf16 enters by a shift of its mantissa (half up; saturation; NaN 0) and leaves rounded to nearest even.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.hw_kernels.arithmetic import SHIFT_MAX, factor_shift, multiplier, round_half_up, rounding_shift, sat8

NAN_BF16 = 0x7FC0
OFFSET_MAX = 2**30  # of an affine edge: int32


@dataclass(frozen=True)
class Edge:
    """How channels enter or leave: int64 [C] each. Entering: (q - z) * M / 2^S. Leaving: sat8(v * M / 2^S + z)."""

    multiplier: np.ndarray
    shift: np.ndarray
    zero_point: np.ndarray

    @property
    def records(self) -> np.ndarray:
        """What the C++ takes: int32 [C]; multiplier in the lowest 16 bits, then shift and zero point in 8 each."""
        parts = (
            self.multiplier & 0xFFFF,
            (self.shift & 0xFF) << 16,
            (np.asarray(self.zero_point, np.int64) & 0xFF) << 24,
        )
        return (parts[0] | parts[1] | parts[2]).astype(np.uint32).view(np.int32)


def _edge(factors: np.ndarray, zero_point: np.ndarray, what: str) -> Edge:
    shift = factor_shift(factors)
    if (shift < 0).any():
        raise QuantisationError(
            f"{what}: a factor of {np.abs(factors).max():g} needs more than 16 bits; raise the output's scale"
        )
    zeros = np.broadcast_to(np.asarray(zero_point, np.int64), shift.shape)
    return Edge(multiplier(factors, shift).astype(np.int64), shift, zeros)


def entering(scale: np.ndarray, zero_point: np.ndarray, fraction_bits: int) -> Edge:
    """Of int8 channels [C] into integers with so many fraction bits (below 0: whole powers of two)."""
    return _edge(np.ldexp(np.asarray(scale, np.float64), fraction_bits), zero_point, "edge into a kernel")


def leaving(scale: np.ndarray, zero_point: np.ndarray, fraction_bits: int) -> Edge:
    """Of integers with so many fraction bits to int8 channels [C]."""
    return _edge(np.ldexp(1.0 / np.asarray(scale, np.float64), -fraction_bits), zero_point, "edge out of a kernel")


def leaving_affine(
    factor: np.ndarray, offset: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, fraction_bits: int
) -> tuple[Edge, np.ndarray, np.ndarray]:
    """Of v * factor + offset, v with so many fraction bits, factor and offset [P, C], to int8 channels [C], one rounding.

    Gives the edge (its own multiplier is 0), multipliers int16 [P, C] and offsets int32 [P, C]: sat8((v * M + K) / 2^S + z). A channel's shift is the
    largest with which its multipliers and offsets fit.
    """
    factors = np.ldexp(np.asarray(factor, np.float64) / scale, -fraction_bits)
    offsets = np.asarray(offset, np.float64) / scale
    shift = factor_shift(factors)
    largest = np.abs(offsets).max(axis=0)
    room = np.where(largest > 0, np.floor(np.log2(OFFSET_MAX / np.where(largest > 0, largest, 1.0))), SHIFT_MAX)
    shift = np.minimum(shift, room.astype(np.int64))
    if (shift < 0).any():
        raise QuantisationError("edge out of a kernel: a factor or an offset does not fit; raise the output's scale")
    m = multiplier(factors, np.broadcast_to(shift, factors.shape))
    k = round_half_up(np.ldexp(offsets, np.broadcast_to(shift, offsets.shape).astype(np.int32))).astype(np.int32)
    return Edge(np.zeros_like(shift), shift, np.broadcast_to(np.asarray(zero_point, np.int64), shift.shape)), m, k


def fixed_of_int8(q: np.ndarray, edge: Edge) -> np.ndarray:
    """int8 [..., C] to int64, below 2^24 in magnitude."""
    return rounding_shift((q.astype(np.int64) - edge.zero_point) * edge.multiplier, edge.shift)


def int8_of_fixed(value: np.ndarray, edge: Edge, offset: np.ndarray | int = 0) -> np.ndarray:
    """int64 [..., C] to int8; `offset` is added before the shift."""
    return sat8(rounding_shift(np.asarray(value, np.int64) * edge.multiplier + offset, edge.shift) + edge.zero_point)


def fixed_of_bf16(bits: np.ndarray, fraction_bits: int | np.ndarray, limit: int) -> np.ndarray:
    """round_half_up(value * 2^fraction_bits) saturated to -limit .. limit (below 2^31), int64; NaN and denormals 0, infinities +-limit."""
    word = np.asarray(bits, np.uint16).astype(np.int64)
    exponent, negative = (word >> 7) & 0xFF, word >> 15 != 0
    mantissa = np.where(negative, -1, 1) * ((word & 0x7F) | 0x80)
    shift = exponent - 134 + fraction_bits
    moved = np.where(
        shift < 0, rounding_shift(mantissa, np.clip(-shift, 0, 10)), mantissa << np.clip(shift, 0, 40)
    )  # 10 bits to the right leave 0, 40 to the left more than any limit
    result = np.clip(moved, -limit, limit)
    result = np.where(exponent == 255, np.where((word & 0x7F) != 0, 0, np.where(negative, -limit, limit)), result)
    return np.where(exponent == 0, 0, result)


def _normalised(value: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading `bits` bits of |value|, rounded to nearest even, and the bit length (after the carry); value is not 0."""
    magnitude = np.abs(value).astype(np.uint64)
    length = np.zeros(value.shape, np.int64)
    rest = magnitude.copy()
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >> np.uint64(step) != 0
        length += np.where(high, step, 0)
        rest = np.where(high, rest >> np.uint64(step), rest)
    length += 1
    drop = np.maximum(length - bits, 0).astype(np.uint64)
    kept, lost = magnitude >> drop, magnitude & ((np.uint64(1) << drop) - np.uint64(1))
    half = np.where(drop > 0, np.uint64(1) << (np.maximum(drop, np.uint64(1)) - np.uint64(1)), np.uint64(0))
    up = (drop > 0) & ((lost > half) | ((lost == half) & (kept & np.uint64(1) != 0)))
    kept = (kept + up) << np.maximum(bits - length, 0).astype(np.uint64)
    carried = kept >> np.uint64(bits) != 0
    return np.where(carried, kept >> np.uint64(1), kept).astype(np.int64), length + carried


def bf16_of_fixed(value: np.ndarray, fraction_bits: int) -> np.ndarray:
    """value / 2^fraction_bits to the nearest bf16, ties to even; uint16. Infinite above the range, zero of its sign below it."""
    v = np.asarray(value, np.int64)
    kept, length = _normalised(np.where(v == 0, 1, v), 8)
    exponent = 126 + length - fraction_bits
    word = np.where(exponent < 1, 0, np.where(exponent > 254, 0x7F80, (exponent << 7) | (kept & 0x7F)))
    return np.where(v == 0, 0, np.where(v < 0, 0x8000, 0) | word).astype(np.uint16)


def float_of_fixed(value: np.ndarray, fraction_bits: int | np.ndarray) -> np.ndarray:
    """The same as float32, for arithmetic that ends in `bf16.from_float32`."""
    v = np.asarray(value, np.int64)
    kept, length = _normalised(np.where(v == 0, 1, v), 24)
    exponent = 126 + length - fraction_bits
    word = np.where(exponent < 1, 0, np.where(exponent > 254, 0x7F800000, (exponent << 23) | (kept & 0x7FFFFF)))
    return np.where(v == 0, 0, np.where(v < 0, 0x80000000, 0) | word).astype(np.uint32).view(np.float32)
