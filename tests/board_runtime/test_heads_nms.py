"""NMS against a brute-force reference, and the way back from the network's input to the image (letterbox round trip)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.board_runtime.heads import map_to_image, nms
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.image import Geometry, fit
from npuforge.compile.ir.preprocess import Preprocess


def iou(a: np.ndarray, b: np.ndarray) -> float:
    w = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    h = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h
    return w * h / union if union > 0 else 0.0


def brute_force(rows: np.ndarray, threshold: float, max_candidates: int, max_detections: int) -> list[int]:
    """Indices kept: per class on its own, then merged by score; equal scores in order of appearance."""
    order = sorted(range(len(rows)), key=lambda i: (-rows[i, 4], i))[:max_candidates]
    kept: list[int] = []
    for label in sorted({rows[i, 5] for i in order}):
        rest = [i for i in order if rows[i, 5] == label]
        while rest:
            best, rest = rest[0], rest[1:]
            kept.append(best)
            rest = [i for i in rest if iou(rows[best], rows[i]) <= threshold]
    return sorted(kept, key=order.index)[:max_detections]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 24)] * 4, st.integers(1, 8), st.integers(0, 2)), max_size=40),
    st.sampled_from([0.1, 0.3, 0.45, 0.6, 0.9]),
    st.sampled_from([3, 20, 3000]),
    st.sampled_from([1, 5, 100]),
)
def test_nms_equals_brute_force(
    boxes: list[tuple[int, ...]], threshold: float, candidates: int, detections: int
) -> None:
    # whole-number corners and scores in eighths: exact in float32, so ties and equal IoUs are real ones
    table = [(x, y, x + w, y + h, s / 8, c) for x, y, w, h, s, c in boxes]
    rows = np.array(table, dtype=np.float32).reshape(-1, 6)
    expected = rows[brute_force(rows.astype(np.float64), threshold, candidates, detections)]
    np.testing.assert_array_equal(nms(rows, threshold, candidates, detections), expected.reshape(-1, 6))


def test_boxes_of_other_classes_are_kept_and_keypoints_travel_along() -> None:
    box = [0, 0, 10, 10]
    rows = np.array([[*box, 0.5, 0, 1, 2], [*box, 0.9, 0, 3, 4], [*box, 0.7, 1, 5, 6]], dtype=np.float32)
    np.testing.assert_array_equal(nms(rows, 0.5), rows[[1, 2]])


def test_iou_of_exactly_the_threshold_is_kept() -> None:
    rows = np.array([[0, 0, 4, 4, 0.9, 0], [0, 0, 4, 2, 0.8, 0]], dtype=np.float32)  # IoU 1/2
    assert len(nms(rows, 0.5)) == 2
    assert len(nms(rows, 0.49)) == 1


def test_wrong_rows_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[N, 6 \+ 2 \* keypoints\]"):
        nms(np.zeros((3, 5), dtype=np.float32), 0.5)
    for column, value in ((4, np.nan), (0, np.inf), (5, 1e9)):
        rows = np.zeros((3, 6), dtype=np.float32)
        rows[1, column] = value
        with pytest.raises(UsageError, match="row 1 holds a value that is not finite"):
            nms(rows, 0.5)


@settings(max_examples=100, deadline=None)
@given(
    width=st.integers(1, 700),
    height=st.integers(1, 700),
    net=st.sampled_from([(416, 416), (320, 240), (128, 128), (96, 160)]),
    resize=st.sampled_from(["stretch", "letterbox_topleft", "letterbox_center"]),
    place=st.tuples(*[st.floats(0, 1, width=32)] * 4),
)
def test_image_to_input_and_back(
    width: int, height: int, net: tuple[int, int], resize: str, place: tuple[float, ...]
) -> None:
    record = Preprocess(width=net[0], height=net[1], resize=resize)
    pixels, g = fit(np.zeros((height, width, 3), dtype=np.uint8), record)
    assert pixels.shape == (net[1], net[0], 3)
    x1, x2 = sorted((place[0] * width, place[2] * width))
    y1, y2 = sorted((place[1] * height, place[3] * height))
    to_input = [x1 * g.scale_x + g.pad_x, y1 * g.scale_y + g.pad_y, x2 * g.scale_x + g.pad_x, y2 * g.scale_y + g.pad_y]
    assert (
        to_input[0] >= -1e-3 and to_input[2] <= net[0] + 1e-3 and to_input[1] >= -1e-3 and to_input[3] <= net[1] + 1e-3
    )
    rows = np.array([[*to_input, 0.5, 0, *to_input]], dtype=np.float32)
    back = map_to_image(rows, g)[0]
    # float32 rounding of an input pixel, magnified by the resize
    tolerance = 1e-3 * max(1 / g.scale_x, 1 / g.scale_y, 1)
    np.testing.assert_allclose(back[:4], [x1, y1, x2, y2], atol=tolerance)
    np.testing.assert_allclose(back[6:], [x1, y1, x2, y2], atol=tolerance)


def test_clipping() -> None:
    rows = np.array([[-10, -10, 500, 500, 0.5, 0, -10, 500]], dtype=np.float32)
    g = Geometry(2.0, 2.0, 4.0, 0.0, 100, 60)
    assert map_to_image(rows, g)[0].tolist() == [0, 0, 100, 60, 0.5, 0, -7, 250]
    assert map_to_image(rows, g, clip=False)[0, :4].tolist() == [-7, -5, 248, 250]
