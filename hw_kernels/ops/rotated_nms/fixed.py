"""RotatedNms in integers, as kernel.hpp has it: one class, overlaps with 14 fraction bits; int16, or the NPU's int8 and bf16."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.kernel_data import store
from npuforge.hw_kernels.operator import HlsKernel, KernelCase, KernelForm, KernelRun
from npuforge.hw_kernels.rotated_fixed import overlap, random_boxes
from npuforge.hw_kernels.rotated_lists import pairs
from npuforge.hw_kernels.suppress_fixed import kernel_calls, kernel_case, overlap_threshold

MAX_BOXES = 512


def _case(random: np.random.Generator) -> KernelCase:
    boxes = random_boxes(random, int(random.integers(0, 14)))
    rows = boxes.tolist()
    return kernel_case(boxes, lambda i, j, threshold: overlap(rows[i], rows[j]) > threshold, random)


KERNEL = HlsKernel(
    f"rotated_nms<{MAX_BOXES}>",
    ("const int16_t*", "const int16_t*", *["int32_t"] * 4, "int32_t*", "int32_t*"),
    _case,
)


def on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Values of a box, classes of its scores lie in the lanes. The rows are those of the dequantised boxes and scores, whose order is kept exactly, where
    no two boxes that meet overlap by iou_threshold to within `overlap_bound` and two units of 2^-14; nearer, either decision may come out."""
    boxes, scores = store(inputs[0], 1, mode), store(inputs[1], 0, mode)
    pair, of_boxes, _, _ = pairs(boxes, boxes)
    known = cache(pair)
    threshold = overlap_threshold(float(node.attrs.get("iou_threshold", 0.5)))
    lowest = float(node.attrs.get("score_threshold", 0.0))
    most = int(node.attrs.get("max_output_boxes_per_class", 0)) or len(boxes.bits)
    limits = (threshold, lowest, most)
    found = kernel_calls([boxes.lanes, *of_boxes], scores, (), lambda i, j: known(i, j) > threshold, limits)
    rows = np.array([(label, i) for label, (_, kept) in enumerate(found) for i in kept], np.float64).reshape(-1, 2)
    return KernelRun([call for call, _ in found], [boxes.real, scores.real], [rows], [np.zeros(rows.shape)])


_BOUNDS = {0: (-1, MAX_BOXES + 1), 1: (0, 1025), 2: (-1, 1024), 3: (-2, 2**14 + 1), 5: (-1,)}  # of `_SIZES`
_SIZES = ("int32_t",) * 6
_OUTPUTS = ("int32_t*", "int32_t*")
KERNEL_INT8 = KernelForm(
    f"rotated_nms_int8<{MAX_BOXES}>",
    ("const int8_t*", "const int32_t*", "int32_t", "const int8_t*", *_SIZES, *_OUTPUTS),
    on_the_npus_data,
    {2: (-1, 33)} | {k + 4: v for k, v in _BOUNDS.items()},
)
KERNEL_BF16 = KernelForm(
    f"rotated_nms_bf16<{MAX_BOXES}>",
    ("const uint16_t*", "const uint16_t*", *_SIZES, *_OUTPUTS),
    on_the_npus_data,
    {k + 2: v for k, v in _BOUNDS.items()},
)
