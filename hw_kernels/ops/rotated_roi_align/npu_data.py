"""RotatedRoiAlign of a map as the NPU holds it, int8 or bf16, and regions from the CPU in fixed point: kernel.hpp's integers, and what they may be off."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.arithmetic import round_half_up, rounding_shift
from npuforge.hw_kernels.cordic import rotate
from npuforge.hw_kernels.edges import Edge, float_of_fixed, int8_of_fixed, leaving
from npuforge.hw_kernels.kernel_data import Stored, nothing_to_do, padded, real, rounding_bound, scales, store
from npuforge.hw_kernels.operator import KernelForm, KernelRun, get
from npuforge.hw_kernels.ops.rotated_roi_align.samples import places

MAX_REGIONS, MAX_SAMPLES = 1024, 64
BITS, ONE = 16, 2**16  # of pixels
LARGEST = 2**30
WEIGHT_BITS, MEAN_BITS = 48, 20
TURN = 2 * math.pi / 2**16


def fixed_regions(rois: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Regions [K, 6] as the CPU hands them over, int32: image; centre, width and height in the map's pixels with 16 fraction bits; the angle, a turn as
    2^16; and what they then are, float64. QuantisationError where one is not finite or beyond 16,384 pixels."""
    given = np.asarray(rois, np.float64)
    moved = given * np.array([1.0, *[scale * ONE] * 4, 1 / TURN])
    bad = ~np.isfinite(moved).all(1) | (np.abs(moved[:, 1:5]) > LARGEST).any(1)
    if bad.any():
        k = int(np.argmax(bad))
        raise QuantisationError(
            f"region {k}: {given[k].tolist()}; expected finite values, centre and sides within 16,384 pixels of the map"
        )
    fixed = round_half_up(moved).astype(np.int64)
    fixed[:, 5] = (fixed[:, 5] + 32768) % 65536 - 32768
    return fixed.astype(np.int32), fixed / np.array([1.0, *[scale * ONE] * 4, 1 / TURN])


