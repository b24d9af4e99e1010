"""COCO's mean average precision of detections against a `Dataset`, computed by faster-coco-eval (100 detections per image).

Oriented truth is scored by the same rules with the overlap of the boxes' corners in place of the overlap of upright boxes.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from faster_coco_eval import COCO, COCOeval_faster

from npuforge.compile.ir.errors import InputError, UsageError
from npuforge.hw_kernels.rotated import polygon_overlap
from npuforge.scripts.datasets import Dataset

MAX_DETECTIONS = 100


@dataclass
class Metrics:
    """Fractions in 0..1. `per_class`: class name → mAP50-95, only for classes that the truth has."""

    map: float
    map50: float
    map75: float
    images: int
    true_boxes: int
    detections: int
    per_class: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary."""
        return asdict(self)


class _OrientedEvaluation(COCOeval_faster):
    """COCO's evaluation with the overlap of corners. true_corners, found_corners: [n, 4, 2] in the order of the ids, from 1."""

    def __init__(self, truth: COCO, results: COCO, true_corners: np.ndarray, found_corners: np.ndarray) -> None:
        super().__init__(truth, results, iouType="bbox", print_function=lambda *_: None)
        self._true, self._found = true_corners, found_corners

    def computeIoU(self, imgId: int, catId: int) -> Any:
        """[detections, best first; true boxes] of one image and class."""
        true = self.gt_dataset.get_instances([imgId], [catId], True)[0][0]
        found = self.dt_dataset.get_instances([imgId], [catId], True)[0][0]
        order = np.argsort([-d["score"] for d in found], kind="stable")[: self.params.maxDets[-1]]
        boxes = [self._found[found[i]["id"] - 1] for i in order]
        overlaps = [[polygon_overlap(box, self._true[t["id"] - 1]) for t in true] for box in boxes]
        return np.array(overlaps) if true and found else []


def mean_average_precision(dataset: Dataset, detections: Sequence[np.ndarray]) -> Metrics:
    """`detections`: one array per image of the dataset, rows [x1, y1, x2, y2, score, class, ...] in image pixels.

    Where the truth is oriented, four corners x, y must follow; the overlap is theirs.
    """
    if len(detections) != len(dataset.images):
        raise UsageError(f"expected detections of {len(dataset.images)} images, found {len(detections)}")
    true_boxes = sum(int((~i.ignore).sum()) for i in dataset.images)
    if true_boxes == 0:
        raise InputError("the truth has no box, mAP is not defined")
    if dataset.oriented and any(rows.size and rows.shape[1] < 14 for rows in detections):
        raise InputError(
            "the truth has oriented boxes, but the network's head finds upright ones; give upright truth (five values a line, COCO or VOC)"
        )
    results = _results(detections)
    used = sorted({int(label) for i in dataset.images for label in i.labels[~i.ignore]})
    if not results:
        return Metrics(0.0, 0.0, 0.0, len(dataset.images), true_boxes, 0, {_name(dataset, k): 0.0 for k in used})
    highest = max(max(used), max(r["category_id"] for r in results))
    with contextlib.redirect_stdout(io.StringIO()):  # the library reports its progress there
        truth = COCO(_truth_json(dataset, highest))
        loaded = truth.loadRes(results)
        if dataset.oriented:
            true_corners = np.concatenate([i.corners for i in dataset.images if i.corners is not None])
            evaluation = _OrientedEvaluation(truth, loaded, true_corners, _corners(detections))
        else:
            evaluation = COCOeval_faster(truth, loaded, iouType="bbox", print_function=lambda *_: None)
        evaluation.params.maxDets = [1, 10, MAX_DETECTIONS]
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision = evaluation.eval["precision"]  # [IoU, recall, class, area, max detections]
    categories = list(evaluation.params.catIds)
    per_class = {}
    for label in used:
        values = precision[:, :, categories.index(label), 0, -1]
        per_class[_name(dataset, label)] = float(values[values > -1].mean())
    stats = [float(s) for s in evaluation.stats[:3]]
    return Metrics(stats[0], stats[1], stats[2], len(dataset.images), true_boxes, len(results), per_class)


def _name(dataset: Dataset, label: int) -> str:
    return dataset.class_names[label] if label < len(dataset.class_names) else str(label)


def _best(rows: np.ndarray) -> np.ndarray:
    return rows[np.argsort(-rows[:, 4], kind="stable")[:MAX_DETECTIONS]].astype(np.float64)


def _corners(detections: Sequence[np.ndarray]) -> np.ndarray:
    """[n, 4, 2] in the order of `_results`."""
    return np.concatenate([_best(rows)[:, 6:14] for rows in detections if rows.size]).reshape(-1, 4, 2)


def _results(detections: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    results = []
    for image, rows in enumerate(detections, start=1):
        if rows.size == 0:
            continue
        if rows.ndim != 2 or rows.shape[1] < 6 or not np.isfinite(rows[:, :6]).all():
            raise UsageError(
                f"detections of image {image - 1} must be finite rows [x1, y1, x2, y2, score, class, ...], found {rows.shape}"
            )
        for x1, y1, x2, y2, score, label in _best(rows)[:, :6]:
            box = [x1, y1, x2 - x1, y2 - y1]
            results.append(
                {"image_id": image, "category_id": int(label), "bbox": box, "score": score, "area": box[2] * box[3]}
            )
    return results


def _truth_json(dataset: Dataset, highest: int) -> dict[str, Any]:
    annotations: list[dict[str, Any]] = []
    for number, image in enumerate(dataset.images, start=1):
        for box, label, area, ignore in zip(image.boxes, image.labels, image.areas, image.ignore, strict=True):
            x1, y1, x2, y2 = (float(v) for v in box)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": int(label),
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": float(area),
                    "iscrowd": int(ignore),
                }
            )
    return {
        "info": {},
        "images": [
            {"id": n, "file_name": i.path.name, "width": i.width, "height": i.height}
            for n, i in enumerate(dataset.images, start=1)
        ],
        "annotations": annotations,
        "categories": [{"id": k, "name": _name(dataset, k)} for k in range(highest + 1)],
    }
