"""Softmax in integers, as kernel.hpp has it: int16 logits with 8 fraction bits to probabilities with 14; int8 and bf16 in NHWC-16."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels.edges import (
    NAN_BF16,
    bf16_of_fixed,
    entering,
    fixed_of_bf16,
    fixed_of_int8,
    int8_of_fixed,
    leaving,
)
from npuforge.hw_kernels.fixed_math import divide_rounded, exponential_of_minus
from npuforge.hw_kernels.kernel_data import nothing_to_do, padded, real, rounding_bound, store
from npuforge.hw_kernels.operator import HlsKernel, KernelCase, KernelForm, KernelRun

MAX_LENGTH = 1024
UNIT_BITS = 30  # fraction bits of a probability before it leaves
LOGIT_BITS = 12
LOGIT_MAX = 2**30 - 1


def core(logits: list[int], fraction_bits: int, out_bits: int) -> list[int]:
    """Probabilities with `out_bits` fraction bits; logits have `fraction_bits`, 12 at most (below 0: large units)."""
    largest = max(logits)
    below = [(largest - v) << min(LOGIT_BITS - fraction_bits, 31) for v in logits]
    powers = [0 if b >= 2**31 else exponential_of_minus(b) for b in below]
    total = sum(powers)
    return [divide_rounded(p << out_bits, total) for p in powers]


def fixed_softmax(x: np.ndarray) -> np.ndarray:
    """int16 [n] to int16 [n]."""
    return np.array(core([int(v) for v in x], 8, 14), np.int16)


def _case(random: np.random.Generator) -> KernelCase:
    length = int(random.choice([1, 2, 16, int(random.integers(1, 100)), MAX_LENGTH]))
    x = random.integers(-32768, 32768, length) // int(random.choice([1, 8, 64]))
    x = x.astype(np.int16)
    return [x, length, np.zeros(length, np.int16)], [fixed_softmax(x)]


KERNEL = HlsKernel(f"softmax<{MAX_LENGTH}>", ("const int16_t*", "int32_t", "int16_t*"), _case)


# ---- int8 and bf16
def logit_bits(scale: np.ndarray) -> int:
    """Fraction bits of int8 logits inside: 12, fewer where the largest scale's multiplier would not fit."""
    return min(LOGIT_BITS, int(np.floor(np.log2(32767.0 / float(scale.max())))))


def int8_rows(x: np.ndarray, quant: TensorQuant, out: TensorQuant, channel_of: np.ndarray) -> np.ndarray:
    """int8 rows [R, n] of channels `channel_of` [R, n] to int8 rows."""
    bits = logit_bits(quant.scale)
    into = entering(quant.scale, quant.zero_point, bits)
    shape, flat = x.shape, channel_of.reshape(-1)
    each = type(into)(into.multiplier[flat], into.shift[flat], into.zero_point[flat])
    logits = fixed_of_int8(x.reshape(-1), each).reshape(shape)
    unit = np.array([core(row, bits, UNIT_BITS) for row in logits.tolist()], np.int64)
    return int8_of_fixed(unit, leaving(out.scale[:1], out.zero_point[:1], UNIT_BITS))


def bf16_rows(x: np.ndarray) -> np.ndarray:
    """bf16 rows [R, n] to the same."""
    result = np.empty_like(x)
    for row, out in zip(x, result, strict=True):
        exponent = (row >> 7) & 0xFF
        finite = exponent != 255
        if (~finite & (row != 0xFF80)).any() or not finite.any():
            out[:] = NAN_BF16
            continue
        bits = min(LOGIT_BITS, 156 - int(exponent[finite].max()))
        logits = fixed_of_bf16(row, bits, LOGIT_MAX)
        out[:] = bf16_of_fixed(np.array(core(logits.tolist(), bits, UNIT_BITS)), UNIT_BITS)
    return result


def _layout(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], int]:
    """The map N, C, ... that the tensor is, and the axis in it. Axis 2 of four is a box head's [N, sides, bins, boxes]: its sides and bins are the
    channels of the convolution before it, in groups."""
    if len(shape) == 1:
        return (1, *shape), 1
    if len(shape) == 4 and axis == 2:
        return (shape[0], shape[1] * shape[2], shape[3]), 1
    return shape, axis


