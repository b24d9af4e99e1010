"""The normative bf16 arithmetic of DESIGN section 4: numpy only, one rounding per written operation, no reassociation.

bf16 values are uint16 bit patterns, channel-last. Sums and products are float32 (round to nearest, ties to even). A denormal operand counts as zero
of its sign, and a result that is below 2^-126 once it has been rounded to 24 bits becomes zero of its sign. Every NaN leaves as 0x7FC0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from npuforge.compile.ir.bf16 import CURVE_SEGMENTS, Bf16Stage

CANONICAL_NAN = 0x7FC0
LANES = 16
SMALLEST = np.float32(2.0**-126)  # smallest normal number
SEGMENTS_PER_UNIT = 16
_TINY = 2.0**-126 - 2.0**-151  # an exact product below this one rounds to less than SMALLEST
_SAFE = 2.0**-100  # products that are 0 or above it, of 16 significant bits: no sum of them can be denormal
_CHUNK = 1 << 15  # elements of an intermediate array: it stays in the processor's cache


def flush(x: ArrayLike) -> np.ndarray:
    """float32 with denormal values replaced by zeros of the same sign."""
    value = np.asarray(x, np.float32)
    return np.where(np.abs(value) < SMALLEST, np.copysign(np.float32(0.0), value), value)


def to_float32(bits: np.ndarray) -> np.ndarray:
    """bf16 bits as float32, denormals flushed."""
    return flush((np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32))


def from_float32(x: ArrayLike) -> np.ndarray:
    """float32 to bf16 bits: nearest, ties to even; denormals become zeros of the same sign, NaN 0x7FC0; uint16."""
    value = flush(x)
    word = np.ascontiguousarray(value).view(np.uint32)
    rounded = (word + np.uint32(0x7FFF) + ((word >> 16) & 1)) >> 16
    return np.where(np.isnan(value), np.uint16(CANONICAL_NAN), rounded.astype(np.uint16)).reshape(value.shape)


def add(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a + b; a sum of normal numbers that is denormal is exact, so that rounding and flushing cannot disagree."""
    with np.errstate(over="ignore", invalid="ignore"):
        return flush(flush(a) + flush(b))


