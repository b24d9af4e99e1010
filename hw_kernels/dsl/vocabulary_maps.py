"""The vocabulary of the NPU DSL over windows of the map (reductions, pooling, depthwise convolution: the vector engine) and over channels (sums: the
array)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npuforge.hw_kernels.dsl.trace import MapWindow, Operation, Value, failure, where
from npuforge.hw_kernels.dsl.vocabulary import _affine, accumulated, number, stored, upright

CHANNELS, HEIGHT, WIDTH = 1, 2, 3  # axes of N, C, H, W
LARGEST_PAD = 255


def _axes(what: str, axis: int | Sequence[int]) -> MapWindow:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if not axes or not set(axes) <= {HEIGHT, WIDTH}:
        raise failure(
            what,
            f"the pooling engine reduces axes 2 and 3 (height, width), found {axes!r}; over channels, axis 1, there are only reduce_sum and reduce_mean, "
            "alone: no engine compares lanes, leave a largest or smallest channel to a ReduceMax or ReduceMin node on the CPU, or compare tiles with vmax",
        )
    return MapWindow((0 if HEIGHT in axes else 1, 0 if WIDTH in axes else 1))


def _largest(what: str, x: Any, window: MapWindow) -> Value:
    tile = upright(stored(what, x))
    return tile.trace.add(Operation("pool_max", tile.index, window=window, dtype=tile.dtype, where=where()))


def _smallest(what: str, x: Any, window: MapWindow) -> Value:
    return _affine(what, _largest(what, _affine(what, stored(what, x), factor=-1.0), window), factor=-1.0)


def _sum(what: str, x: Any, window: MapWindow, mean: bool) -> Value:
    tile = stored(what, x)
    operation = Operation("pool_sum", tile.index, window=window, mean=mean, dtype=accumulated(tile), where=where())
    return tile.trace.add(operation)


def reduce_max(x: Any, axis: int | Sequence[int] = (HEIGHT, WIDTH)) -> Value:
    """The largest value along height, width or both, which keep the extent 1."""
    return _largest("reduce_max", x, _axes("reduce_max", axis))


def reduce_min(x: Any, axis: int | Sequence[int] = (HEIGHT, WIDTH)) -> Value:
    """The smallest value."""
    return _smallest("reduce_min", x, _axes("reduce_min", axis))


def _over_channels(what: str, x: Any, mean: bool) -> Value:
    tile = stored(what, x)
    operation = Operation("channel_sum", tile.index, mean=mean, dtype=accumulated(tile), where=where())
    return tile.trace.add(operation)


def reduce_sum(x: Any, axis: int | Sequence[int] = (HEIGHT, WIDTH)) -> Value:
    """The sum; in bf16 added in the order rows, then columns. Axis 1, channels: a convolution with weights of 1; the one channel it gives can be the
    second operand of vadd, vsub and vmul."""
    if axis in (CHANNELS, (CHANNELS,)):
        return _over_channels("reduce_sum", x, False)
    return _sum("reduce_sum", x, _axes("reduce_sum", axis), False)


def reduce_mean(x: Any, axis: int | Sequence[int] = (HEIGHT, WIDTH)) -> Value:
    """The mean; axis as in `reduce_sum`."""
    if axis in (CHANNELS, (CHANNELS,)):
        return _over_channels("reduce_mean", x, True)
    return _sum("reduce_mean", x, _axes("reduce_mean", axis), True)


def _two(what: str, name: str, value: Any, least: int, most: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(isinstance(v, int) and least <= v <= most for v in pair):
        raise failure(what, f"expected {name} of {least}..{most}, one number or (height, width), found {value!r}")
    return pair[0], pair[1]


def _map_window(what: str, kernel: tuple[int, int], stride: Any, pad: Any, dilation: Any) -> MapWindow:
    strides, pads = _two(what, "strides", stride, 1, 255), _two(what, "pads", pad, 0, LARGEST_PAD)
    dilations = _two(what, "dilations", dilation, 1, 255)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    if pads[0] >= reach[0] or pads[1] >= reach[1]:
        raise failure(what, f"expected pads smaller than the window {reach}, found {pads}: no window may lie outside")
    return MapWindow(kernel, strides, (*pads, *pads), dilations)


def pooling2d(x: Any, window: Any, stride: Any = 1, mode: str = "MAX", pad: Any = 0, dilation: Any = 1) -> Value:
    """MAX, MIN, AVG or SUM of every window; numbers or (height, width). Pads don't count: AVG divides by the pixels that a window has."""
    what = "pooling2d"
    kernel = _two(what, "window sizes", window, 1, 65535)
    where_to = _map_window(what, kernel, stride, pad, dilation)
    if mode in ("MAX", "MIN"):
        return (_largest if mode == "MAX" else _smallest)(what, x, where_to)
    if mode not in ("AVG", "SUM"):
        raise failure(what, f"expected mode MAX, MIN, AVG or SUM, found {mode!r}")
    return _sum(what, x, where_to, mode == "AVG")


def depthwise_conv2d(x: Any, weights: Sequence[Any], stride: Any = 1, pad: Any = 0, dilation: Any = 1) -> Value:
    """The sum of every window weighted by `weights`: [height][width], the same for all channels, or [channels][height][width]; pads are real zeros."""
    what = "depthwise_conv2d"
    tile = stored(what, x)
    given = np.array(weights, object)
    if given.ndim not in (2, 3) or 0 in given.shape:
        raise failure(
            what, "expected weights [height][width] or [channels][height][width], rows of equal, positive length"
        )
    planes = given if given.ndim == 3 else given[None]
    numbers = tuple(tuple(tuple(number(what, v) for v in row) for row in plane) for plane in planes)
    window = _map_window(what, planes.shape[1:], stride, pad, dilation)
    made = Operation("depthwise", tile.index, window=window, weights=numbers, where=where())
    return tile.trace.add(replace(made, dtype=accumulated(tile)))
