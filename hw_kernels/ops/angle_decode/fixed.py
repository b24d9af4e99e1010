"""AngleDecode on the NPU's int8 and bf16, as kernel.hpp has it: a sine and its cosine in one fixed point of 16 bits, CORDIC, radians."""

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
    fixed_of_bf16,
    fixed_of_int8,
    int8_of_fixed,
    leaving,
)
from npuforge.hw_kernels.kernel_data import padded, real, rounding_bound, scales, store
from npuforge.hw_kernels.operator import KernelForm, KernelRun

PI = round(math.pi * 2**28)
UNIT = math.pi / 2**16  # radians


def fixed_points(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sine and cosine (int64, below 2^15) of bf16 codes [..., 2C] in the larger one's fixed point, and how many fraction bits that has."""
    exponent = ((x >> 7) & 0xFF).astype(np.int64)
    largest = np.maximum(*np.split(exponent, 2, -1))
    bits = np.where(largest == 255, -200, 141 - largest)  # beside infinity everything is 0
    sine, cosine = (fixed_of_bf16(v, bits, 32767) for v in np.split(x, 2, -1))
    return sine, cosine, bits


def angles_of(cosine: np.ndarray, sine: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """int64, 180 degrees as 2^16. int16 ends where -90 degrees meets 90: what is rounded to 90 from below (`positive` sines) stays below."""
    angle = cordic.angle_of(cosine, sine).astype(np.int64)
    return np.where((angle == -32768) & positive, 32767, angle)


def bf16_angles(x: np.ndarray) -> np.ndarray:
    """bf16 codes [..., 2C] to bf16 radians [..., C]."""
    sine, cosine, _ = fixed_points(x)
    given, other = np.split(x, 2, -1)
    angle = angles_of(cosine, sine, (given < 0x8000) & (given & 0x7F80 != 0) & (other & 0x7F80 != 0x7F80))
    known = np.logical_and(*np.split((x & 0x7FFF) <= 0x7F80, 2, -1))
    return np.where(known, bf16_of_fixed(angle * PI, 44), NAN_BF16).astype(np.uint16)


def on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """The axis of the codes lies in the lanes. Bound: the last rounding; 4 units of CORDIC; what sine and cosine are off (a unit of their fixed point and
    2^-15 of each) as seen from the origin, half of it, since the code has twice the angle."""
    axis = int(node.attrs.get("axis", 1)) % inputs[0].ndim
    x = store(inputs[0], axis, mode)
    channels, pixels = x.bits.shape[-1] // 2, int(np.prod(x.bits.shape[:-1]))
    real_sine, real_cosine = np.split(x.real, 2, axis)
    angle = 0.5 * np.arctan2(real_sine, real_cosine)
    expected = np.where(angle >= np.pi / 2, -np.pi / 2, angle)
    if mode == "bf16":
        out = TensorQuant(np.ones(channels), np.zeros(channels, np.int32), dtype="bf16")
        y, records, bits = bf16_angles(x.bits), [], fixed_points(x.bits)[2]
    else:
        out = scales(expected, axis, mode)
        largest = np.tile(np.maximum(*np.split(x.quant.scale, 2)), 2)
        own = np.floor(np.log2(32767 / (256 * largest)))
        into = entering(x.quant.scale.astype(np.float64) * 2.0**own, x.quant.zero_point, 0)
        out_of = leaving(out.scale.astype(np.float64) / UNIT, out.zero_point, 0)
        sine, cosine = np.split(np.clip(fixed_of_int8(x.bits, into), -32768, 32767), 2, -1)
        y, records = int8_of_fixed(angles_of(cosine, sine, sine > 0), out_of), [into.records, out_of.records]
        bits = np.broadcast_to(own[:channels], y.shape)
    lanes = padded(y)
    radius = np.hypot(real_sine, real_cosine)
    units = np.moveaxis(2.0 ** -np.asarray(bits, np.float64), -1, axis)
    seen = np.divide(units, radius, out=np.zeros(radius.shape), where=radius > 0) + 2.0**-15
    bound = rounding_bound(expected, out, axis) + 4 * UNIT + 0.5 * seen + 2.0**-15 * np.abs(expected)
    call: list[Any] = [x.lanes, pixels, channels, *records, np.zeros_like(lanes)]
    return KernelRun([(call, [lanes])], [x.real], [real(y, out, axis)], [bound])


_BOUNDS = {1: (-1, 2**20 + 1), 2: (0, 513)}
_SIZES = ("int32_t", "int32_t")
KERNEL_INT8 = KernelForm(
    "angle_decode_int8",
    ("const int8_t*", *_SIZES, "const int32_t*", "const int32_t*", "int8_t*"),
    on_the_npus_data,
    _BOUNDS,
)
KERNEL_BF16 = KernelForm("angle_decode_bf16", ("const uint16_t*", *_SIZES, "uint16_t*"), on_the_npus_data, _BOUNDS)
