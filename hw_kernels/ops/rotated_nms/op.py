"""RotatedNms: non-maximum suppression of rotated boxes, per class; int64 rows (class, box), best score first, ties by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Shape, register
from npuforge.hw_kernels.ops.rotated_iou.op import random_boxes
from npuforge.hw_kernels.ops.rotated_nms.fixed import KERNEL, KERNEL_BF16, KERNEL_INT8
from npuforge.hw_kernels.ops.rotated_nms.program import rotated_nms
from npuforge.hw_kernels.rotated import overlap


def _values(boxes: int, classes: int) -> Any:
    return lambda random: [random_boxes(random, boxes), random.uniform(0, 1, (classes, boxes))]


@register
class RotatedNms(HostOp):
    """per class the best boxes that overlap no better one by more than iou_threshold; inputs boxes [N, 5], scores [C, N]"""

    dsl = rotated_nms
    kernel = KERNEL
    kernel_int8, kernel_bf16 = KERNEL_INT8, KERNEL_BF16
    names = ("npuforge::RotatedNms",)
    host_types = ("float32",)
    attributes = ("iou_threshold", "score_threshold", "max_output_boxes_per_class")
    onnx = ("npuforge::RotatedNms",)
    no_gradient = "indices are constant between jumps"
    shape_from_values = True
    cases = (
        Case([(25, 5), (2, 25)], {"iou_threshold": 0.3, "score_threshold": 0.2}, values=_values(25, 2)),
        Case(
            [(12, 5), (1, 12)],
            {"iou_threshold": 0.1, "max_output_boxes_per_class": 2},
            values=_values(12, 1),
            why="a limit",
        ),
        Case([(4, 5), (1, 4)], {"score_threshold": 2.0}, values=_values(4, 1), why="nothing above the threshold"),
        Case([(0, 5), (3, 0)], values=_values(0, 3), why="no detection"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        if (
            len(shapes) != 2
            or len(shapes[0]) != 2
            or shapes[0][1] != 5
            or len(shapes[1]) != 2
            or shapes[1][1] != shapes[0][0]
        ):
            raise ModelError(f"node {node.name}: RotatedNms needs boxes [N, 5] and scores [C, N], found {shapes}")
        return [(-1, 2)]  # known from the data only

    def largest(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        classes, boxes = shapes[1]
        limit = int(node.attrs.get("max_output_boxes_per_class", 0)) or boxes
        return [(classes * max(min(boxes, limit), 1), 2)]

    def output_types(self, node: Node, types: list[str]) -> list[str]:
        return ["int64"]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        boxes, scores = np.asarray(inputs[0], np.float64), np.asarray(inputs[1], np.float64)
        threshold, lowest = float(node.attrs.get("iou_threshold", 0.5)), float(node.attrs.get("score_threshold", 0.0))
        limit = int(node.attrs.get("max_output_boxes_per_class", 0)) or len(boxes)
        rows: list[tuple[int, int]] = []
        for label, column in enumerate(scores):
            kept: list[int] = []
            for i in np.argsort(-column, kind="stable"):
                if len(kept) >= limit or not column[i] > lowest:
                    break
                if all(overlap(boxes[i], boxes[j]) <= threshold for j in kept):
                    kept.append(int(i))
            rows += [(label, i) for i in kept]
        return [np.array(rows, np.int64).reshape(-1, 2)]
