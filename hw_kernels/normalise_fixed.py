"""Normalisation of int8 and bf16 sets in integers, the normative bits of hls/normalise_lanes.hpp, and its stated error; LayerNormalization,
RMSNormalization, GroupNormalization and InstanceNormalization share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.arithmetic import round_half_up
from npuforge.hw_kernels.edges import (
    NAN_BF16,
    OFFSET_MAX,
    Edge,
    entering,
    fixed_of_bf16,
    fixed_of_int8,
    float_of_fixed,
    int8_of_fixed,
    leaving_affine,
)
from npuforge.hw_kernels.fixed_math import normalised
from npuforge.hw_kernels.kernel_data import Stored, raised, rounding_bound

LARGEST = 32767
BITS, FLOAT_BITS = 12, 20  # fraction bits of a normalised value on its way to int8, to a float
EPSILON_BITS = 30


@dataclass(frozen=True)
class Parameters:
    """float64 [P, C]: P is 1 (one per channel) or the pixels of a set."""

    scale: np.ndarray
    bias: np.ndarray
    epsilon: float
    centred: bool = True


# ---- int8
def _by_epsilon(epsilon: float) -> int:
    return 10**6 if epsilon == 0.0 else (EPSILON_BITS - int(np.frexp(epsilon)[1])) // 2


def int8_fraction_bits(quant: TensorQuant, epsilon: float) -> int:
    """Of the integers inside: the farthest int8 value of any channel has 15 bits, epsilon no more than 30."""
    farthest = np.maximum(127 - quant.zero_point, quant.zero_point + 128) * quant.scale
    return min(int(np.floor(np.log2(LARGEST / farthest.max()))), _by_epsilon(epsilon))


@dataclass(frozen=True)
class Int8Settings:
    """What the int8 kernel is given."""

    into: Edge
    multipliers: np.ndarray  # int16 [P, C]
    offsets: np.ndarray  # int32 [P, C]
    out: Edge
    epsilon: int


def fitting(y: TensorQuant, parameters: Parameters) -> TensorQuant:
    """The output's scales, raised where a multiplier or an offset would not fit."""
    factor = np.abs(parameters.scale).max(axis=0) * 2.0**-BITS / LARGEST
    return raised(y, np.maximum(factor, np.abs(parameters.bias).max(axis=0) / OFFSET_MAX))


def int8_settings(x: TensorQuant, y: TensorQuant, parameters: Parameters) -> Int8Settings:
    """From the scales of input and output."""
    bits = int8_fraction_bits(x, parameters.epsilon)
    out, m, k = leaving_affine(parameters.scale, parameters.bias, y.scale, y.zero_point, BITS)
    epsilon = int(round_half_up(np.ldexp(parameters.epsilon, 2 * bits)))
    return Int8Settings(entering(x.scale, x.zero_point, bits), m, k, out, epsilon)


def int8_set(x: np.ndarray, channels: slice, settings: Int8Settings, centred: bool) -> np.ndarray:
    """int8 [P, n] of `channels` to the same: one set."""

    def of(edge: Edge) -> Edge:
        return Edge(edge.multiplier[channels], edge.shift[channels], edge.zero_point[channels])

    values = np.clip(fixed_of_int8(x, of(settings.into)), -LARGEST, LARGEST)
    n = np.array(normalised(values.ravel().tolist(), settings.epsilon, BITS, centred), np.int64).reshape(x.shape)
    out = of(settings.out)
    one = Edge(np.ones_like(out.shift), out.shift, out.zero_point)
    m, k = (v[:, channels].astype(np.int64) for v in (settings.multipliers, settings.offsets))
    return int8_of_fixed(n * m, one, k)


# ---- bf16
def bf16_fraction_bits(x: np.ndarray, epsilon: float) -> int:
    """Of one set's integers: its largest value has 15 bits, epsilon no more than 30."""
    largest = max(1, int(((x >> 7) & 0xFF).max()))
    return min(141 - largest, _by_epsilon(epsilon))


def bf16_set(x: np.ndarray, parameters: Parameters) -> np.ndarray:
    """bf16 [P, n] to the same: one set, with its own parameters (rounded to float32, denormals 0).

    NaN throughout a set that holds NaN, or infinity where the mean is taken away; else what is infinite becomes NaN and the rest 0.
    """
    magnitude = x & 0x7FFF
    infinite = magnitude == 0x7F80
    if (magnitude > 0x7F80).any() or (infinite.any() and parameters.centred):
        return np.full(x.shape, NAN_BF16, np.uint16)
    epsilon = float(bf16.flush(np.float32(parameters.epsilon)))
    bits = bf16_fraction_bits(x, epsilon)
    values = fixed_of_bf16(x, bits, LARGEST)
    fixed_epsilon = int(round_half_up(np.ldexp(epsilon, 2 * bits)))
    n = normalised(values.ravel().tolist(), fixed_epsilon, FLOAT_BITS, parameters.centred)
    wide = float_of_fixed(np.zeros(x.size) if infinite.any() else np.array(n), FLOAT_BITS).reshape(x.shape)
    result = bf16.from_float32(bf16.add(bf16.multiply(wide, parameters.scale), bf16.flush(parameters.bias)))
    return np.where(infinite, np.uint16(NAN_BF16), result)


def float_bits(value: Any) -> np.ndarray:
    """float32 bits, uint32; of a number one entry."""
    return np.ascontiguousarray(value, np.float32).view(np.uint32)


# ---- the stated error
def error_bound(x: Stored, sets: np.ndarray, y: np.ndarray, quant: TensorQuant, parameters: Parameters) -> np.ndarray:
    """Largest error at values y, memory layout [..., C]; `sets` names the set of every value.

    A value is off by half a unit inside, in int8 by 2^-15 of the largest for its multiplier too. Mean and deviation move by as much: a normalised value n
    is off by (2 + |n|) times that over the deviation, by the rounding of epsilon, and by its own last bit. Then the scale, and the last rounding.
    """
    real = np.moveaxis(x.real, x.axis, -1)
    integer = quant.dtype != "bf16"
    bound = rounding_bound(y, quant, -1)
    scale, bias = (np.broadcast_to(v, y.shape) for v in (parameters.scale, parameters.bias))
    for index in range(int(sets.max()) + 1):
        here = sets == index
        values = real[here]
        if not np.isfinite(values).all():
            continue
        mean = values.mean() if parameters.centred else 0.0
        square = float(((values - mean) ** 2).mean()) + parameters.epsilon
        if square == 0.0 or (parameters.centred and len(values) == 1):
            continue  # 0, exactly
        if integer:
            unit = 2.0 ** -int8_fraction_bits(x.quant, parameters.epsilon)
            off, last = unit / 2 + 2.0**-15 * np.abs(values).max(), 2.0 ** -(BITS + 1)
        else:
            unit = 2.0 ** -bf16_fraction_bits(x.bits[here], parameters.epsilon)
            off, last = unit / 2, 2.0 ** -(FLOAT_BITS + 1)
        n = np.abs(values - mean) / np.sqrt(square)
        error = (2 + n) * off / np.sqrt(square) + n * unit**2 / (4 * square) + last
        bound[here] += np.abs(scale[here]) * (error + 2.0**-14 * n)
    step = quant.scale * 2.0**-7 if integer else 2.0**-22 * np.abs(bias) + 1e-37
    return np.asarray(bound + step)
