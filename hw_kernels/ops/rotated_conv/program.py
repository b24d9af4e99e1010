"""RotatedConv as an array program of the NPU DSL: the taps of the kernel turned by products of matrices, then one convolution."""

from __future__ import annotations

import math
from typing import Any

from npuforge.hw_kernels.convolution_program import convolved
from npuforge.hw_kernels.dsl.array import (
    ArrayValue,
    array_kernel,
    concat,
    floor,
    index,
    matmul,
    reshape,
    transpose,
    vabs,
    vadd,
    vadds,
    vmaxs,
    vmul,
    vmuls,
    vsub,
)


def direction(turn: int, count: int) -> tuple[float, float]:
    """Cosine and sine of 2 pi turn / count; of quarter turns exactly, which so move taps and mix none."""
    angle = 2 * math.pi * turn / count
    return round(math.cos(angle), 15), round(math.sin(angle), 15)


@array_kernel
def rotated_conv(
    x: Any,
    w: Any,
    b: Any,
    *,
    strides: Any = (1, 1),
    pads: Any = (0, 0, 0, 0),
    dilations: Any = (1, 1),
    group: int = 1,
    rotations: int = 4,
) -> Any:
    """Channel j*O + o is output o with its kernel turned by 2*pi*j/rotations."""
    outputs, inputs, kernel, _ = w.shape
    taps = reshape(w, (1, outputs * inputs, kernel * kernel))
    turned = [matmul(taps, _turn(kernel, *direction(j, rotations))) for j in range(rotations)]
    y = convolved(x, _by_group(concat(turned, 0), w.shape, group), strides, pads, dilations, group)
    images, _, height, width = y.shape
    y = reshape(y, (images, group, rotations, outputs // group, height * width))
    y = reshape(transpose(y, (0, 2, 1, 3, 4)), (images, rotations, outputs, height * width))
    return reshape(vadd(y, reshape(b, (1, 1, outputs, 1))), (images, rotations * outputs, height, width))


def _by_group(turned: ArrayValue, weight: tuple[int, ...], group: int) -> ArrayValue:
    """[rotations, O*I, taps] as weights of a grouped convolution: of each group all rotations of its outputs."""
    (outputs, inputs, kernel, _), rotations = weight, turned.shape[0]
    split = reshape(turned, (rotations, group, outputs // group, inputs * kernel * kernel))
    return reshape(transpose(split, (1, 0, 2, 3)), (group * rotations * (outputs // group), inputs, kernel, kernel))


def _turn(kernel: int, cosine: float, sine: float) -> ArrayValue:
    """[1, taps, taps]: how much of a tap (second axis) the turned kernel has at a place (third): bilinear about the centre, which is a tent along either axis."""
    centre, taps = (kernel - 1) / 2, kernel * kernel
    number = index(taps)
    row = floor(vmuls(vadds(number, 0.5), 1.0 / kernel))
    column = vsub(number, vmuls(row, kernel))
    x, y = vadds(column, -centre), vadds(vmuls(row, -1.0), centre)
    from_x = vadds(vadd(vmuls(x, cosine), vmuls(y, sine)), centre)
    from_y = vadds(vsub(vmuls(x, sine), vmuls(y, cosine)), centre)
    shares = [
        vmaxs(vadds(vmuls(vabs(vsub(reshape(at, (1, 1, taps)), reshape(own, (1, taps, 1)))), -1.0), 1.0), 0.0)
        for at, own in ((from_x, column), (from_y, row))
    ]
    return vmul(*shares)
