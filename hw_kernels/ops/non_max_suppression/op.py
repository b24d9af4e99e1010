"""NonMaxSuppression on the CPU partition: int64 rows (batch, class, box), by class, best score first, ties by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, register
from npuforge.hw_kernels.ops.non_max_suppression.fixed import KERNEL
from npuforge.hw_kernels.ops.non_max_suppression.npu_data import KERNEL_BF16, KERNEL_INT8


def _scalar(inputs: list[Any], position: int, default: float) -> float:
    return float(np.ravel(inputs[position])[0]) if position < len(inputs) and inputs[position] is not None else default


def _overlap(low: np.ndarray, high: np.ndarray, i: int, j: int) -> float:
    """Intersection over union of boxes i and j, 0 for empty ones."""
    side = np.minimum(high[i], high[j]) - np.maximum(low[i], low[j])
    areas = [float(np.prod(high[k] - low[k])) for k in (i, j)]
    if min(side) <= 0 or min(areas) <= 0:
        return 0.0
    return float(side[0] * side[1] / (areas[0] + areas[1] - side[0] * side[1]))


def _boxes(random: np.random.Generator) -> list[Any]:
    centre, size = random.uniform(0, 10, (2, 20, 2)), random.uniform(1, 8, (2, 20, 2))
    boxes = np.concatenate([centre - size / 2, centre + size / 2], -1).astype(np.float32)
    scores = random.uniform(0, 1, (2, 3, 20)).astype(np.float32)
    return [boxes, scores, np.array(5), np.array(0.3, np.float32), np.array(0.25, np.float32)]


def _one_box(random: np.random.Generator) -> list[Any]:
    box, score = np.ones((1, 1, 4), np.float32), np.full((1, 1, 1), 0.1, np.float32)
    return [box, score, np.array(5), np.array(0.3, np.float32), np.array(0.25, np.float32)]


@register
class NonMaxSuppression(HostOp):
    """per class the best boxes that overlap no better one by more than the threshold"""

    kernel = KERNEL
    kernel_int8, kernel_bf16 = KERNEL_INT8, KERNEL_BF16
    names = ("NonMaxSuppression",)
    onnx = ("NonMaxSuppression",)

    shape_from_values = True
    no_gradient = "indices are constant between jumps"
    cases = (
        Case([(2, 20, 4), (2, 3, 20)], constants=[(), (), ()], values=_boxes),
        Case(
            [(1, 1, 4), (1, 1, 1)],
            {"center_point_box": 1},
            [(), (), ()],
            values=_one_box,
            why="nothing is above the threshold",
        ),
    )

    def output_types(self, node: Node, types: list[str]) -> list[str]:
        return ["int64"]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        boxes, scores = inputs[0], inputs[1]
        limit, threshold, lowest = (_scalar(inputs, i, d) for i, d in ((2, 0.0), (3, 0.0), (4, -np.inf)))
        if node.attrs.get("center_point_box", 0):
            half = boxes[..., 2:] / 2
            boxes = np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], -1)
        low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
        rows: list[tuple[int, int, int]] = []
        for batch, label in np.ndindex(*scores.shape[:2]):
            kept: list[int] = []
            for i in np.argsort(-scores[batch, label], kind="stable"):
                if len(kept) >= limit or not scores[batch, label, i] > lowest:
                    break
                if not any(_overlap(low[batch], high[batch], int(i), j) > threshold for j in kept):  # NaN is not more
                    kept.append(int(i))
            rows += [(batch, label, i) for i in kept]
        return [np.array(rows, np.int64).reshape(-1, 3)]