def _on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    given = inputs[0]
    if not np.size(given):
        return nothing_to_do(node, inputs)
    axis = int(node.attrs.get("axis", -1)) % given.ndim
    length = given.shape[axis]
    shape, along = _layout(given.shape, axis)
    x = store(given.reshape(shape), 1, mode)
    places = np.arange(x.bits.size).reshape(x.bits.shape)
    memory_axis = x.bits.ndim - 1 if along == 1 else max(0, along - 1)
    if along == 1:
        rows = places.reshape(-1, length)
        outer, inner = int(np.prod(x.bits.shape[:-1])), x.bits.shape[-1] // length
    else:
        rows = np.moveaxis(places, memory_axis, -1).reshape(-1, length)
        outer, inner = (int(np.prod(v)) for v in (x.bits.shape[:memory_axis], x.bits.shape[memory_axis + 1 : -1]))
    channels = x.bits.shape[-1]
    if mode == "bf16":
        out = TensorQuant(np.ones(channels), np.zeros(channels, np.int32), dtype="bf16")
        moved = bf16_rows(x.bits.reshape(-1)[rows])
        edges: list[Any] = []
    else:
        step, zero = (1 / 256, -128) if mode == "fine" else (2.0**-7, 0)
        out = TensorQuant(np.full(channels, step), np.full(channels, zero, np.int32))
        moved = int8_rows(x.bits.reshape(-1)[rows], x.quant, out, rows % channels)
        bits = logit_bits(x.quant.scale)
        leave = int(leaving(out.scale[:1], out.zero_point[:1], UNIT_BITS).records[0])
        edges = [entering(x.quant.scale, x.quant.zero_point, bits).records, bits, leave]
    y = np.empty(x.bits.shape, x.bits.dtype)
    y.reshape(-1)[rows] = moved
    expected = padded(y)
    arguments = [x.lanes, *edges, outer, length, inner, channels, int(along == 1), np.zeros_like(expected)]
    stored = x.real.reshape(given.shape)
    return KernelRun(
        [(arguments, [expected])],
        [stored],
        [real(y, out, 1).reshape(given.shape)],
        [_bound(x.real, x.quant, out, stored, axis)],
    )


def _bound(x: np.ndarray, quant: TensorQuant, out: TensorQuant, given: np.ndarray, axis: int) -> np.ndarray:
    """The last rounding, and of the probability p: twice what a logit is off (half a unit inside, 2^-15 of itself by its multiplier), 2^-12 by the
    exponential (log2(e) has 16 bits, the largest exponent that is not 0 is 20), two units inside; 2^-7 of a step by the multiplier that leads out."""
    with np.errstate(invalid="ignore"):  # infinities: no bound where there is no number
        shifted = given - given.max(axis, keepdims=True)
        logarithm = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    p = np.exp(logarithm)
    if quant.dtype == "bf16":
        off, step = 2.0 ** -(LOGIT_BITS + 1), 0.0
    else:
        off, step = 2.0 ** -(logit_bits(quant.scale) + 1) + 2.0**-15 * float(np.abs(x).max()), float(out.scale[0])
    rounding = rounding_bound(p.reshape(x.shape), out, 1).reshape(p.shape)
    moved = np.maximum(np.exp(np.minimum(logarithm + 2 * off, 0.0)) - p, -p * np.expm1(-2 * off))
    return np.asarray(rounding + moved + p * 2.0**-12 + 2.0 ** (1 - UNIT_BITS) + 2.0**-7 * step)


_SIZES = ("int32_t",) * 5  # outer, length, inner, channels, along the channels
KERNEL_INT8 = KernelForm(
    f"softmax_int8<{MAX_LENGTH}>",
    ("const int8_t*", "const int32_t*", "int32_t", "int32_t", *_SIZES, "int8_t*"),
    _on_the_npus_data,
    {2: (-129, 13), 3: (48 << 16,), 4: (0, 2**24), 5: (0, 1025, 4), 6: (0, 2**24), 7: (0, 2**24)},
)
KERNEL_BF16 = KernelForm(
    f"softmax_bf16<{MAX_LENGTH}>",
    ("const uint16_t*", *_SIZES, "uint16_t*"),
    _on_the_npus_data,
    {1: (0, 2**24), 2: (0, 1025, 4), 3: (0, 2**24), 4: (0, 2**24)},
)
