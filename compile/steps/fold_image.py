"""First layers: a convolution on an image (or on what space-to-depth and slices made of it) becomes one over taps folded into lanes by LOAD_FOLD.

Along each axis the window may be folded whole (kernel 1 remains), by strides (kernel ceil(k/s), stride 1 remains) or not at all; of the nine
combinations the one with the smallest max(load, convolution) by the timing model is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import ConvParams
from npuforge.compile.steps.layers import Fold
from npuforge.hw_kernels.arch import LANES, Arch
from npuforge.hw_kernels.dsl.tile import Window
from npuforge.hw_kernels.isa.instructions import BF16_SUFFIX
from npuforge.hw_kernels.timing import cost
from npuforge.hw_kernels.windows import Window as Attributes

MAX_BLOCKS = 16


@dataclass(frozen=True)
class ImageView:
    """A tensor that is an image, or comes from it by space-to-depth (`block` > 1) and picking channels: lane (by, bx, channel) of each channel."""

    image: str
    height: int
    width: int
    image_channels: int
    block: int
    lanes: np.ndarray

    @staticmethod
    def whole(image: str, height: int, width: int, channels: int) -> ImageView:
        """The image itself."""
        return ImageView(image, height, width, channels, 1, np.arange(channels))

    @property
    def channels(self) -> int:
        """Channels of the tensor."""
        return len(self.lanes)

    def gathered(self, indices: np.ndarray) -> ImageView:
        """Some of its channels."""
        return replace(self, lanes=self.lanes[indices])

    def folded(self, block: int) -> ImageView:
        """Space-to-depth of an unfolded view, ONNX's channel order."""
        lanes = [tap * self.image_channels + lane for tap in range(block * block) for lane in self.lanes]
        return replace(self, block=block, lanes=np.array(lanes))


@dataclass(frozen=True)
class _Axis:
    """One axis of a candidate: taps folded, their stride, the kernel, stride and dilation that remain, pixels of the folded map."""

    fold: int
    fold_stride: int
    kernel: int
    stride: int
    dilation: int
    length: int

    def split(self, tap: int) -> tuple[int, int]:
        """(remaining tap, folded tap) of an original tap."""
        return (0, tap) if self.kernel == 1 else (tap // self.fold, tap % self.fold)


def _axes(kernel: int, stride: int, dilation: int, out: int) -> list[_Axis]:
    choices = [_Axis(1, 1, kernel, stride, dilation, (out - 1) * stride + (kernel - 1) * dilation + 1)]
    if dilation == 1 and kernel > 1:
        choices.append(_Axis(kernel, stride, 1, 1, 1, out))
        if 1 < stride < kernel:
            remaining = -(-kernel // stride)
            choices.append(_Axis(stride, stride, remaining, 1, 1, out + remaining - 1))
    return choices


def _image_weight(params: ConvParams, view: ImageView) -> tuple[np.ndarray, np.ndarray]:
    """Weights over the image's own pixels [O, kh*block, kw*block, channels], and the border byte of every image channel."""
    outputs, kernel_h, kernel_w, _ = params.weight.shape
    block, channels = view.block, view.image_channels
    wide = np.zeros((outputs, kernel_h, block, kernel_w, block, channels), params.weight.dtype)
    pad = np.zeros(channels, params.pad_value.dtype)
    for number, lane in enumerate(view.lanes):
        by, bx, c = int(lane) // (block * channels), int(lane) // channels % block, int(lane) % channels
        wide[:, :, by, :, bx, c] = params.weight[..., number]
        pad[c] = params.pad_value[number]
    return wide.reshape(outputs, kernel_h * block, kernel_w * block, channels), pad


def _consistent_pad(params: ConvParams, view: ImageView, has_border: bool) -> bool:
    """Channels that come from one image channel have one border byte."""
    source = view.lanes % view.image_channels
    return not has_border or all(len(np.unique(params.pad_value[source == c])) <= 1 for c in range(view.image_channels))


def fold_convolution(
    node: Node, params: ConvParams, view: ImageView, out_size: tuple[int, int], arch: Arch
) -> tuple[Node, ConvParams, Fold] | None:
    """The convolution over the folded image; None if it cannot be folded (groups, dilated space-to-depth, unlike borders)."""
    a = Attributes.of(node)
    if (
        a.group != 1
        or (view.block > 1 and any(d > 1 for d in a.dilations))
        or not _consistent_pad(params, view, any(a.pads))
    ):
        return None
    weight, pad = _image_weight(params, view)
    outputs, kernel_h, kernel_w, channels = weight.shape
    strides = [s * view.block for s in a.strides]
    pads = [p * view.block for p in a.pads]
    suffix = BF16_SUFFIX if isinstance(params.stage, Bf16Stage) else ""
    best: tuple[tuple[int, int], _Axis, _Axis] | None = None
    for rows in _axes(kernel_h, strides[0], a.dilations[0], out_size[0]):
        for cols in _axes(kernel_w, strides[1], a.dilations[1], out_size[1]):
            lanes = rows.fold * cols.fold * channels
            blocks = -(-lanes // LANES)
            if blocks > MAX_BLOCKS:
                continue
            fields = {
                "in_h": view.height,
                "in_w": view.width,
                "channels": channels,
                "ddr_row_stride": view.width * channels * weight.itemsize,
                "blocks_out": blocks,
                "kernel_h": rows.fold,
                "stride_h": rows.fold_stride,
                "out_h": rows.length,
                "out_w": cols.length,
            }
            load = cost("LOAD_FOLD" + suffix, fields, arch)
            load_time = max(load.cycles, load.beats // arch.axi_ports)
            fields = {
                "out_h": out_size[0],
                "out_w": out_size[1],
                "kernel_h": rows.kernel,
                "kernel_w": cols.kernel,
                "blocks_in": blocks,
                "blocks_out": -(-outputs // LANES),
            }
            conv_time = cost("CONV" + suffix, fields, arch).cycles
            figure = (max(load_time, conv_time), load_time + conv_time)
            if best is None or figure < best[0]:
                best = (figure, rows, cols)
    if best is None:
        return None
    _, rows, cols = best
    lanes = rows.fold * cols.fold * channels
    folded = np.zeros((outputs, rows.kernel, cols.kernel, lanes), weight.dtype)
    for ky in range(kernel_h):
        for kx in range(kernel_w):
            (row, fold_row), (col, fold_col) = rows.split(ky), cols.split(kx)
            start = (fold_row * cols.fold + fold_col) * channels
            folded[:, row, col, start : start + channels] = weight[:, ky, kx]
    attrs = {
        "kernel_shape": [rows.kernel, cols.kernel],
        "strides": [rows.stride, cols.stride],
        "dilations": [rows.dilation, cols.dilation],
        "pads": [0, 0, 0, 0],
        "group": 1,
    }
    window = Window(rows.fold, cols.fold, rows.fold_stride, cols.fold_stride, 1, 1, pads[0], pads[1])
    fold = Fold(view.image, window, rows.length, cols.length, -(-lanes // LANES), pad)
    no_pad = np.zeros(lanes, params.pad_value.dtype)
    return replace(node, attrs=attrs), replace(params, weight=folded, pad_value=no_pad), fold
