"""What the operators' bf16 semantics share: geometry of a window, channels to lanes, outputs in lanes.

bf16 results depend on where channels lie (a convolution sums lane by lane, block by block), so the semantics work on lanes: uint16 [H, W, 16*blocks].
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.dsl.tile import LaneMap, Window
from npuforge.hw_kernels.windows import Window as Attributes


def geometry(node: Node, out: tuple[int, int]) -> bf16.Geometry:
    """Output size, strides, (top, left) pads and dilations of a windowed node."""
    a = Attributes.of(node)
    return out, (a.strides[0], a.strides[1]), (a.pads[0], a.pads[1]), (a.dilations[0], a.dilations[1])


def in_lanes(values: np.ndarray, lanes: LaneMap) -> np.ndarray:
    """[H, W, C] of channels -> [H, W, 16*blocks], other lanes +0."""
    return lanes.expand(values, axis=2)


def staged(acc: np.ndarray, stage: Bf16Stage, lanes: LaneMap) -> np.ndarray:
    """float32 sums [H, W, C] of channels through the stage, in lanes."""
    return in_lanes(bf16.apply_stage(acc, stage), lanes)


def fold(image: np.ndarray, window: Window, height: int, width: int, blocks: int) -> np.ndarray:
    """LOAD_FOLD: taps of a tight image [H, W, C] in lanes (ky, kx, channel) of [height, width, 16*blocks]; the border is +0."""
    channels = image.shape[2]
    out = np.zeros((height, width, bf16.LANES * blocks), np.uint16)
    kernel, strides = (window.kernel_h, window.kernel_w), (window.stride_h, window.stride_w)
    pads, size = (window.pad_top, window.pad_left), (image.shape[0], image.shape[1])
    for ky, kx, target, source in bf16.taps(size, (height, width), kernel, strides, pads, (1, 1)):
        start = (ky * window.kernel_w + kx) * channels
        out[(*target, slice(start, start + channels))] = image[source]
    return out
