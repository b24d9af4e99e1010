"""COCO mAP on cases worked out by hand (101 recall points, IoU 0.50 to 0.95 in steps of 0.05)."""

from pathlib import Path

import numpy as np
import pytest

from npuforge.compile.ir.errors import InputError, UsageError
from npuforge.scripts.datasets import Dataset, ImageTruth
from npuforge.scripts.mean_average_precision import mean_average_precision


def truth(*images: list[tuple[float, ...]]) -> Dataset:
    """Images of rows x1, y1, x2, y2, label[, ignore]."""
    dataset = Dataset("test", ["cat", "dog"])
    for n, rows in enumerate(images):
        boxes = np.array([r[:4] for r in rows], dtype=np.float64).reshape(-1, 4)
        labels = np.array([r[4] for r in rows], dtype=np.int64)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        ignore = np.array([len(r) > 5 and bool(r[5]) for r in rows], dtype=bool)
        dataset.images.append(ImageTruth(Path(f"{n}.png"), 200, 200, boxes, labels, areas, ignore))
    return dataset


def found(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, dtype=np.float32).reshape(-1, 6)


def test_perfect_detections() -> None:
    metrics = mean_average_precision(
        truth([(0, 0, 100, 100, 0), (100, 100, 150, 180, 1)]),
        [found((0, 0, 100, 100, 0.9, 0), (100, 100, 150, 180, 0.3, 1))],
    )
    assert metrics.map == metrics.map50 == pytest.approx(1.0)
    assert metrics.per_class == {"cat": pytest.approx(1.0), "dog": pytest.approx(1.0)}
    assert (metrics.images, metrics.true_boxes, metrics.detections) == (1, 2, 2)


def test_iou_counts_at_each_threshold() -> None:
    # 100x100 against 100x77: IoU 0.77 passes 0.50, 0.55, ..., 0.75, six of the ten thresholds
    metrics = mean_average_precision(truth([(0, 0, 100, 100, 0)]), [found((0, 0, 100, 77, 0.9, 0))])
    assert (
        metrics.map == pytest.approx(0.6)
        and metrics.map50 == pytest.approx(1.0)
        and metrics.map75 == pytest.approx(1.0)
    )


def test_a_better_false_positive_halves_the_precision() -> None:
    detections = [found((150, 150, 190, 190, 0.9, 0), (0, 0, 100, 100, 0.8, 0))]
    assert mean_average_precision(truth([(0, 0, 100, 100, 0)]), detections).map == pytest.approx(0.5)


def test_one_of_two_found_gives_51_of_101_recall_points() -> None:
    metrics = mean_average_precision(
        truth([(0, 0, 50, 50, 0), (100, 100, 150, 150, 0)]), [found((0, 0, 50, 50, 0.9, 0))]
    )
    assert metrics.map == pytest.approx(51 / 101)


def test_a_class_never_found_counts_as_zero_and_wrong_class_does_not_match() -> None:
    metrics = mean_average_precision(
        truth([(0, 0, 50, 50, 0), (100, 100, 150, 150, 1)]),
        [found((0, 0, 50, 50, 0.9, 0), (100, 100, 150, 150, 0.9, 0))],
    )
    assert metrics.map == pytest.approx(0.5)
    assert metrics.per_class == {"cat": pytest.approx(1.0), "dog": 0.0}


def test_a_class_without_truth_changes_nothing() -> None:
    metrics = mean_average_precision(
        truth([(0, 0, 50, 50, 0)]), [found((0, 0, 50, 50, 0.9, 0), (0, 0, 50, 50, 0.99, 1))]
    )
    assert metrics.map == pytest.approx(1.0)


def test_detections_inside_an_ignored_region_count_neither_way() -> None:
    dataset = truth([(0, 0, 50, 50, 0), (100, 100, 200, 200, 0, 1)])
    detections = [found((0, 0, 50, 50, 0.5, 0), (110, 110, 150, 150, 0.9, 0), (150, 150, 190, 190, 0.8, 0))]
    metrics = mean_average_precision(dataset, detections)
    assert metrics.map == pytest.approx(1.0) and metrics.true_boxes == 1


def test_only_the_best_hundred_of_an_image_count() -> None:
    noise = [(150, 150, 190, 190, 0.9, 0)] * 100
    metrics = mean_average_precision(truth([(0, 0, 50, 50, 0)]), [found(*noise, (0, 0, 50, 50, 0.1, 0))])
    assert metrics.map == 0.0 and metrics.detections == 100


def test_no_detections() -> None:
    metrics = mean_average_precision(truth([(0, 0, 50, 50, 0)], []), [found(), found()])
    assert metrics.map == metrics.map50 == 0.0 and metrics.per_class == {"cat": 0.0}


def test_wrong_input() -> None:
    with pytest.raises(InputError, match="the truth has no box"):
        mean_average_precision(truth([]), [found()])
    with pytest.raises(UsageError, match="expected detections of 1 images, found 2"):
        mean_average_precision(truth([(0, 0, 9, 9, 0)]), [found(), found()])
    with pytest.raises(UsageError, match="must be finite rows"):
        mean_average_precision(truth([(0, 0, 9, 9, 0)]), [found((0, 0, np.nan, 9, 0.5, 0))])
