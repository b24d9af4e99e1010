"""From real factors to the integers of an output stage (DESIGN section 4), in `fine` and `pow2` mode."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Activation
from npuforge.compile.ir.quantization import OutputStage
from npuforge.hw_kernels.activations import curve, limits, slopes
from npuforge.hw_kernels.arithmetic import (
    MULTIPLIER_MAX,
    build_table,
    choose_fraction_bits,
    factor_shift,
    multiplier,
    round_half_up,
)

SCALE_RANGE = 1024.0  # a channel's range is floored at the tensor's range / 1024
DIFFERENCE_SHIFT_MAX = (
    33  # of element-wise operands before a stage, so that the stage's shift (14 more) stays within 47
)


def channel_scales(low: np.ndarray, high: np.ndarray, alpha: float) -> np.ndarray:
    """s[c] = R*(r[c]/R)^alpha/255 with r floored at R/1024; 1 where R = 0."""
    width = high - low
    largest = float(width.max(initial=0.0))
    if largest == 0.0:
        return np.ones(len(width))
    return largest * (np.maximum(width, largest / SCALE_RANGE) / largest) ** alpha / 255.0


def zero_points(low: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """z[c] = clamp(round_half_up(-128 - min/s)), int32."""
    return np.clip(round_half_up(-128.0 - low / scale), -128, 127).astype(np.int32)


def output_limits(activation: Activation, scale: np.ndarray, zero: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Clamp limits of a piecewise-linear output, int8 [C]."""
    low, high = limits(activation)
    lo = np.full(len(scale), -128.0) if np.isinf(low) else zero + round_half_up(low / scale)
    hi = np.full(len(scale), 127.0) if np.isinf(high) else zero + round_half_up(high / scale)
    return np.clip(lo, -128, 127).astype(np.int8), np.clip(hi, -128, 127).astype(np.int8)


def largest_slope(activation: Activation, channels: int) -> np.ndarray:
    """The larger of 1 and |slope|: the largest factor of the stage in units of the positive one."""
    return np.maximum(1.0, np.abs(slopes(activation, channels)))


def raised(scale: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """The output scale, raised where factor/scale would not fit a multiplier."""
    return np.maximum(scale, np.abs(factor) / MULTIPLIER_MAX)


def pwl(factor: np.ndarray, activation: Activation, scale: np.ndarray, zero: np.ndarray) -> OutputStage:
    """Piecewise-linear stage; `factor` is real value per accumulator unit, `scale` the output's (already raised)."""
    positive = factor / scale
    factors = np.stack([positive, positive * slopes(activation, len(scale))])
    shift = factor_shift(factors)
    low, high = output_limits(activation, scale, zero)
    m = multiplier(factors, shift)
    return OutputStage("pwl", shift.astype(np.int8), zero.astype(np.int8), m_pos=m[0], m_neg=m[1], low=low, high=high)


def fraction_bits(largest: float, factor: np.ndarray) -> int:
    """F of a table stage: the largest for which the calibrated pre-activation and the first multiplier fit."""
    bits = choose_fraction_bits(largest)
    while bits > 5 and float(np.abs(factor).max(initial=0.0)) * 2.0**bits >= MULTIPLIER_MAX:
        bits -= 1
    return bits


def table(factor: np.ndarray, activation: Activation, scale: np.ndarray, zero: np.ndarray, bits: int) -> OutputStage:
    """Table stage with F = `bits`; `scale` (already raised) is the output's."""
    first = factor * 2.0**bits
    second = 2.0**-bits / scale
    shift, shift2 = factor_shift(first), factor_shift(second)
    bent = curve(activation)
    tail_low, tail_high = bent.tails(bits)
    return OutputStage(
        "table",
        shift.astype(np.int8),
        zero.astype(np.int8),
        m_pos=multiplier(first, shift),
        m_neg=multiplier(second, shift2),
        shift2=shift2.astype(np.int8),
        table=build_table(bent.function, bits),
        fraction_bits=bits,
        tail_low=tail_low,
        tail_high=tail_high,
    )


def direct(shift: np.ndarray, activation: Activation, scale: np.ndarray, zero: np.ndarray) -> OutputStage:
    """Direct stage: the multipliers were applied to the operands."""
    low, high = output_limits(activation, scale, zero)
    return OutputStage("direct", shift.astype(np.int8), zero.astype(np.int8), low=low, high=high)
