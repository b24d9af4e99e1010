"""Convolution as part of an array program of the NPU DSL: one product of matrices for each tap of the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuforge.hw_kernels.dsl.array import (
    ArrayValue,
    added,
    broadcast,
    concat,
    failure,
    matmul,
    part,
    reshape,
    transpose,
)
from npuforge.hw_kernels.operator import Shape
from npuforge.hw_kernels.windows import output_size


def convolved(
    x: ArrayValue,
    weight: ArrayValue,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> ArrayValue:
    """ONNX's Conv without bias: y [N, O, H', W'] of x [N, C, H, W] and weight [O, C/group, h, w]."""
    (images, channels, *sizes), (outputs, inputs, *kernel) = x.shape, weight.shape
    if channels != inputs * group or outputs % group:
        raise failure(
            "convolved", f"{channels} channels, weights {list(weight.shape)} and group {group} do not fit together"
        )
    before, after = pads[:2], pads[2:]
    result = [output_size(sizes[a], kernel[a], strides[a], before[a], after[a], dilations[a]) for a in range(2)]
    padded = transpose(x, (1, 0, 2, 3))
    for a in range(2):
        # a tap's places are a part of `result * stride` entries, of which every stride-th one is read
        needed = (kernel[a] - 1) * dilations[a] + result[a] * strides[a]
        padded = _zeros_around(padded, a + 2, before[a], max(after[a], needed - sizes[a] - before[a]))
    terms = []
    for tap in np.ndindex(*kernel):
        places = padded
        for a in range(2):
            start = tap[a] * dilations[a]
            places = _every(part(places, a + 2, start, start + result[a] * strides[a]), a + 2, strides[a])
        taps = part(part(weight, 2, tap[0], tap[0] + 1), 3, tap[1], tap[1] + 1)
        terms.append(
            matmul(reshape(taps, (group, outputs // group, inputs)), reshape(places, (group, inputs, -1)))
        )  # fmt: skip
    return transpose(reshape(added(*terms), (outputs, images, *result)), (1, 0, 2, 3))


def bias_of_zeros(shapes: Sequence[Shape | None]) -> np.ndarray | None:
    """`Op.absent_input` of a convolution, whose weights are input 1: the bias [O], float32."""
    weight = shapes[1] if len(shapes) > 1 else None
    return None if weight is None else np.zeros(weight[0], np.float32)


def _zeros_around(x: ArrayValue, axis: int, before: int, after: int) -> ArrayValue:
    """Zeros before and behind along an axis; less than none takes entries away."""
    if before < 0 or after < 0:
        x = part(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0))
    parts = [
        x if n is None else broadcast(0.0, _sized(x, axis, n)) for n in (before, None, after) if n is None or n > 0
    ]
    return concat(parts, axis) if len(parts) > 1 else x


def _every(x: ArrayValue, axis: int, stride: int) -> ArrayValue:
    """Entries 0, stride, 2 stride, … along an axis, whose size is a multiple of the stride."""
    if stride == 1:
        return x
    blocks = reshape(x, (*x.shape[:axis], x.shape[axis] // stride, stride, *x.shape[axis + 1 :]))
    kept = part(blocks, axis + 1, 0, 1)
    return reshape(kept, _sized(x, axis, x.shape[axis] // stride))


def _sized(x: ArrayValue, axis: int, size: int) -> tuple[int, ...]:
    return (*x.shape[:axis], size, *x.shape[axis + 1 :])
