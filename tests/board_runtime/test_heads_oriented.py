"""Oriented boxes: overlap and rectangles of the smallest area against integrals, searches and closed forms; DB text maps against OpenCV's contours."""

import cv2
import numpy as np
import pytest
from head_formulas import RNG, head
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.board_runtime.heads import map_to_image, nms
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.image import Geometry

BOX = st.tuples(st.integers(10, 90), st.integers(10, 90), st.integers(2, 60), st.integers(2, 60), st.floats(-4, 4))


def corner_row(box: tuple[float, ...], score: float, label: int = 0) -> list[float]:
    """A row of an oriented detection: centre, size and angle in radians → enclosing box, score, class, corners."""
    x, y, w, h, angle = box
    c, s = np.cos(angle), np.sin(angle)
    points = [
        (x + u * w * c - v * h * s, y + u * w * s + v * h * c)
        for u, v in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
    ]
    p = np.array(points)
    return [*p.min(axis=0), *p.max(axis=0), score, label, *p.ravel()]


def spans(corners: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where horizontal lines enter and leave a convex polygon (NaN: they miss it)."""
    a, b = corners, np.roll(corners, -1, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (y[:, None] - a[:, 1]) / (b[:, 1] - a[:, 1])
    x = np.where((t >= 0) & (t <= 1), a[:, 0] + t * (b[:, 0] - a[:, 0]), np.nan)
    hit = ~np.isnan(x).all(axis=1)
    low, high = np.full(len(y), np.nan), np.full(len(y), np.nan)
    low[hit], high[hit] = np.nanmin(x[hit], axis=1), np.nanmax(x[hit], axis=1)
    return low, high


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """IoU by integrating the common width over 8000 lines."""
    first, second = (np.array(corner_row(r, 0.0)[6:]).reshape(4, 2) for r in (a, b))
    edges = np.linspace(first[:, 1].min(), first[:, 1].max(), 8001)
    y = (edges[1:] + edges[:-1]) / 2
    (l1, r1), (l2, r2) = spans(first, y), spans(second, y)
    both = float(np.nansum(np.maximum(np.minimum(r1, r2) - np.maximum(l1, l2), 0))) * (edges[1] - edges[0])
    return both / (a[2] * a[3] + b[2] * b[3] - both)


@settings(max_examples=300, deadline=None)
@given(BOX, BOX)
def test_oriented_overlap_equals_the_integral(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    """NMS keeps both just above the overlap and drops one just below it."""
    rows = np.array([corner_row(a, 0.9), corner_row(b, 0.8)], dtype=np.float32)
    iou = overlap(a, b)
    assert len(nms(rows, min(iou + 1e-2, 1.0), oriented=True)) == 2
    if iou > 2e-2:
        assert len(nms(rows, iou - 1e-2, oriented=True)) == 1


def test_overlap_of_a_turned_square_in_closed_form() -> None:
    """Two unit squares, one turned by 45 degrees: common part 2(√2 − 1), so IoU = (√2 − 1)·2 / (2 − 2(√2 − 1)) = 1/√2."""
    rows = np.array([corner_row((50, 50, 40, 40, 0), 0.9), corner_row((50, 50, 40, 40, np.pi / 4), 0.8)], np.float32)
    assert len(nms(rows, 0.7072, oriented=True)) == 2
    assert len(nms(rows, 0.7070, oriented=True)) == 1


def test_long_boxes_side_by_side_are_both_kept() -> None:
    """Two ships moored diagonally: their upright boxes overlap almost wholly, they do not touch."""
    rows = np.array([corner_row((50, 50, 80, 8, 0.785), 0.9), corner_row((57, 43, 80, 8, 0.785), 0.8)], np.float32)
    assert len(nms(rows, 0.5)) == 1
    assert len(nms(rows, 0.5, oriented=True)) == 2


def test_nms_runs_oriented_from_the_head() -> None:
    out = np.zeros((1, 40, 6), np.float32)  # centre, size, one class, angle
    out[0, 0] = [50, 50, 80, 8, 0.9, 0.785]
    out[0, 1] = [57, 43, 80, 8, 0.8, 0.785]
    out[0, 2] = [51, 51, 80, 8, 0.7, 0.785]
    decoder = head("yolo_rows", 96, 96, {"objectness": False, "angle": True}, score_threshold=0.5, nms_threshold=0.3)
    found = decoder.detect({"o": out}, Geometry(0.5, 2.0, 3.0, 4.0, 200, 50))
    assert found[:, 4].tolist() == [np.float32(0.9), np.float32(0.8)]
    corners = np.array(corner_row((50, 50, 80, 8, 0.785), 0.9)[6:]).reshape(4, 2)
    np.testing.assert_allclose(found[0, 6:].reshape(4, 2), (corners - [3, 4]) / [0.5, 2.0], atol=1e-3)
    assert found[:, 2].max() <= 200 and found[:, 3].max() <= 50  # the enclosing box is clipped, the corners are not


def probabilistic_iou(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """ProbIoU as its paper writes it: 1 - √(1 - Bhattacharyya coefficient), covariance R·diag(w²/12, h²/12)·Rᵀ."""
    means, covariances = [], []
    for x, y, w, h, angle in (a, b):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        means.append(np.array([x, y]))
        covariances.append(turn @ np.diag([w * w / 12, h * h / 12]) @ turn.T)
    d, mean = means[0] - means[1], (covariances[0] + covariances[1]) / 2
    determinants = [np.linalg.det(c) for c in (mean, *covariances)]
    distance = (
        d @ np.linalg.solve(mean, d) / 8 + np.log(determinants[0] / np.sqrt(determinants[1] * determinants[2])) / 2
    )
    return float(1 - np.sqrt(1 - np.exp(-distance))) if distance < 50 else 0.0


@settings(max_examples=300, deadline=None)
@given(BOX, BOX)
def test_gaussians_overlap_as_the_paper_says(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    rows = np.array([corner_row(a, 0.9), corner_row(b, 0.8)], dtype=np.float32)
    wanted = probabilistic_iou(a, b)
    assert len(nms(rows, wanted + 1e-3, oriented=True, gaussians=True)) == 2
    if wanted > 2e-3:
        assert len(nms(rows, wanted - 1e-3, oriented=True, gaussians=True)) == 1


def test_gaussians_of_the_same_square_turned_are_the_same() -> None:
    """A square's Gaussian is round: turned by 45 degrees it overlaps wholly, while the corners' IoU is 1/√2."""
    rows = np.array([corner_row((50, 50, 40, 40, 0), 0.9), corner_row((50, 50, 40, 40, np.pi / 4), 0.8)], np.float32)
    assert len(nms(rows, 0.99, oriented=True, gaussians=True)) == 1


def test_a_suppressed_box_suppresses_too() -> None:
    """Fast NMS, as the authors of YOLOv8-OBB use it: three boxes in a row, the third near the second only. Greedy NMS would keep the third."""
    chain = [(50, 50, 30, 20, 0.0), (58, 50, 30, 20, 0.0), (66, 50, 30, 20, 0.0)]
    rows = np.array([corner_row(box, 0.9 - i / 10) for i, box in enumerate(chain)], np.float32)
    near, far = probabilistic_iou(chain[0], chain[1]), probabilistic_iou(chain[0], chain[2])
    assert far < 0.5 < near
    assert len(nms(rows, 0.5, oriented=True, gaussians=True)) == 1
    rows[1, 5] = 1  # another class: no longer in the way
    assert len(nms(rows, 0.5, oriented=True, gaussians=True)) == 3


def test_heads_of_oriented_boxes_compare_gaussians() -> None:
    """Two squares of which one is turned: the corners overlap by 0.71, the Gaussians wholly."""
    out = np.zeros((1, 40, 6), np.float32)
    out[0, 0] = [50, 50, 40, 40, 0.9, 0.0]
    out[0, 1] = [50, 50, 40, 40, 0.8, np.pi / 4]
    decoder = head("yolo_rows", 96, 96, {"objectness": False, "angle": True}, score_threshold=0.5, nms_threshold=0.9)
    assert len(decoder.detect({"o": out})) == 1


def test_rows_without_corners_are_refused() -> None:
    with pytest.raises(UsageError, match=r"oriented detections must be \[N, 6 \+ 8\]"):
        nms(np.zeros((2, 6), np.float32), 0.5, oriented=True)
    assert map_to_image(np.zeros((0, 14), np.float32), Geometry(1, 1, 0, 0, 4, 4)).shape[0] == 0


def text_map(boxes: list[tuple[float, ...]], shape: tuple[int, int] = (96, 128)) -> np.ndarray:
    """A probability map with turned rectangles of their own probability in it, and a faint background."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    out = np.full(shape, 0.05, dtype=np.float32)
    for cx, cy, w, h, angle, p in boxes:
        u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
        v = (y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)
        inside = (np.abs(u) <= w / 2) & (np.abs(v) <= h / 2)
        out[inside] = p - 0.1 * RNG.random(int(inside.sum()))
    return out[None, None]


def with_opencv(
    prob: np.ndarray, threshold: float = 0.3, ratio: float = 1.5, smallest: float = 3
) -> list[tuple[float, np.ndarray]]:
    """DB's boxes with OpenCV: contours, minAreaRect, mean inside, offset by area·ratio/perimeter on every side (the minimum-area rectangle
    of a rectangle grown with round corners)."""
    contours, _ = cv2.findContours((prob > threshold).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    found = []
    for contour in contours:
        (cx, cy), (w, h), angle = cv2.minAreaRect(contour)
        if min(w, h) < smallest:
            continue
        mask = np.zeros(prob.shape, np.uint8)
        corners = cv2.boxPoints(((cx, cy), (w, h), angle)) + 1e-4
        cv2.fillPoly(mask, [corners.astype(np.int32)], 1)
        score = float(prob[mask > 0].mean())
        grow = w * h * ratio / (2 * (w + h))
        box = ((cx, cy), (w + 2 * grow, h + 2 * grow), angle)
        if min(box[1]) >= smallest + 2:
            found.append((score, cv2.boxPoints(box)))
    return found


@pytest.mark.parametrize("angle", [0.0, 0.2, -0.6, 1.3])
def test_db_text_against_opencv(angle: float) -> None:
    boxes = [
        (30, 30, 40, 9, angle, 0.9),
        (90, 60, 30, 12, -angle, 0.95),
        (30, 75, 20, 5, 0, 0.8),
        (110, 10, 2, 2, 0, 0.9),
    ]
    prob = text_map(boxes)
    expected = [(s, p) for s, p in with_opencv(prob[0, 0]) if s > 0.6]
    assert len(expected) == 3
    decoder = head("db_text", 256, 192, {}, score_threshold=0.6)
    assert decoder.oriented
    found = decoder.detect({"map": prob})
    assert len(found) == len(expected)
    for row in found:  # the map is half the input's size
        corners = row[6:].reshape(4, 2) / 2
        distances = [np.abs(corners[:, None] - p[None]).sum(axis=2).min(axis=1).max() for _, p in expected]
        best = int(np.argmin(distances))
        assert distances[best] < 0.05
        assert row[4] == pytest.approx(expected[best][0], abs=0.01)  # single border pixels may differ
        np.testing.assert_allclose(row[:4], [*row[6:].reshape(4, 2).min(0), *row[6:].reshape(4, 2).max(0)], rtol=1e-6)


def test_db_text_score_and_growth_in_closed_form() -> None:
    """A 20 x 8 block of pixels: sides 19 and 7 between pixel centres, growth 19·7·1.5/52 on every side, score the mean of its pixels."""
    prob = np.zeros((1, 1, 32, 48), np.float32)
    prob[0, 0, 10:18, 5:25] = RNG.uniform(0.7, 0.9, (8, 20))
    found = head("db_text", 48, 32, {}, score_threshold=0.6).detect({"map": prob})
    grow = 19 * 7 * 1.5 / 52
    assert len(found) == 1
    np.testing.assert_allclose(found[0, :4], [5 - grow, 10 - grow, 24 + grow, 17 + grow], rtol=1e-5)
    assert found[0, 4] == pytest.approx(prob[0, 0, 10:18, 5:25].mean(), abs=1e-6)
    np.testing.assert_allclose(found[0, 6:8], found[0, :2], rtol=1e-5)  # the first corner is the top left one
    assert len(head("db_text", 48, 32, {"map_threshold": 0.95}, score_threshold=0.0).detect({"map": prob})) == 0
    assert len(head("db_text", 48, 32, {"smallest_side": 8}, score_threshold=0.0).detect({"map": prob})) == 0
    plain = head("db_text", 48, 32, {"unclip_ratio": 0}, score_threshold=0.6).detect({"map": prob})
    np.testing.assert_allclose(plain[0, :4], [5, 10, 24, 17], rtol=1e-5)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 1), st.integers(-1, 1)), min_size=3, max_size=60))
