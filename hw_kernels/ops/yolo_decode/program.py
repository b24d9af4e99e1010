"""YoloDecode as an array program of the NPU DSL: each scale decoded as a whole, the scales one behind the other, rows above a threshold chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.hw_kernels.dsl.array import (
    ArrayValue,
    array_kernel,
    chosen_rows,
    concat,
    index,
    part,
    reduce_max,
    reduce_min,
    reshape,
    result,
    sigmoid,
    transpose,
    vadd,
    vcmpsel,
    vexp,
    vmul,
    vmuls,
    vsub,
)


@array_kernel
def yolo_decode(*heads: Any, anchors: Any, strides: Any, num_classes: int, score_threshold: float = 0.0) -> Any:
    """Boxes, scores, classes; the class of scores that hold NaN is not said."""
    sizes = np.asarray(anchors, np.float64).reshape(len(heads), -1, 2)
    scales = zip(heads, sizes, strides, strict=True)
    parts = [_decoded(head, size, int(stride), num_classes) for head, size, stride in scales]
    boxes, scores, classes = (concat(rows, 1) for rows in zip(*parts, strict=True))
    if score_threshold <= 0:
        images, count, _ = scores.shape
        return boxes, reshape(scores, (images, count)), reshape(classes, (images, count))
    rows = concat([boxes, scores, classes], 2)
    count = rows.shape[1]
    kept = vcmpsel(reshape(scores, (count,)), float(np.float32(score_threshold)), "gt", 1.0, 0.0)
    chosen, number = chosen_rows(reshape(rows, (count, 6)), kept)
    return (
        result(reshape(part(chosen, 1, 0, 4), (1, count, 4)), count=number, axis=1),
        result(reshape(part(chosen, 1, 4, 5), (1, count)), count=number, axis=1),
        result(reshape(part(chosen, 1, 5, 6), (1, count)), count=number, axis=1),
    )


def _decoded(
    head: ArrayValue, sizes: np.ndarray, stride: int, classes: int
) -> tuple[ArrayValue, ArrayValue, ArrayValue]:
    """Boxes [I, H*W*A, 4], scores and classes [I, H*W*A, 1] of one scale."""
    images, _, height, width = head.shape
    anchors, values = len(sizes), 5 + classes
    maps = reshape(head, (images, anchors, values, height, width))
    tx, ty, tw, th, objectness = (part(maps, 2, i, i + 1) for i in range(5))
    column, row = reshape(index(width), (1, 1, 1, 1, width)), reshape(index(height), (1, 1, 1, height, 1))
    x, y = vmuls(vadd(sigmoid(tx), column), stride), vmuls(vadd(sigmoid(ty), row), stride)
    half_w, half_h = (_by_anchor(vexp(t), sizes[:, i] / 2) for i, t in enumerate((tw, th)))
    scores = part(maps, 2, 5, values)
    best = reduce_max(scores, 2)
    label = reshape(index(classes), (1, 1, classes, 1, 1))
    first = reduce_min(vcmpsel(scores, best, "eq", label, float(classes)), 2)
    score = vmul(sigmoid(objectness), sigmoid(best))
    box = concat([vsub(x, half_w), vsub(y, half_h), vadd(x, half_w), vadd(y, half_h)], 2)
    return _rows(box), _rows(score), _rows(first)


def _by_anchor(x: ArrayValue, factors: np.ndarray) -> ArrayValue:
    """[I, A, 1, H, W], each anchor times its number."""
    return concat([vmuls(part(x, 1, a, a + 1), float(f)) for a, f in enumerate(factors)], 1)


def _rows(x: ArrayValue) -> ArrayValue:
    """[I, A, K, H, W] as [I, H*W*A, K]."""
    images, anchors, values, height, width = x.shape
    return reshape(transpose(x, (0, 3, 4, 1, 2)), (images, height * width * anchors, values))
