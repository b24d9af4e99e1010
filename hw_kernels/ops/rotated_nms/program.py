"""RotatedNms as an array program of the NPU DSL: the best box of every class is taken, those that it overlaps too much are dropped, and again."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.hw_kernels.dsl.array import (
    array_kernel,
    broadcast,
    chosen_rows,
    concat,
    failure,
    gather,
    index,
    reduce_max,
    reduce_min,
    repeat,
    reshape,
    result,
    vadds,
    vcmpsel,
    vmins,
)
from npuforge.hw_kernels.rotated_program import pair_overlaps

_NONE = -1.0


@array_kernel
def rotated_nms(
    boxes: Any,
    scores: Any,
    *,
    iou_threshold: float = 0.5,
    score_threshold: float = 0.0,
    max_output_boxes_per_class: int = 0,
) -> Any:
    """Rows (class, box); as many rounds as a class can keep boxes. Work: boxes^2 overlaps, then rounds x classes x boxes."""
    classes, count = scores.shape
    if max_output_boxes_per_class < 0:
        raise failure(
            "rotated_nms", f"max_output_boxes_per_class is {max_output_boxes_per_class}; expected 0 (all) or more"
        )
    rounds = min(max_output_boxes_per_class or count, count)
    overlaps = pair_overlaps(boxes, boxes)
    position = broadcast(reshape(index(count), (1, count)), (classes, count))
    turns = broadcast(reshape(index(rounds), (1, rounds)), (classes, rounds))
    lowest = float(np.finfo(np.float32).min)

    def take(candidates: Any, picks: Any, turn: Any) -> tuple[Any, Any, Any]:
        best = reduce_max(candidates, 1)
        first = reduce_min(vcmpsel(candidates, best, "eq", position, float(count)), 1)
        pick = vcmpsel(best, lowest, "gt", vmins(first, count - 1), _NONE)
        row = reshape(gather(overlaps, reshape(vmins(first, count - 1), (classes,))), (classes, count))
        left = vcmpsel(row, iou_threshold, "gt", lowest, vcmpsel(position, first, "eq", lowest, candidates))
        return left, vcmpsel(turns, turn, "eq", pick, picks), vadds(turn, 1.0)

    candidates = vcmpsel(scores, score_threshold, "gt", scores, lowest)
    _, picks, _ = repeat(rounds, take, candidates, broadcast(_NONE, turns.shape), broadcast(0.0, (1, 1)))
    flat = (classes * rounds, 1)
    labels = broadcast(reshape(index(classes), (classes, 1)), turns.shape)
    rows = concat([reshape(labels, flat), reshape(picks, flat)], 1)
    chosen, number = chosen_rows(rows, vcmpsel(reshape(picks, flat[:1]), 0.0, "ge", 1.0, 0.0))
    return result(chosen, "int64", number)
