"""RotatedRoiAlign as an array program of the NPU DSL: places of all samples, four gathered pixels each, means of bins.

With a `sampling_ratio` all samples of all regions are one array. Without (0: as many samples as pixels) the data tell their number. Those within the map
are bounded all the same: they lie at most a pixel and at least half a pixel apart. The program takes that many, as many rows of them at a time as one array holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from npuforge.hw_kernels.dsl.array import (
    WHOLE,
    ArrayValue,
    added,
    array_kernel,
    between,
    bounded,
    broadcast,
    concat,
    floor,
    gather,
    index,
    part,
    reduce_max,
    reduce_sum,
    repeat,
    reshape,
    transpose,
    vabs,
    vadd,
    vadds,
    vcmpsel,
    vcos,
    vdiv,
    vmaxs,
    vmin,
    vmins,
    vmul,
    vmuls,
    vsin,
    vsub,
    whole_in_range,
)

_LARGEST = 3.0e38  # what is more is infinite in float32


@dataclass(frozen=True)
class _Regions:
    """Of every region [K, 1], in pixels of the map: centre (pixel centres being whole), size, sine and cosine of the angle."""

    x: ArrayValue
    y: ArrayValue
    width: ArrayValue
    height: ArrayValue
    sine: ArrayValue
    cosine: ArrayValue

    def places(self, along_x: ArrayValue, along_y: ArrayValue) -> tuple[ArrayValue, ArrayValue]:
        """x and y on the map of what lies so far from the centre along the region's own axes."""
        return (
            vadd(self.x, vsub(vmul(along_x, self.cosine), vmul(along_y, self.sine))),
            vadd(self.y, vadd(vmul(along_x, self.sine), vmul(along_y, self.cosine))),
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
    """A region that names no image, or has an entry that is no number, is NaN."""
    images, channels, height, width = x.shape
    image, cx, cy, w, h, angle = (part(rois, 1, i, i + 1) for i in range(6))
    cx, cy = (vadds(vmuls(v, spatial_scale), -0.5) for v in (cx, cy))
    w, h = (vmuls(v, spatial_scale) for v in (w, h))
    regions = _Regions(cx, cy, w, h, vsin(angle), vcos(angle))
    named, valid = whole_in_range(image, images)
    valid = vcmpsel(reduce_max(vabs(rois), 1), _LARGEST, "le", valid, 0.0)
    valid = vcmpsel(reduce_sum(rois, 1), _LARGEST, "le", valid, 0.0)  # a maximum may pass over what is no number
    table = reshape(transpose(x, (0, 2, 3, 1)), (images * height * width, channels))
    if sampling_ratio > 0:
        means = _fixed(table, x.shape, regions, named, (output_height, output_width), sampling_ratio)
    else:
        means = _by_size(table, x.shape, regions, named, (output_height, output_width))
    means = vcmpsel(reshape(valid, (rois.shape[0], 1, 1, 1)), 0.0, "eq", math.nan, means)
    return transpose(means, (0, 3, 1, 2))


def _fixed(
    table: ArrayValue, shape: tuple[int, ...], regions: _Regions, named: ArrayValue, bins: tuple[int, int], ratio: int
) -> ArrayValue:
    """Means [K, rows, columns, C] of ratio x ratio samples a bin."""
    (rows, columns), count, channels = bins, named.shape[0], shape[1]
    along_y = reshape(vmul(regions.height, reshape(_centres(rows * ratio), (1, -1))), (count, rows * ratio, 1))
    along_x = reshape(vmul(regions.width, reshape(_centres(columns * ratio), (1, -1))), (count, 1, columns * ratio))
    whole = (count, rows * ratio * columns * ratio)
    grid = (count, rows * ratio, columns * ratio)
    flat = [reshape(broadcast(v, grid), whole) for v in (along_x, along_y)]
    values = reshape(
        _sampled(table, shape, regions.places(*flat), named), (count, rows, ratio, columns, ratio, channels)
    )
    return reshape(vmuls(reduce_sum(values, (2, 4)), 1.0 / ratio**2), (count, rows, columns, channels))


def _by_size(
    table: ArrayValue, shape: tuple[int, ...], regions: _Regions, named: ArrayValue, bins: tuple[int, int]
) -> ArrayValue:
    """The same with as many samples along either axis of a bin as it has pixels."""
    (rows, columns), count, (_, channels, height, width) = bins, named.shape[0], shape
    to_x, to_y = vadds(vmuls(regions.x, -1.0), (width - 1) / 2), vadds(vmuls(regions.y, -1.0), (height - 1) / 2)
    centre_x = vadd(vmul(to_x, regions.cosine), vmul(to_y, regions.sine))  # of the map, along the region's own axes
    centre_y = vsub(vmul(to_y, regions.cosine), vmul(to_x, regions.sine))
    reach = math.hypot(width + 1, height + 1) / 2  # from there no sample that counts is farther away
    across, down = _most(columns, reach), _most(rows, reach)
    in_x, step_x, total_x, first_x = _spacing(regions.width, columns, centre_x, reach, across)
    in_y, step_y, total_y, first_y = _spacing(regions.height, rows, centre_y, reach, down)
    along_x, column = _line(vadd(first_x, reshape(index(across), (1, across))), in_x, step_x, total_x)
    column = reshape(column, (count, 1, across, 1))
    lines = min(down, max(WHOLE // (count * across * channels), 1))
    whole = (count, lines * across)
    along_x = reshape(broadcast(reshape(along_x, (count, 1, across)), (count, lines, across)), whole)

    def add_lines(sums: Any, begin: Any) -> tuple[Any, Any]:
        number = vadd(vadd(first_y, begin), reshape(index(lines), (1, lines)))
        along_y, row = (reshape(v, (count, lines, 1)) for v in _line(number, in_y, step_y, total_y))
        along_y = reshape(broadcast(along_y, (count, lines, across)), whole)
        values = _sampled(table, shape, regions.places(along_x, along_y), named)
        values = _by_bin(reshape(values, (count, lines, across, channels)), column, columns, 2)
        values = _by_bin(values, reshape(row, (count, lines, 1, 1)), rows, 1)
        return vadd(sums, values), vadds(begin, float(lines))

    sums, _ = repeat(
        -(-down // lines), add_lines, broadcast(0.0, (count, rows, columns, channels)), broadcast(0.0, (1, 1))
    )
    return vdiv(sums, reshape(vmul(in_x, in_y), (count, 1, 1, 1)))


def _by_bin(values: ArrayValue, bin_of: ArrayValue, bins: int, axis: int) -> ArrayValue:
    """Sums along an axis of the values of bin 0, 1, …, side by side."""
    return concat([reduce_sum(vcmpsel(bin_of, float(b), "eq", values, 0.0), axis) for b in range(bins)], axis)


def _most(bins: int, reach: float) -> int:
    """So many samples in a row hold all that lie within 2 * reach. With n in a bin they are more than (n - 1)/n apart, and bins * n in all; one more at
    either end for the rounding of `_spacing`."""
    most, n = bins, 2
    while bins * (n - 1) <= (within := math.floor(2 * reach * n / (n - 1)) + 3):
        most, n = max(most, min(bins * n, within)), n + 1
    return most


def _spacing(
    size: ArrayValue, bins: int, centre: ArrayValue, reach: float, taken: int
) -> tuple[ArrayValue, ArrayValue, ArrayValue, ArrayValue]:
    """Along one axis of every region [K, 1]: samples in a bin, their distance, samples in all, the first of the `taken` ones that may be within the map."""
    per_bin = vmuls(floor(vmuls(vdiv(size, broadcast(float(bins), size.shape)), -1.0)), -1.0)
    per_bin = vmaxs(per_bin, 1.0)
    total = vmuls(per_bin, float(bins))
    step = vdiv(size, total)
    begin = vdiv(vadds(centre, -reach), vcmpsel(step, 0.0, "eq", 1.0, step))
    first = vadds(floor(vadds(vadd(begin, vmuls(total, 0.5)), -0.5)), -1.0)
    return per_bin, step, total, vmaxs(vmin(first, vadds(total, float(-taken))), 0.0)


def _line(
    number: ArrayValue, per_bin: ArrayValue, step: ArrayValue, total: ArrayValue
) -> tuple[ArrayValue, ArrayValue]:
    """Of samples by number: where they lie along the axis, from the centre, and in which bin (beyond the last, if there is no such sample)."""
    middle = vadds(number, 0.5)
    return vmul(vsub(middle, vmuls(total, 0.5)), step), floor(vdiv(middle, per_bin))


def _sampled(
    table: ArrayValue, shape: tuple[int, ...], places: tuple[ArrayValue, ArrayValue], named: ArrayValue
) -> ArrayValue:
    """Bilinear values [K, S, C] at x and y [K, S] of the images `named` [K, 1]; 0 more than a pixel outside the map."""
    (_, _, height, width), (at_x, at_y) = shape, places
    zero = broadcast(0.0, at_x.shape)
    inside = between(at_x, -1.0, width, between(at_y, -1.0, height, 1.0, zero), zero)
    (left, right), (top, bottom) = _neighbours(at_x, width), _neighbours(at_y, height)
    taps = []
    for row, of_row in (top, bottom):
        for column, of_column in (left, right):
            place = added(vmuls(named, height * width), vmuls(row, width), column)
            weight = reshape(vmul(vmul(of_row, of_column), inside), (*at_x.shape, 1))
            taps.append(vcmpsel(weight, 0.0, "eq", 0.0, vmul(gather(table, place), weight)))
    return added(*taps)


def _centres(count: int) -> ArrayValue:
    """Centres of `count` equal parts of [-1/2, 1/2]."""
    return vadds(vmuls(vadds(index(count), 0.5), 1.0 / count), -0.5)


def _neighbours(at: ArrayValue, size: int) -> list[tuple[ArrayValue, ArrayValue]]:
    """The pixels before and behind a place along one axis, within the map, and their weights."""
    clipped = bounded(at, 0.0, size - 1.0)
    before = floor(clipped)
    share = vsub(clipped, before)
    return [(before, vadds(vmuls(share, -1.0), 1.0)), (vmins(vadds(before, 1.0), size - 1.0), share)]