def _divided(numerator: np.ndarray, denominator: int) -> np.ndarray:
    """The nearest integer, halves away from 0."""
    quotient = (np.abs(numerator) + denominator // 2) // denominator
    return np.where(numerator < 0, -quotient, quotient)


def samples_of(extent: int, bins: int, ratio: int) -> int:
    """Samples along an axis of a bin."""
    return ratio if ratio > 0 else max(1, -(-extent // (bins * ONE)))


def by_bin(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """[rows * samples, columns * samples, ...] as [rows * columns, samples of a bin, ...]."""
    count_y, count_x = values.shape[0] // rows, values.shape[1] // columns
    split = values.reshape(rows, count_y, columns, count_x, *values.shape[2:])
    return np.ascontiguousarray(np.swapaxes(split, 1, 2)).reshape(rows * columns, count_y * count_x, *values.shape[2:])


def fixed_weights(
    region: list[int], height: int, width: int, rows: int, columns: int, count_y: int, count_x: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels that each bin reads and their weights with 48 fraction bits, int64 [rows * columns, samples * 4]."""
    sine, cosine = (int(v[()]) for v in rotate(np.array(region[5], np.int16)))
    u, v = (
        _divided(extent * (2 * np.arange(count, dtype=np.int64) + 1 - count), 2 * count)
        for extent, count in ((region[3], columns * count_x), (region[4], rows * count_y))
    )
    x = region[1] - ONE // 2 + rounding_shift(u[None] * cosine - v[:, None] * sine, 14)
    y = region[2] - ONE // 2 + rounding_shift(u[None] * sine + v[:, None] * cosine, 14)
    outside = (x < -ONE) | (x > width * ONE) | (y < -ONE) | (y > height * ONE)
    x, y = np.clip(x, 0, (width - 1) * ONE), np.clip(y, 0, (height - 1) * ONE)
    pixels, weights = [], []
    for dy, dx in np.ndindex(2, 2):
        row, column = np.minimum((y >> BITS) + dy, height - 1), np.minimum((x >> BITS) + dx, width - 1)
        share_y, share_x = (at % ONE if second else ONE - at % ONE for at, second in ((y, dy), (x, dx)))
        pixels.append(row * width + column)
        weights.append(np.where(outside, 0, _divided(share_y * share_x * ONE, count_y * count_x)))
    found = (by_bin(np.stack(v, -1), rows, columns).reshape(rows * columns, -1) for v in (pixels, weights))
    return next(found), next(found)


def int8_means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Means with 20 fraction bits, int64 [bins, C], of q - z [bins, samples * 4, C]."""
    return rounding_shift((values.astype(np.int64) * weights[..., None]).sum(1), WEIGHT_BITS - MEAN_BITS)


def bf16_means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """bf16 means [bins, C]: each product rounded to float32, added in order; a weight of 0 gives +0."""
    word, weight = values.astype(np.int64), weights[..., None]
    exponent = (word >> 7) & 0xFF
    mantissa = np.where(word >> 15 != 0, -1, 1) * ((word & 0x7F) | 0x80)
    products = float_of_fixed(np.where(exponent == 255, 0, mantissa) * weight, WEIGHT_BITS + 134 - exponent)
    products = np.where(exponent == 255, bf16.to_float32(values), products)
    products = np.where((weight == 0) | (exponent == 0), np.float32(0), products)
    total = np.zeros(products.shape[::2], np.float32)
    for step in range(products.shape[1]):
        total = bf16.add(total, products[:, step])
    return bf16.from_float32(total)


def place_bound(
    roi: np.ndarray, node: Node, image: np.ndarray, rows: int, columns: int, counts: tuple[int, int]
) -> np.ndarray:
    """What means [rows * columns, C] of an image [H, W, C] may be off because samples lie elsewhere than in float64.

    A sample lies off by e = (|u| + |v|) 2^-13 (CORDIC's two units of 2^-14 in sine and cosine) and 2.5 units of 2^-17 pixel on each axis. It costs e times the
    steepest slope on either axis within e of it. Where the map's outer edge (a pixel outside) lies within e, it may read 0 or the map: the largest magnitude
    within e. Where float64 counts other samples in a bin, the range of the channel. Infinite where a pixel within e is not finite.
    """
    height, width, _ = image.shape
    x, y, count_y, count_x = places(roi, node)
    if (count_y, count_x) != counts:
        with np.errstate(invalid="ignore"):
            span = np.maximum(image.max((0, 1)), 0) - np.minimum(image.min((0, 1)), 0)
        return np.tile(np.where(np.isfinite(span), span, np.inf), (rows * columns, 1))
    scale = float(node.attrs.get("spatial_scale", 1.0))
    w, h = (abs(float(v)) * scale for v in roi[3:5])
    u = np.abs((np.arange(columns * count_x) + 0.5) / (columns * count_x) - 0.5) * w
    v = np.abs((np.arange(rows * count_y) + 0.5) / (rows * count_y) - 0.5) * h
    off = (u[None] + v[:, None]) * 2.0**-13 + 2.5 * 2.0**-17
    beyond = [(at < -1 - off) | (at > size + off) for at, size in ((x, width), (y, height))]
    within = [(at > -1 + off) & (at < size - off) for at, size in ((x, width), (y, height))]
    low, high = (
        [np.floor(np.clip(at + sign * off, 0, size - 1)).astype(np.int64) for at, size in ((x, width), (y, height))]
        for sign in (-1, 1)
    )
    slope = np.zeros((*x.shape, image.shape[2]))
    largest = np.zeros_like(slope)
    finite = np.ones(slope.shape, bool)
    for down, along in np.ndindex(int((high[1] - low[1]).max()) + 1, int((high[0] - low[0]).max()) + 1):
        top, left = np.minimum(low[1] + down, high[1]), np.minimum(low[0] + along, high[0])
        bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
        a, b, c, d = image[top, left], image[top, right], image[bottom, left], image[bottom, right]
        with np.errstate(invalid="ignore"):
            across = np.maximum(np.abs(a - b), np.abs(c - d)) + np.maximum(np.abs(a - c), np.abs(b - d))
            slope = np.maximum(slope, across)
        largest = np.maximum(largest, np.abs([a, b, c, d]).max(0))
        finite &= np.isfinite([a, b, c, d]).all(0)
    with np.errstate(invalid="ignore"):
        cost = off[..., None] * slope
    cost += np.where((within[0] & within[1])[..., None], 0.0, largest)
    cost = np.where((beyond[0] | beyond[1])[..., None], 0.0, np.where(finite, cost, np.inf))
    return np.asarray(by_bin(cost, rows, columns).mean(1))


def on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """The map's channels lie in the lanes. Regions are not of the NPU: a head on the CPU makes them in float and hands them over as `fixed_regions`; int8 or
    bf16 boxes would move a sample by pixels (bf16: 2 pixels of 600). Bound: `place_bound`; the last rounding; in int8 what the multiplier is off and a
    unit of 2^-20 of a step of the map, in bf16 2^-24 of the mean magnitude for each product and addition."""
    if not np.size(inputs[0]) and not np.size(inputs[1]):
        return nothing_to_do(node, inputs)
    x: Stored = store(inputs[0], 1, mode)
    scale, ratio = float(node.attrs.get("spatial_scale", 1.0)), int(node.attrs.get("sampling_ratio", 0))
    rows, columns = int(node.attrs.get("output_height", 1)), int(node.attrs.get("output_width", 1))
    regions, rois = fixed_regions(inputs[1], scale)
    images, height, width, channels = x.bits.shape
    expected = np.asarray(get(node).reference(node, [x.real, rois])[0])
    real_map = np.moveaxis(x.real, 1, -1)
    out = scales(expected, 1, mode)
    zero = x.quant.zero_point.astype(np.int64)
    found, bounds = [], []
    if mode != "bf16":
        factor = out.scale.astype(np.float64) / x.quant.scale.astype(np.float64)
        edge = leaving(factor, out.zero_point, MEAN_BITS)
        lost = np.abs(edge.multiplier / 2.0**edge.shift * 2.0**MEAN_BITS * factor - 1)
    for region, roi in zip(regions.tolist(), rois, strict=True):
        counts = samples_of(region[4], rows, ratio), samples_of(region[3], columns, ratio)
        if max(counts) > MAX_SAMPLES:
            raise QuantisationError(
                f"node {node.name}: a region of {max(counts)} samples along an axis of a bin; expected {MAX_SAMPLES} at most: "
                "set sampling_ratio or more bins"
            )
        pixels, weights = fixed_weights(region, height, width, rows, columns, *counts)
        values = x.bits[region[0]].reshape(-1, channels)[pixels]
        bound = place_bound(roi, node, real_map[region[0]], rows, columns, counts)
        with np.errstate(invalid="ignore"):
            magnitude = (
                np.abs(real_map[region[0]].reshape(-1, channels)[pixels]) * (weights / 2.0**WEIGHT_BITS)[..., None]
            )
            magnitude = np.where(weights[..., None] == 0, 0.0, magnitude).sum(1)
        if mode == "bf16":
            found.append(bf16_means(values, weights))
            steps = 2.0 * pixels.shape[1]
            bound = (bound + steps * (2.0**-24 * magnitude + 2.0**-126)) * (1 + 2.0**-8)
        else:
            found.append(int8_of_fixed(int8_means(values - zero, weights), edge))
            bound = bound + lost * magnitude + 2.0**-MEAN_BITS * x.quant.scale
        bounds.append(bound)
    y, bound = (
        np.array(v, kind).reshape(len(regions), rows, columns, channels)
        for v, kind in ((found, x.bits.dtype), (bounds, np.float64))
    )
    lanes = x.lanes
    sizes: list[Any] = [images, height, width, lanes.shape[-1], regions, len(regions), rows, columns, ratio]
    edges: list[Any] = []
    if mode != "bf16":
        pads = (0, lanes.shape[-1] - channels)
        full = Edge(*(np.pad(v, pads) for v in (edge.multiplier, edge.shift, edge.zero_point)))
        edges = [np.pad(zero, pads).astype(np.int8), full.records]
    call = [lanes, *sizes, *edges, np.zeros_like(padded(y))]
    total = rounding_bound(expected, out, 1) + np.moveaxis(bound, -1, 1)
    return KernelRun([(call, [padded(y)])], [x.real, rois], [real(y, out, 1)], [total])


_SIZES = (*("int32_t",) * 4, "const int32_t*", *("int32_t",) * 4)
_BOUNDS = {1: (0, 1025), 2: (0, 4097), 3: (0, 4097), 4: (0, 17, 4112), 6: (-1, MAX_REGIONS + 1)}
_BOUNDS |= {7: (0, 65), 8: (0, 65), 9: (-1, MAX_SAMPLES + 1)}
KERNEL_INT8 = KernelForm(
    f"rotated_roi_align_int8<{MAX_REGIONS}>",
    ("const int8_t*", *_SIZES, "const int8_t*", "const int32_t*", "int8_t*"),
    on_the_npus_data,
    _BOUNDS,
)
KERNEL_BF16 = KernelForm(
    f"rotated_roi_align_bf16<{MAX_REGIONS}>",
    ("const uint16_t*", *_SIZES, "uint16_t*"),
    on_the_npus_data,
    _BOUNDS,
)
