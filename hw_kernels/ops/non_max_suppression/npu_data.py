"""NonMaxSuppression of boxes and scores as the NPU holds them, int8 or bf16: kernel.hpp's integers, and how near a threshold they may decide otherwise."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.arithmetic import SHIFT_MAX
from npuforge.hw_kernels.edges import Edge, entering, fixed_of_bf16, fixed_of_int8
from npuforge.hw_kernels.kernel_data import Stored, store
from npuforge.hw_kernels.operator import KernelForm, KernelRun
from npuforge.hw_kernels.ops.non_max_suppression.fixed import MAX_BOXES
from npuforge.hw_kernels.suppress_fixed import OVERLAP_BITS, kernel_calls, overlap_threshold

CORNER_BITS, CORNER_MAX = 21, 2**22
Spans = list[tuple[int, int]]


def _spans(p: list[int], q: list[int], centre: bool) -> Spans:
    if centre:
        return [(2 * a - abs(b), 2 * a + abs(b)) for a, b in zip(p, q, strict=True)]
    return [(min(a, b), max(a, b)) for a, b in zip(p, q, strict=True)]


def exceeds(a: Spans, b: Spans, threshold: int) -> bool:
    """Whether two boxes overlap by more, exactly."""
    common, areas = 1, [1, 1]
    for (low_a, high_a), (low_b, high_b) in zip(a, b, strict=True):
        common *= max(0, min(high_a, high_b) - max(low_a, low_b))
        areas = [areas[0] * (high_a - low_a), areas[1] * (high_b - low_b)]
    if common == 0:
        return threshold < 0
    return common << OVERLAP_BITS > threshold * (sum(areas) - common)


def corner_edge(x: Stored) -> tuple[Edge, np.ndarray]:
    """One unit for each axis, as fine as the multiplier of its finer channel has it; and the shifts [4] by which channels are coarser."""
    scale = x.quant.scale.astype(np.float64)
    bits = np.floor(np.log2(32767 / np.minimum(scale[:2], scale[2:4]))).clip(-SHIFT_MAX, SHIFT_MAX).astype(np.int32)
    units = np.ldexp(scale, np.concatenate([bits, bits]))
    shifts = np.maximum(np.ceil(np.log2(units / 32767)), 0).astype(np.int32)
    return entering(np.ldexp(units, -shifts), x.quant.zero_point, 0), shifts


def int8_corners(bits: np.ndarray, edge: Edge, shifts: np.ndarray) -> np.ndarray:
    """int64 [N, 4] of int8 boxes."""
    return fixed_of_int8(bits, edge) << shifts


def int8_exceeds(rows: np.ndarray, i: int, j: int, centre: bool, threshold: int) -> bool:
    """Of boxes [N, 4] behind their edge; each pair and axis has a unit of its own where coordinates are longer than CORNER_BITS."""
    boxes: list[list[list[int]]] = [[[], []], [[], []]]  # box, corner, axis
    for axis in (0, 1):
        values = [int(rows[box, axis + corner]) for box in (i, j) for corner in (0, 2)]
        drop = max(0, max(abs(v) for v in values).bit_length() - CORNER_BITS)
        for k, v in enumerate(values):
            boxes[k // 2][k % 2].append((v + (1 << drop >> 1)) >> drop)
    a, b = (_spans(p, q, centre) for p, q in boxes)
    return exceeds(a, b, threshold)


def bf16_exceeds(boxes: np.ndarray, i: int, j: int, centre: bool, threshold: int) -> bool:
    """Of bf16 boxes [N, 4]; one with a value that is NaN or infinite overlaps none."""
    values = boxes[[i, j]].reshape(2, 2, 2)  # box, corner, axis
    exponent = ((values.astype(np.int64) >> 7) & 0xFF).max((0, 1))
    if (exponent == 255).any():
        return threshold < 0
    fixed = fixed_of_bf16(values, 126 + CORNER_BITS - exponent, CORNER_MAX).tolist()
    a, b = (_spans(p, q, centre) for p, q in fixed)
    return exceeds(a, b, threshold)


def _scalar(inputs: list[Any], position: int, default: float) -> float:
    return float(np.ravel(inputs[position])[0]) if position < len(inputs) and inputs[position] is not None else default


def on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Values of a box, classes of its scores lie in the lanes. The rows are those of the dequantised boxes and scores, whose order is kept exactly, where no
    two boxes that meet overlap by iou_threshold to within two units of 2^-14 and what corners lose: 2^-21 of the pair's largest coordinate on the axis; in
    int8 also 2^-15 of a coordinate by its multiplier and 2^-14 of a step of its axis' finer channel; nearer, either decision may come out."""
    limit, threshold_given, lowest = (_scalar(inputs, i, d) for i, d in ((2, 0.0), (3, 0.0), (4, -np.inf)))
    if not 0 <= threshold_given <= 1:
        raise QuantisationError(f"node {node.name}: iou_threshold {threshold_given:g}; expected 0 to 1, as ONNX has it")
    threshold, centre = overlap_threshold(threshold_given), int(node.attrs.get("center_point_box", 0) != 0)
    boxes, scores = store(inputs[0], 2, mode), store(inputs[1], 1, mode)
    edge = None if mode == "bf16" else corner_edge(boxes)
    count = boxes.bits.shape[1]
    most = int(np.clip(limit, 0, count))
    calls, rows = [], []
    for image in range(len(boxes.bits)):
        bits = boxes.bits[image]
        if edge is None:
            known = cache(lambda i, j, bits=bits: bf16_exceeds(bits, i, j, bool(centre), threshold))
            arguments: list[Any] = [boxes.lanes[image], centre]
        else:
            fixed = int8_corners(bits, *edge)
            known = cache(lambda i, j, fixed=fixed: int8_exceeds(fixed, i, j, bool(centre), threshold))
            arguments = [boxes.lanes[image], edge[0].records, edge[1], centre]
        found = kernel_calls(arguments, scores, (image,), known, (threshold, lowest, most))
        calls += [call for call, _ in found]
        rows += [(image, label, i) for label, (_, kept) in enumerate(found) for i in kept]
    result = np.array(rows, np.float64).reshape(-1, 3)
    return KernelRun(calls, [boxes.real, scores.real, *inputs[2:]], [result], [np.zeros(result.shape)])


_BOUNDS = {0: (-1, MAX_BOXES + 1), 1: (0, 1025), 2: (-1, 1024), 3: (-2, 2**14 + 1), 5: (-1,)}  # of `_SIZES`
_SIZES = ("int32_t",) * 6
_OUTPUTS = ("int32_t*", "int32_t*")
KERNEL_INT8 = KernelForm(
    f"non_max_suppression_int8<{MAX_BOXES}>",
    ("const int8_t*", "const int32_t*", "const int32_t*", "int32_t", "const int8_t*", *_SIZES, *_OUTPUTS),
    on_the_npus_data,
    {3: (-1, 2)} | {k + 5: v for k, v in _BOUNDS.items()},
)
KERNEL_BF16 = KernelForm(
    f"non_max_suppression_bf16<{MAX_BOXES}>",
    ("const uint16_t*", "int32_t", "const uint16_t*", *_SIZES, *_OUTPUTS),
    on_the_npus_data,
    {1: (-1, 2)} | {k + 3: v for k, v in _BOUNDS.items()},
)
