"""ChannelGather on the NPU is a change of the lane map. Where a consumer cannot take it, lanes move by a 1x1 convolution with 0/1 weights."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import ConvParams, OutputStage
from npuforge.hw_kernels.dsl.tile import Dtype
from npuforge.hw_kernels.ops.conv.program import ConvProgram

BF16_ONE = 0x3F80


def identity_stage(channels: int) -> OutputStage:
    """Requantisation that leaves every int8 sum as it is: (acc*2^14 + 2^13) >> 14."""
    one = np.full(channels, 1 << 14, np.int16)
    zeros, low, high = np.zeros(channels, np.int8), np.full(channels, -128, np.int8), np.full(channels, 127, np.int8)
    return OutputStage("pwl", np.full(channels, 14, np.int8), zeros, one, one, low, high)


def identity_bf16_stage(channels: int) -> Bf16Stage:
    """Leaves every value as it is (-0 becomes +0 in the sum)."""
    zeros, one, limit = (
        np.zeros(channels, np.float32),
        np.ones(channels, np.float32),
        np.full(channels, np.inf, np.float32),
    )
    return Bf16Stage("pwl", zeros, one, -limit, limit)


def moving_convolution(
    name: str,
    x: str,
    y: str,
    taps: np.ndarray,
    kernel: int,
    channels_in: int,
    zeros: np.ndarray,
    sources: list[str],
    dtype: Dtype = Dtype.INT8,
) -> tuple[Node, ConvParams]:
    """A convolution, stride = kernel, whose output channel o copies tap and channel taps[o] = (ky, kx, channel); channel -1: the byte zeros[o],
    in bf16 0."""
    channels = len(taps)
    weight = np.zeros((channels, kernel, kernel, channels_in), dtype.numpy)
    moved = np.flatnonzero(taps[:, 2] >= 0)
    weight[moved, taps[moved, 0], taps[moved, 1], taps[moved, 2]] = BF16_ONE if dtype == Dtype.BF16 else 1
    bias = np.where(taps[:, 2] >= 0, 0, zeros).astype(np.int32)
    attrs = {
        "kernel_shape": [kernel, kernel],
        "strides": [kernel, kernel],
        "pads": [0, 0, 0, 0],
        "dilations": [1, 1],
        "group": 1,
    }
    node = Node(name, "Conv", [x], [y], attrs, sources=sources, device="NPU")
    if dtype == Dtype.BF16:
        return node, ConvParams(weight, bias, np.zeros(channels_in, np.uint16), identity_bf16_stage(channels))
    return node, ConvParams(weight, bias, np.zeros(channels_in, np.int8), identity_stage(channels))


def permutation(
    name: str,
    x: str,
    y: str,
    indices: list[int],
    channels_in: int,
    zeros: np.ndarray,
    sources: list[str],
    dtype: Dtype = Dtype.INT8,
) -> tuple[Node, ConvParams]:
    """The moving convolution of a ChannelGather."""
    taps = np.zeros((len(indices), 3), np.int64)
    taps[:, 2] = indices
    return moving_convolution(name, x, y, taps, 1, channels_in, zeros, sources, dtype)


CHANNEL_GATHER = ConvProgram()
