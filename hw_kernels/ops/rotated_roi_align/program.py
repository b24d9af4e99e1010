"""RotatedRoiAlign as an array program of the NPU DSL: places of all samples, four gathered pixels each, means of bins."""

from __future__ import annotations

import math
from typing import Any

from npuforge.hw_kernels.dsl.array import (
    ArrayValue,
    added,
    array_kernel,
    between,
    failure,
    floor,
    gather,
    index,
    part,
    reduce_sum,
    reshape,
    transpose,
    vadd,
    vadds,
    vcmpsel,
    vcos,
    vmaxs,
    vmins,
    vmul,
    vmuls,
    vsin,
    vsub,
    whole_in_range,
)


@array_kernel
def rotated_roi_align(
    x: Any,
    rois: Any,
    *,
    output_height: int = 1,
    output_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
) -> Any:
    """A region that names no image is NaN. sampling_ratio 0, as many samples as pixels, is a size that the data tell: refused."""
    if sampling_ratio < 1:
        raise failure(
            "rotated_roi_align",
            f"sampling_ratio is {sampling_ratio}, so the number of samples depends on the data; give it a value of 1 or more",
        )
    images, channels, height, width = x.shape
    (count, _), samples = rois.shape, sampling_ratio
    image, cx, cy, w, h, angle = (reshape(part(rois, 1, i, i + 1), (count, 1, 1)) for i in range(6))
    cx, cy = (vadds(vmuls(v, spatial_scale), -0.5) for v in (cx, cy))
    local_y = vmul(vmuls(h, spatial_scale), reshape(_centres(output_height * samples), (1, output_height * samples, 1)))
    local_x = vmul(vmuls(w, spatial_scale), reshape(_centres(output_width * samples), (1, 1, output_width * samples)))
    sine, cosine = vsin(angle), vcos(angle)
    at_x = vadd(cx, vsub(vmul(local_x, cosine), vmul(local_y, sine)))
    at_y = vadd(cy, vadd(vmul(local_x, sine), vmul(local_y, cosine)))
    inside = between(at_x, -1.0, width, between(at_y, -1.0, height, 1.0, _zero(at_x)), _zero(at_x))
    named, valid = whole_in_range(image, images)
    table = reshape(transpose(x, (0, 2, 3, 1)), (images * height * width, channels))
    (left, right), (top, bottom) = _neighbours(at_x, width), _neighbours(at_y, height)
    taps = []
    for row, of_row in (top, bottom):
        for column, of_column in (left, right):
            place = added(vmuls(named, height * width), vmuls(row, width), column)
            weight = reshape(vmul(vmul(of_row, of_column), inside), (*at_x.shape, 1))
            taps.append(vcmpsel(weight, 0.0, "eq", 0.0, vmul(gather(table, place), weight)))
    bins = reshape(added(*taps), (count, output_height, samples, output_width, samples, channels))
    means = reshape(vmuls(reduce_sum(bins, (2, 4)), 1.0 / samples**2), (count, output_height, output_width, channels))
    means = vcmpsel(reshape(valid, (count, 1, 1, 1)), 0.0, "eq", math.nan, means)
    return transpose(means, (0, 3, 1, 2))


def _centres(count: int) -> ArrayValue:
    """Centres of `count` equal parts of [-1/2, 1/2]."""
    return vadds(vmuls(vadds(index(count), 0.5), 1.0 / count), -0.5)


def _zero(like: ArrayValue) -> ArrayValue:
    return vmuls(like, 0.0)


def _neighbours(at: ArrayValue, size: int) -> list[tuple[ArrayValue, ArrayValue]]:
    """The pixels before and behind a place along one axis, within the map, and their weights."""
    clipped = vmins(vmaxs(at, 0.0), size - 1.0)
    before = floor(clipped)
    share = vsub(clipped, before)
    return [(before, vadds(vmuls(share, -1.0), 1.0)), (vmins(vadds(before, 1.0), size - 1.0), share)]
