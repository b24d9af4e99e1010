"""AngleEncode on the NPU's int8 and bf16, as kernel.hpp has it: radians to 180 degrees as 2^16, CORDIC, sine and cosine with 14 fraction bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels import cordic
from npuforge.hw_kernels.edges import (
    NAN_BF16,
    bf16_of_fixed,
    entering,
    fixed_of_int8,
    int8_of_fixed,
    leaving,
)
from npuforge.hw_kernels.kernel_data import padded, real, rounding_bound, scales, store
from npuforge.hw_kernels.operator import KernelForm, KernelRun
from npuforge.hw_kernels.turns import turns, wrapped

CODE_BITS = 14


def bf16_codes(angles: np.ndarray) -> np.ndarray:
    """bf16 radians [..., C] to bf16 [..., 2C]; NaN for NaN and infinities."""
    codes = np.concatenate(cordic.rotate(turns(angles)), -1)
    known = (angles >> 7) & 0xFF != 255
    return np.where(np.concatenate([known, known], -1), bf16_of_fixed(codes, CODE_BITS), NAN_BF16).astype(np.uint16)


def on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """The axis of the codes lies in the lanes. Bound: the last rounding; 2.5 units of 2^-14 by CORDIC and one by the multiplier that leads out; twice what
    the angle is off: half a unit, and in int8 what the multiplier is off (half of its own unit, 2^-15 of a step), once for each step."""
    axis = int(node.attrs.get("axis", 1)) % inputs[0].ndim
    x = store(inputs[0], axis, mode)
    channels, pixels = x.bits.shape[-1], int(np.prod(x.bits.shape[:-1]))
    twice = 2.0 * x.real
    expected = np.concatenate([np.sin(twice), np.cos(twice)], axis)
    unit = math.pi / 2**16
    if mode == "bf16":
        out = TensorQuant(np.ones(2 * channels), np.zeros(2 * channels, np.int32), dtype="bf16")
        y, records, off = bf16_codes(x.bits), [], np.full(twice.shape, unit)
    else:
        out = scales(expected, axis, mode)
        units = x.quant.scale.astype(np.float64) / unit  # of a step; whole half turns of it change nothing
        units = (units + 32768) % 65536 - 32768
        into = entering(np.clip(units, -32767, 32767), x.quant.zero_point, 0)
        out_of = leaving(out.scale, out.zero_point, CODE_BITS)
        codes = np.concatenate(cordic.rotate(wrapped(fixed_of_int8(x.bits, into))), -1)
        y, records = int8_of_fixed(codes, out_of), [into.records, out_of.records]
        moved = np.abs(units - into.multiplier / 2.0**into.shift) * unit
        off = unit + 2 * np.moveaxis(np.abs(x.bits.astype(np.int64) - x.quant.zero_point) * moved, -1, axis)
    lanes = padded(y)
    call: list[Any] = [x.lanes, pixels, channels, *records, np.zeros_like(lanes)]
    bound = rounding_bound(expected, out, axis) + 3.5 * 2.0**-14 + np.concatenate([off, off], axis)
    return KernelRun([(call, [lanes])], [x.real], [real(y, out, axis)], [bound])


_BOUNDS = {1: (-1, 2**20 + 1), 2: (0, 513)}
_SIZES = ("int32_t", "int32_t")
KERNEL_INT8 = KernelForm(
    "angle_encode_int8",
    ("const int8_t*", *_SIZES, "const int32_t*", "const int32_t*", "int8_t*"),
    on_the_npus_data,
    _BOUNDS,
)
KERNEL_BF16 = KernelForm("angle_encode_bf16", ("const uint16_t*", *_SIZES, "uint16_t*"), on_the_npus_data, _BOUNDS)