def test_smallest_rectangle_is_as_small_as_a_fine_search(walk: list[tuple[int, int]]) -> None:
    """The pixels of a walk with a broad brush: all lie in the rectangle, and none of 720 directions gives a smaller one."""
    steps = np.clip(24 + np.cumsum(np.array([(0, 0), *walk]), axis=0), 4, 43)[:, None]
    brush = np.stack(np.meshgrid(np.arange(-2, 3), np.arange(-2, 3)), -1).reshape(1, -1, 2)
    xy = np.unique((steps + brush).reshape(-1, 2), axis=0)
    prob = np.zeros((1, 1, 48, 48), np.float32)
    prob[0, 0, xy[:, 1], xy[:, 0]] = 1
    options = {"unclip_ratio": 0, "smallest_side": 1.0}
    found = head("db_text", 48, 48, options, score_threshold=0.0).detect({"map": prob})
    assert len(found) == 1
    sides = found[0, 6:].reshape(4, 2).astype(np.float64)
    across, down = sides[1] - sides[0], sides[3] - sides[0]
    width, height = np.linalg.norm(across), np.linalg.norm(down)
    assert abs(across @ down) < 1e-3 * width * height
    place = np.stack([(xy - sides[0]) @ across / width, (xy - sides[0]) @ down / height])
    assert place.min() > -1e-3 and (place.max(axis=1) < [width + 1e-3, height + 1e-3]).all()
    angles = np.radians(np.arange(720) / 8)
    u = xy @ np.stack([np.cos(angles), np.sin(angles)])
    v = xy @ np.stack([-np.sin(angles), np.cos(angles)])
    assert width * height <= float((np.ptp(u, axis=0) * np.ptp(v, axis=0)).min()) + 1e-2
