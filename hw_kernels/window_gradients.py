"""Gradients of convolution sums, shared by Conv and ConvTranspose. Arrays are N, H, W, C as in `windows.py`, float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuforge.hw_kernels.windows import tap


def crop_border(x: np.ndarray, pads: Sequence[int], height: int, width: int) -> np.ndarray:
    """The inverse of `fill_border` for gradients: the map of `height` x `width` inside the border; cropped pixels get 0."""
    top, left = int(pads[0]), int(pads[1])
    out = np.zeros((x.shape[0], height, width, x.shape[3]), x.dtype)
    y0, x0 = max(0, -top), max(0, -left)
    part = x[:, max(0, top) : top + height, max(0, left) : left + width]
    out[:, y0 : y0 + part.shape[1], x0 : x0 + part.shape[2]] = part
    return out


def convolution_gradients(
    bordered: np.ndarray,
    weight: np.ndarray,
    gradient: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the bordered map [N, H, W, C] and of the weights [O, kH, kW, C/groups] from those of the sums [N, out_h, out_w, O]."""
    n, out_h, out_w, outputs = gradient.shape
    channels, per_in = bordered.shape[3], weight.shape[3]
    dx, dw = np.zeros_like(bordered), np.zeros_like(weight)
    dy = gradient.reshape(n, out_h, out_w, groups, outputs // groups)
    grouped = weight.reshape(groups, outputs // groups, *weight.shape[1:])
    for ky in range(weight.shape[1]):
        for kx in range(weight.shape[2]):
            read = tap(bordered, ky, kx, out_h, out_w, strides, dilations).reshape(n, out_h, out_w, groups, per_in)
            dw[:, ky, kx] = np.einsum("nyxgo,nyxgi->goi", dy, read).reshape(outputs, per_in)
            back = np.einsum("nyxgo,goi->nyxgi", dy, grouped[:, :, ky, kx])
            target = tap(dx, ky, kx, out_h, out_w, strides, dilations)  # a view: taps of one window never coincide
            target += back.reshape(n, out_h, out_w, channels)
    return dx, dw
