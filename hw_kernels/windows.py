"""Sliding windows over feature maps: output sizes, border filling, valid-tap counts, exact convolution sums. Arrays are N, H, W, C.

`pads` = [top, left, bottom, right]. Sums of int8 products go through float matrix products, which are exact because every partial sum is an
integer below 2^24 (float32) or 2^53 (float64); the bound is computed, not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.graph import Node

_BLOCK_ELEMENTS = 1 << 22  # elements of one unfolded block


@dataclass(frozen=True)
class Window:
    """Strides, pads, dilations and group of a node with ONNX's defaults filled in."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int

    @staticmethod
    def of(node: Node) -> Window:
        """Read the attributes of a convolution or pooling node."""
        a = node.attrs
        return Window(
            tuple(a.get("strides") or (1, 1)),
            tuple(a.get("pads") or (0, 0, 0, 0)),
            tuple(a.get("dilations") or (1, 1)),
            int(a.get("group", 1)),
        )


def output_size(size: int, kernel: int, stride: int, pad_begin: int, pad_end: int, dilation: int = 1) -> int:
    """Number of windows along one axis."""
    return (size + pad_begin + pad_end - dilation * (kernel - 1) - 1) // stride + 1


def fill_border(x: np.ndarray, pads: Sequence[int], value: np.ndarray | float, dtype: np.dtype | type) -> np.ndarray:
    """`x` with a border of `value` (per channel or one); negative pads crop."""
    top, left, bottom, right = (int(p) for p in pads)
    n, h, w, c = x.shape
    out = np.empty((n, h + top + bottom, w + left + right, c), dtype)
    out[...] = value
    y0, y1, x0, x1 = max(0, -top), min(h, h + bottom), max(0, -left), min(w, w + right)
    out[:, y0 + top : y1 + top, x0 + left : x1 + left] = x[:, y0:y1, x0:x1]
    return out


def tap(
    x: np.ndarray, ky: int, kx: int, out_h: int, out_w: int, strides: Sequence[int], dilations: Sequence[int]
) -> np.ndarray:
    """View of the bordered map that tap (ky, kx) of every window reads: [N, out_h, out_w, C]."""
    y0, x0 = ky * dilations[0], kx * dilations[1]
    return x[
        :, y0 : y0 + (out_h - 1) * strides[0] + 1 : strides[0], x0 : x0 + (out_w - 1) * strides[1] + 1 : strides[1]
    ]


def valid_counts(size: int, out: int, kernel: int, stride: int, pad_begin: int) -> np.ndarray:
    """Taps inside the map for every window along one axis (dilation 1), int64 [out]."""
    start = np.arange(out) * stride - pad_begin
    return np.maximum(np.minimum(start + kernel, size) - np.maximum(start, 0), 0)


def _grouped_product(columns: np.ndarray, matrix: np.ndarray, groups: int) -> np.ndarray:
    """columns [P, taps, C] x matrix [O, taps*C/groups] -> [P, O]."""
    pixels, taps, channels = columns.shape
    if groups == 1:
        return columns.reshape(pixels, taps * channels) @ matrix.T
    per_in, per_out = channels // groups, matrix.shape[0] // groups
    out = np.empty((pixels, matrix.shape[0]), columns.dtype)
    for g in range(groups):
        part = np.ascontiguousarray(columns[:, :, g * per_in : (g + 1) * per_in]).reshape(pixels, taps * per_in)
        out[:, g * per_out : (g + 1) * per_out] = part @ matrix[g * per_out : (g + 1) * per_out].T
    return out


def convolve(
    bordered: np.ndarray,
    weight: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    out_h: int,
    out_w: int,
) -> np.ndarray:
    """Sum of products of a bordered float map [N, H, W, C] and weights [O, kH, kW, C/groups] (same dtype), without bias."""
    n, _, _, channels = bordered.shape
    outputs, kernel_h, kernel_w, per_in = weight.shape
    taps = kernel_h * kernel_w
    if per_in == 1 and groups == channels == outputs:
        acc = np.zeros((n, out_h, out_w, outputs), bordered.dtype)
        product = np.empty_like(acc)
        for ky in range(kernel_h):
            for kx in range(kernel_w):
                np.multiply(tap(bordered, ky, kx, out_h, out_w, strides, dilations), weight[:, ky, kx, 0], out=product)
                acc += product
        return acc
    matrix = weight.reshape(outputs, taps * per_in)
    acc = np.empty((n, out_h, out_w, outputs), bordered.dtype)
    rows = max(1, _BLOCK_ELEMENTS // max(1, out_w * taps * channels))
    for image in range(n):
        for y in range(0, out_h, rows):
            count = min(rows, out_h - y)
            band = bordered[image : image + 1, y * strides[0] :]
            columns = np.empty((count, out_w, taps, channels), bordered.dtype)
            for k in range(taps):
                columns[:, :, k] = tap(band, k // kernel_w, k % kernel_w, count, out_w, strides, dilations)[0]
            acc[image, y : y + count] = _grouped_product(
                columns.reshape(count * out_w, taps, channels), matrix, groups
            ).reshape(count, out_w, outputs)
    return acc


def convolve_int8(
    x: np.ndarray,
    weight: np.ndarray,
    pad_value: np.ndarray,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Exact sums of int8 products as whole float numbers [N, out_h, out_w, O]; border positions hold `pad_value` (int8 per channel)."""
    largest = 128 * int(np.abs(weight.astype(np.int64)).reshape(weight.shape[0], -1).sum(axis=1).max(initial=0))
    dtype = np.float32 if largest < 1 << 24 else np.float64
    assert largest < 1 << 53
    out_h = output_size(x.shape[1], weight.shape[1], strides[0], pads[0], pads[2], dilations[0])
    out_w = output_size(x.shape[2], weight.shape[2], strides[1], pads[1], pads[3], dilations[1])
    bordered = fill_border(x, pads, pad_value, dtype)
    return convolve(bordered, weight.astype(dtype), strides, dilations, groups, out_h, out_w)
