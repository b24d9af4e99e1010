"""The normative integer arithmetic of DESIGN section 4: rounding, saturation, requantisation stages, tables, multipliers and shifts.

Numpy only. Arrays of activations and accumulators are channel-last; parameters have one entry per channel. All products and sums are int64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuforge.compile.ir.quantization import OutputStage, Tail

MULTIPLIER_MAX = 32767
SHIFT_MAX = 47
TABLE_SIZE = 257
FRACTION_BITS_MIN = 5
FRACTION_BITS_MAX = 11


def round_half_up(x: np.ndarray | float) -> np.ndarray:
    """floor(x + 1/2) of float64 values without the rounding error of the addition; stays float64."""
    value = np.asarray(x, np.float64)
    low = np.floor(value)
    return low + (value - low >= 0.5)


def sat8(x: np.ndarray) -> np.ndarray:
    """Clip to [-128, 127], int8."""
    return np.clip(x, -128, 127).astype(np.int8)


def sat16(x: np.ndarray) -> np.ndarray:
    """Clip to [-32768, 32767], kept as int64 for further arithmetic."""
    return np.clip(np.asarray(x, np.int64), -32768, 32767)


def rounding_shift(x: np.ndarray, shift: np.ndarray | int) -> np.ndarray:
    """(x + 2^(S-1)) >> S in int64; the rounding term is 0 where S = 0."""
    s = np.asarray(shift, np.int64)
    half = np.where(s > 0, np.int64(1) << np.maximum(s - 1, 0), 0)
    return (np.asarray(x, np.int64) + half) >> s


def factor_shift(factors: np.ndarray, limit: int = SHIFT_MAX) -> np.ndarray:
    """The largest S in 0..limit with round_half_up(|m|*2^S) <= 32767 for all factors that share S; -1 where none exists.

    `factors` is [k, C] (k factors share the shift of a channel) or [C]; the result is int64 [C].
    """
    largest = np.abs(np.atleast_2d(np.asarray(factors, np.float64))).max(axis=0)
    if not np.isfinite(largest).all():
        raise ValueError("requantisation factor is not finite")
    fraction, exponent = np.frexp(largest)  # largest = fraction * 2^exponent, fraction in [0.5, 1) or 0
    shift = np.where(fraction * 32768.0 < 32767.5, 15 - exponent, 14 - exponent)
    shift = np.where(largest == 0.0, limit, np.minimum(shift, limit))
    return np.where(shift < 0, -1, shift).astype(np.int64)


def multiplier(factors: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """M = sign(m)*round_half_up(|m|*2^S), int16."""
    m = np.asarray(factors, np.float64)
    magnitude = round_half_up(np.ldexp(np.abs(m), np.asarray(shift, np.int64).astype(np.int32)))
    if (magnitude > MULTIPLIER_MAX).any():
        raise ValueError("multiplier does not fit 16 bits: choose the shift with factor_shift")
    return (np.sign(m) * magnitude).astype(np.int16)


def power_of_two_factor(exponent: int, headroom: int = 14) -> tuple[int, int]:
    """The `pow2` factor 2^exponent as (k, S): M = 2^k, S = 0 for a left shift; k is at most `headroom`."""
    if exponent > headroom or -exponent > SHIFT_MAX:
        raise ValueError(f"factor 2^{exponent} is outside 2^-{SHIFT_MAX}..2^{headroom}")
    return (exponent, 0) if exponent > 0 else (0, -exponent)


def choose_fraction_bits(largest: float) -> int:
    """The largest F in 5..11 for which a pre-activation of this magnitude fits 16 bits (5 if none)."""
    for bits in range(FRACTION_BITS_MAX, FRACTION_BITS_MIN, -1):
        if round_half_up(largest * 2.0**bits) <= 32767:
            return bits
    return FRACTION_BITS_MIN


def build_table(function: Callable[[np.ndarray], np.ndarray], fraction_bits: int) -> np.ndarray:
    """T[k] = sat16(round_half_up(f(k/16)*2^F)), -128 <= k <= 128, stored at k + 128; int16 [257]."""
    x = np.arange(-128, 129, dtype=np.float64) / 16.0
    return sat16(round_half_up(function(x) * 2.0**fraction_bits).astype(np.int64)).astype(np.int16)


def interpolate(t: np.ndarray, table: np.ndarray, fraction_bits: int, tail_low: Tail, tail_high: Tail) -> np.ndarray:
    """u(t) of the table output: linear interpolation inside [-8, 8), the tails outside; int64."""
    t = np.asarray(t, np.int64)
    step = fraction_bits - 4
    edge = 8 << fraction_bits
    entries = table.astype(np.int64)
    inside = np.clip(t, -edge, edge - 1)
    k = (inside >> step) + 128
    r = inside & ((1 << step) - 1)
    base = entries[k]
    u = base + (((entries[k + 1] - base) * r + (1 << (step - 1))) >> step)
    u = np.where(t < -edge, t if tail_low.is_input else np.int64(tail_low.value), u)
    return np.where(t >= edge, t if tail_high.is_input else np.int64(tail_high.value), u)


def _clamp(x: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
    lo = -128 if low is None else low.astype(np.int64)
    hi = 127 if high is None else high.astype(np.int64)
    return np.minimum(np.maximum(x, lo), hi).astype(np.int8)


def pwl_stage(acc: np.ndarray, stage: OutputStage) -> np.ndarray:
    """Piecewise-linear output: clamp(((acc*(acc<0 ? Mn : Mp) + 2^(S-1)) >> S) + z, lo, hi)."""
    assert stage.m_pos is not None and stage.m_neg is not None
    acc = np.asarray(acc, np.int64)
    positive, negative = stage.m_pos.astype(np.int64), stage.m_neg.astype(np.int64)
    factor = positive if np.array_equal(positive, negative) else np.where(acc < 0, negative, positive)
    return _clamp(rounding_shift(acc * factor, stage.shift) + stage.zero_point.astype(np.int64), stage.low, stage.high)


def table_stage(acc: np.ndarray, stage: OutputStage) -> np.ndarray:
    """Table output: t = sat16(acc*M1 >> S1), u = table(t), y = sat8((u*M2 >> S2) + z), shifts rounding."""
    assert stage.m_pos is not None and stage.m_neg is not None and stage.shift2 is not None and stage.table is not None
    t = sat16(rounding_shift(np.asarray(acc, np.int64) * stage.m_pos.astype(np.int64), stage.shift))
    u = interpolate(t, stage.table, stage.fraction_bits, stage.tail_low, stage.tail_high)
    return sat8(rounding_shift(u * stage.m_neg.astype(np.int64), stage.shift2) + stage.zero_point.astype(np.int64))


def direct_stage(acc: np.ndarray, stage: OutputStage) -> np.ndarray:
    """Element-wise output, multipliers already applied: clamp(((d + 2^(S-1)) >> S) + z, lo, hi)."""
    return _clamp(rounding_shift(acc, stage.shift) + stage.zero_point.astype(np.int64), stage.low, stage.high)


_STAGES = {"pwl": pwl_stage, "table": table_stage, "direct": direct_stage}
_BLOCK = 1 << 14  # accumulators at a time: their int64 intermediates stay in the processor's cache


def apply_stage(acc: np.ndarray, stage: OutputStage, bias: np.ndarray | None = None) -> np.ndarray:
    """int8 output of accumulators (channel-last) through `stage`. `acc` may be float where it holds integers exactly; int32 `bias` is added."""
    function = _STAGES[stage.kind]
    channels = acc.shape[-1]
    flat = acc.reshape(-1, channels)
    result = np.empty(flat.shape, np.int8)
    rows = max(1, _BLOCK // channels)
    for first in range(0, len(flat), rows):
        block = flat[first : first + rows].astype(np.int64)
        if bias is not None:
            block += bias
        result[first : first + rows] = function(block, stage)
    return result.reshape(acc.shape)