def subtract(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a - b."""
    return add(a, -np.asarray(b, np.float32))


def multiply(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a * b."""
    left, right = flush(a), flush(b)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        product = left * right
        exact = left.astype(np.float64) * right.astype(np.float64)
    return np.where(np.abs(exact) < _TINY, np.copysign(np.float32(0.0), product), product)


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger of bf16 bits: -0 is below +0, NaN above everything. Denormals flushed, NaN canonical."""
    left, right = (sort_key(from_float32(to_float32(v))) for v in (a, b))
    return from_key(np.maximum(left, right))


def sort_key(bits: np.ndarray) -> np.ndarray:
    """int16 that orders as the bf16 values do."""
    signed = np.asarray(bits, np.uint16).view(np.int16)
    return signed ^ ((signed >> 15) & np.int16(0x7FFF))


def from_key(key: np.ndarray) -> np.ndarray:
    """Inverse of `sort_key`."""
    return (key ^ ((key >> 15) & np.int16(0x7FFF))).view(np.uint16)


# ---- convolution -----------------------------------------------------------------------------------------------------
def weigh(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x * weight, +0 where the weight is zero: what lies in lanes that no weight reads, be it NaN, cannot matter."""
    return np.where(flush(weight) == 0, np.float32(0.0), multiply(x, weight))


class _Exact:
    """Sums and products with flushing."""

    add = staticmethod(add)
    weigh = staticmethod(weigh)


class _Plain:
    """The same bits where no denormal number can occur: sums are never -0 then, so that the sign of a zero product does not matter."""

    @staticmethod
    def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a + b)

    @staticmethod
    def weigh(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.asarray(x * weight)


def _arithmetic(x: np.ndarray, weight: np.ndarray) -> type[_Exact] | type[_Plain]:
    """`_Plain` where every product is 0 or at least 2^-100: it is then a multiple of 2^-115, and so is every rounded sum."""

    def smallest(values: np.ndarray) -> float:
        magnitude = np.abs(values[values != 0])
        return float(magnitude.min(initial=np.inf))

    if not (np.isfinite(x).all() and np.isfinite(weight).all()):
        return _Exact
    return _Plain if smallest(x) * smallest(weight) >= _SAFE else _Exact


def tree(x: np.ndarray, weight: np.ndarray, arithmetic: type[_Exact] | type[_Plain] = _Exact) -> np.ndarray:
    """Balanced tree over 16 lanes: x [16, P], weight [16, O] -> [P, O]; lanes (0,1)(2,3)..., then pairs of pairs, four times."""
    waiting: list[tuple[int, np.ndarray]] = []  # (lanes summed, sum)
    for lane in range(LANES):
        part, count = arithmetic.weigh(x[lane][:, None], weight[lane][None, :]), 1
        while waiting and waiting[-1][0] == count:
            part, count = arithmetic.add(waiting.pop()[1], part), 2 * count
        waiting.append((count, part))
    return waiting[0][1]


def valid_range(size: int, out: int, tap: int, stride: int, pad: int, dilation: int) -> tuple[int, int]:
    """Output positions [low, high) whose source position*stride - pad + tap*dilation lies in 0..size-1."""
    offset = tap * dilation - pad
    low = max(0, -(offset // stride))
    high = min(out, (size - 1 - offset) // stride + 1)
    return low, max(low, high)


def taps(
    shape: tuple[int, int],
    out: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int],
    dilations: tuple[int, int],
) -> Iterator[tuple[int, int, tuple[slice, slice], tuple[slice, slice]]]:
    """(ky, kx, output pixels that the tap reaches inside the map, their source pixels), in order; `pads` = (top, left)."""
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            target, source = [], []
            for axis, t in enumerate((ky, kx)):
                low, high = valid_range(shape[axis], out[axis], t, strides[axis], pads[axis], dilations[axis])
                first = low * strides[axis] - pads[axis] + t * dilations[axis]
                target.append(slice(low, high))
                source.append(
                    slice(first, first + max(0, high - low - 1) * strides[axis] + (high > low), strides[axis])
                )
            yield ky, kx, (target[0], target[1]), (source[0], source[1])


Geometry = tuple[
    tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]
]  # out size, strides, pads, dilations


def convolve(x: np.ndarray, weight: np.ndarray, geometry: Geometry) -> np.ndarray:
    """float32 sums [H', W', O] of lanes x [H, W, I] and weight [O, kH, kW, I] (bf16 bits, I a multiple of 16), without bias.

    Blocks are added in order (ky, kx, block) to +0; a tap outside the map adds +0, a product with a zero weight is +0.
    """
    out, strides, pads, dilations = geometry
    values, weights = to_float32(x), to_float32(weight)
    arithmetic = _arithmetic(values, weights)
    outputs, kernel_h, kernel_w, lanes = weight.shape
    acc = np.zeros((*out, outputs), np.float32)
    zero = np.float32(0.0)
    window = (kernel_h, kernel_w), strides, pads, dilations
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for ky, kx, (rows, cols), (from_rows, from_cols) in taps((x.shape[0], x.shape[1]), out, *window):
            source = values[from_rows, from_cols]
            height, width, _ = source.shape
            chunk = max(1, _CHUNK // max(1, width * outputs))
            for block in range(0, lanes, LANES):
                tile = np.ascontiguousarray(weights[:, ky, kx, block : block + LANES].T)
                if arithmetic is _Exact:  # -0 + +0 = +0 where the tap is outside
                    outside = np.ones(out, bool)
                    outside[rows, cols] = False
                    acc[outside] = add(acc[outside], zero)
                for low in range(0, height, chunk):
                    part = source[low : low + chunk, :, block : block + LANES]
                    pixels = np.ascontiguousarray(part.reshape(-1, LANES).T)
                    total = tree(pixels, tile, arithmetic).reshape(len(part), width, outputs)
                    target = acc[rows, cols][low : low + chunk]
                    target[...] = arithmetic.add(target, total)
    return acc


def depthwise(x: np.ndarray, weight: np.ndarray, geometry: Geometry) -> np.ndarray:
    """float32 sums [H', W', C] of x [H, W, C] and weight [kH, kW, C] (bf16 bits), taps in order, without bias."""
    out, strides, pads, dilations = geometry
    values, weights = to_float32(x), to_float32(weight)
    acc = np.zeros((*out, x.shape[2]), np.float32)
    for ky, kx, target, source in taps(x.shape[:2], out, weight.shape[:2], strides, pads, dilations):
        product = np.zeros_like(acc)
        product[target] = weigh(values[source], weights[ky, kx])
        acc = add(acc, product)
    return acc


def max_pool(x: np.ndarray, kernel: tuple[int, int], geometry: Geometry) -> np.ndarray:
    """bf16 bits of the largest valid tap; every window has one."""
    out, strides, pads, dilations = geometry
    keys = sort_key(from_float32(to_float32(x)))
    best = np.full((*out, x.shape[2]), sort_key(np.array(0xFF80, np.uint16)), np.int16)  # minus infinity
    for _, _, target, source in taps(x.shape[:2], out, kernel, strides, pads, dilations):
        best[target] = np.maximum(best[target], keys[source])
    return from_key(best)


def average_pool(
    x: np.ndarray, kernel: tuple[int, int], geometry: Geometry, factor: np.ndarray, single: bool
) -> np.ndarray:
    """bf16 bits of (sum of the n valid taps in order) * factor[n - 1] (factor[0] if `single`)."""
    out, strides, pads, dilations = geometry
    values = to_float32(x)
    acc = np.zeros((*out, x.shape[2]), np.float32)
    count = np.zeros(out, np.int64)
    for _, _, target, source in taps(x.shape[:2], out, kernel, strides, pads, dilations):
        acc[target] = add(acc[target], values[source])
        count[target] += 1
    factors = np.asarray(factor, np.float32)[np.zeros_like(count) if single else count - 1]
    return from_float32(multiply(acc, factors[..., None]))


def mix(first: np.ndarray, second: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(1 - weight)*first + weight*second, `first` where the weight is 0. float32."""
    w = flush(weight)
    blended = add(multiply(subtract(np.float32(1.0), w), first), multiply(w, second))
    return np.where(w == 0.0, first, blended)


Table = tuple[np.ndarray, np.ndarray, np.ndarray]


def resize(x: np.ndarray, rows: Table, cols: Table) -> np.ndarray:
    """bf16 bits: columns of the two source rows are mixed, then the rows. Tables: i0, i1, float32 weight of i1 per output position."""
    values = to_float32(x)
    (y0, y1, wy), (x0, x1, wx) = rows, cols
    upper, lower = (mix(values[y][:, x0], values[y][:, x1], wx[None, :, None]) for y in (y0, y1))
    return from_float32(mix(upper, lower, wy[:, None, None]))


# ---- output stage ----------------------------------------------------------------------------------------------------
def build_curve(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """float32 [3, 256]: per segment of 1/16 the parabola through its two ends and its middle, written around the end nearest 0.

    Segment 128 + i covers i/16 <= x < (i+1)/16, segment 127 - i the mirrored -(i+1)/16 < x <= -i/16. c0 is the function at the end nearest 0, so that
    small arguments keep their relative precision.
    """
    index = np.arange(CURVE_SEGMENTS)
    sign = np.where(index >= CURVE_SEGMENTS // 2, 1.0, -1.0)
    steps = np.where(sign > 0, index - CURVE_SEGMENTS // 2, CURVE_SEGMENTS // 2 - 1 - index)
    h = sign / SEGMENTS_PER_UNIT
    start = h * steps
    f0, f1, f2 = (np.asarray(function(start + h * part), np.float64) for part in (0.0, 0.5, 1.0))
    slope = (4.0 * f1 - 3.0 * f0 - f2) / h
    bend = 2.0 * (f2 - 2.0 * f1 + f0) / (h * h)
    return flush(np.stack([f0, slope, bend]).astype(np.float32))


def curve(x: np.ndarray, stage: Bf16Stage) -> np.ndarray:
    """The curve of a float32 argument: c0 + d*(c1 + d*c2) inside [-8, 8), tails outside, NaN for NaN."""
    assert stage.table is not None
    value = flush(x)
    magnitude = np.minimum(np.abs(np.nan_to_num(value, nan=0.0)), np.float32(8.0))
    step = np.minimum((magnitude * np.float32(SEGMENTS_PER_UNIT)).astype(np.int64), CURVE_SEGMENTS // 2 - 1)
    negative = value < 0
    index = np.where(negative, CURVE_SEGMENTS // 2 - 1 - step, CURVE_SEGMENTS // 2 + step)
    end = (step / SEGMENTS_PER_UNIT).astype(np.float32)
    d = subtract(np.where(np.isfinite(value), value, np.float32(0.0)), np.where(negative, -end, end))
    c0, c1, c2 = stage.table[:, index]
    inside = add(c0, multiply(d, add(c1, multiply(d, c2))))
    tails = [
        value if tail.is_input else to_float32(np.array(tail.bits, np.uint16))
        for tail in (stage.tail_low, stage.tail_high)
    ]
    result = np.where(value < -8.0, tails[0], np.where(value >= 8.0, tails[1], inside))
    return np.where(np.isnan(value), value, result)


def apply_stage(acc: np.ndarray, stage: Bf16Stage) -> np.ndarray:
    """bf16 bits of float32 sums (channel-last) through `stage`."""
    value = add(acc, stage.bias)
    negative = value < 0
    value = curve(value, stage) if stage.kind == "table" else np.where(negative, multiply(value, stage.slope), value)
    low, high = flush(stage.low), flush(stage.high)
    value = np.where(value < low, low, value)
    value = np.where(value > high, high, value)
    return from_float32(np.where(low == high, low, value))
