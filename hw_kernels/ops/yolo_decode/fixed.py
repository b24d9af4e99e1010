"""YoloDecode in integers, as kernel.hpp has it: one anchor at one cell, and the rows of a map above a score threshold. Logits have 8 fraction bits,
pixels 4, scores 14."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.fixed_math import LOG2_E, exponential_of_minus, power_of_half, sigmoid
from npuforge.hw_kernels.operator import HlsKernel, KernelCase

MAX_SIDE = 256  # height and width of a map
MAX_CLASSES = 128
BITS = 12  # fraction bits of logits inside
LOGIT_MAX = 128 << BITS  # int8 and bf16 logits are clamped to +-128
LOG_MAX = 10 << BITS  # largest tw, th: beyond it a box has no end
SCORE_BITS, PIXEL_BITS = 14, 4
NAN, INFINITE, SCORE_NAN = -(2**31), 2**31 - 1, -32768  # of logits and corners; of corners; of scores


def half_extent(extent: int, t: int) -> int:
    """extent/2 * e^t; t has 12 fraction bits."""
    if t <= 0:
        return (extent * exponential_of_minus(-t) + 2**30) >> 31
    exponent = (t * LOG2_E) >> 4
    shift = 30 - (exponent >> 24)
    return (extent * power_of_half(2**24 - exponent % 2**24) + (1 << (shift - 1))) >> shift


def decode_cell(
    t: np.ndarray, anchor: tuple[int, int], cell: tuple[int, int], stride: int
) -> tuple[list[int], int, int]:
    """Box (x1, y1, x2, y2), score and class of logits with 12 fraction bits; `cell` is column, row."""
    values = [int(v) for v in t]
    box = [0] * 4
    for axis in (0, 1):
        place, size = values[axis], values[2 + axis]
        if NAN in (place, size):
            box[axis] = box[2 + axis] = NAN
        elif size > LOG_MAX and anchor[axis] > 0:
            box[axis], box[2 + axis] = -INFINITE, INFINITE
        else:
            centre = ((sigmoid(place) + (cell[axis] << 15)) * stride + 2**10) >> 11
            half = half_extent(anchor[axis], size) if anchor[axis] else 0
            box[axis], box[2 + axis] = centre - half, centre + half
    label = 0 if values[5] == NAN else int(np.argmax(values[5:]))
    objectness, named = values[4], values[5 + label]
    score = SCORE_NAN if NAN in (objectness, named) else (sigmoid(objectness) * sigmoid(named) + 2**15) >> 16
    return box, score, label


def fixed_decode(
    t: np.ndarray, anchor: tuple[int, int], cell: tuple[int, int], stride: int
) -> tuple[list[int], int, int]:
    """The same of int16 logits with 8."""
    return decode_cell(t.astype(np.int64) * 16, anchor, cell, stride)


Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def fixed_decode_map(
    head: np.ndarray, anchors: list[tuple[int, int]], stride: int, classes: int, threshold: int = -1
) -> Rows:
    """`decode_map` of int16 logits with 8 fraction bits."""
    return decode_map(head.astype(np.int64) * 16, anchors, stride, classes, threshold)


def decode_map(
    head: np.ndarray, anchors: list[tuple[int, int]], stride: int, classes: int, threshold: int = -1
) -> Rows:
    """Boxes int32 [M, 4], scores int16 [M], classes int32 [M] of logits [H, W, lanes] with 12 fraction bits: the rows whose score is above `threshold`, in
    the order row, column, anchor."""
    boxes: list[list[int]] = []
    scores: list[int] = []
    labels: list[int] = []
    for row, column, number in np.ndindex(*head.shape[:2], len(anchors)):
        t = head[row, column, number * (5 + classes) : (number + 1) * (5 + classes)]
        box, score, label = decode_cell(t, anchors[number], (column, row), stride)
        if threshold < 0 or score > threshold:
            boxes.append(box)
            scores.append(score)
            labels.append(label)
    return np.array(boxes, np.int32).reshape(-1, 4), np.array(scores, np.int16), np.array(labels, np.int32)


def _case(random: np.random.Generator) -> KernelCase:
    classes, count = int(random.choice([1, 2, 20, MAX_CLASSES])), int(random.integers(1, 4))
    height, width = (int(v) for v in random.integers(1, 5, 2))
    lanes = count * (5 + classes) + int(random.integers(0, 16))
    head = (random.integers(-32768, 32768, (height, width, lanes)) // int(random.choice([1, 8, 64]))).astype(np.int16)
    anchors = random.integers(0, 2**16 + 1, (count, 2)).astype(np.int32)
    stride, threshold = int(random.choice([1, 8, 32, 256])), int(random.choice([-1, 0, 1000, 4096, 8192, 16384]))
    found = fixed_decode_map(head, [(int(w), int(h)) for w, h in anchors], stride, classes, threshold)
    limit, rows = int(random.integers(0, height * width * count + 1)), len(found[0])
    outputs: list[np.ndarray] = [
        np.full((limit, 4), 5, np.int32),
        np.full(limit, 5, np.int16),
        np.full(limit, 5, np.int32),
    ]
    expected = [array.copy() for array in outputs]  # what is not written stays
    for array, values in zip(expected, found, strict=True):
        array[: min(rows, limit)] = values[:limit]
    arguments = [
        head,
        height,
        width,
        lanes,
        anchors,
        count,
        stride,
        classes,
        threshold,
        limit,
        *outputs,
        np.zeros(1, np.int32),
    ]
    return arguments, [*expected, np.array([rows], np.int32)]


KERNEL = HlsKernel(
    f"yolo_decode_map<{MAX_SIDE}, {MAX_CLASSES}>",
    (
        *("const int16_t*", "int32_t", "int32_t", "int32_t", "const int32_t*"),
        *["int32_t"] * 5,
        *("int32_t*", "int16_t*", "int32_t*", "int32_t*"),
    ),
    _case,
)
