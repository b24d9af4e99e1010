"""Drawing: where the marks are, that the input stays as it was, and errors of saving."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuforge.compile.ir.errors import WriteError
from npuforge.scripts.draw import _place_label, class_colour, class_name, draw_detections, save_image


def grey() -> np.ndarray:
    return np.full((200, 300, 3), 128, dtype=np.uint8)


def test_box_and_keypoints_are_drawn_where_they_belong() -> None:
    image = grey()
    row = np.array([[50, 60, 150, 160, 0.9, 3, 100, 110]], dtype=np.float32)
    drawn = draw_detections(image, row)
    assert (image == 128).all(), "the caller's image is not changed"
    changed = (drawn != 128).any(axis=2)
    assert changed[60, 50:151].all() and changed[160, 50:151].all() and changed[60:161, 150].all()
    assert tuple(int(v) for v in drawn[160, 100]) == class_colour(3)
    assert changed[108:113, 98:103].any()
    assert not changed[80:100, 60:90].any() and not changed[:, 200:].any()


def test_nothing_to_draw_changes_nothing() -> None:
    np.testing.assert_array_equal(draw_detections(grey(), np.zeros((0, 6), dtype=np.float32)), grey())


def test_boxes_outside_the_image_are_no_trouble() -> None:
    draw_detections(
        grey(), np.array([[-1e4, -1e4, 1e4, 1e4, 0.5, 0], [290, 0, 299, 10, 0.5, 1]], dtype=np.float32), ["x" * 80]
    )


def test_truth_boxes_are_white() -> None:
    drawn = draw_detections(grey(), np.zeros((0, 6)), truth=np.array([[10.0, 20.0, 60.0, 70.0]]))
    assert drawn[20:71, 10].max() == 255


def test_classes_have_their_own_colours_and_names() -> None:
    assert len({class_colour(k) for k in range(80)}) == 80
    assert class_name(1, ["a", "b"]) == "b"
    assert class_name(2, ["a", "b"]) == "class 2" and class_name(0, ["Käfer"]) == "class 0"


def test_saving(tmp_path: Path) -> None:
    save_image(tmp_path / "new" / "a.png", grey())
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "new" / "a.png")), grey())
    with pytest.raises(WriteError, match=r"a\.xyz: cannot write an image of this type"):
        save_image(tmp_path / "a.xyz", grey())
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot be written"):
        save_image(tmp_path / "file" / "a.png", grey())


def test_oriented_boxes_are_drawn_along_their_corners() -> None:
    """A square on its tip: its corners are painted, the corners of the enclosing box are not, and no keypoint dots are."""
    corners = [50, 20, 80, 50, 50, 80, 20, 50]
    row = np.array([[20, 20, 80, 80, 0.9, 0, *corners]], dtype=np.float32)
    drawn = draw_detections(grey(), row, oriented=True)
    for x, y in np.reshape(corners, (4, 2))[1:]:
        assert (drawn[y, x] != grey()[y, x]).any()
    assert (drawn[78:82, 18:22] == grey()[78:82, 18:22]).all()
    assert (drawn[65, 65] != grey()[65, 65]).any()  # on the edge between two corners


def labels_of(rows: np.ndarray, names: list[str]) -> list[tuple[int, int, int, int]]:
    taken: list[tuple[int, int, int, int]] = []
    for row in sorted(rows, key=lambda r: -float(r[4])):
        _place_label(grey(), row, names, 300 / 640, True, False, taken)
    return taken


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 120), st.integers(5, 90), st.integers(5, 70), st.floats(0, 1)),
        min_size=1,
        max_size=6,
    )
)
def test_labels_cover_no_other_label_and_stay_in_the_image(boxes: list[tuple[int, int, int, int, float]]) -> None:
    """Six boxes, so few that there is always a free place; the best box's label keeps its own."""
    rows = np.array([[x, y, x + w, y + h, s, 0] for x, y, w, h, s in boxes], np.float64)
    taken = labels_of(rows, ["nut"])
    assert all(left >= 0 and right <= 300 and top >= 0 and bottom < 200 for left, top, right, bottom in taken)
    for i, (left, top, right, bottom) in enumerate(taken):
        assert all(right < o[0] or o[2] < left or bottom < o[1] or o[3] < top for o in taken[:i])
    best = rows[np.argmax(rows[:, 4])]
    assert taken[0][1] == (best[1] - (taken[0][3] - taken[0][1]) if taken[0][3] <= best[1] else best[1])


def test_overlapping_boxes_keep_their_labels_readable() -> None:
    rows = np.array([[50, 60, 150, 160, 0.9, 0], [52, 62, 148, 158, 0.8, 1], [54, 60, 150, 150, 0.7, 2]], np.float64)
    taken = labels_of(rows, ["nut", "bolt", "screw"])
    for i, (left, top, right, bottom) in enumerate(taken):
        for other in taken[:i]:
            assert right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
    drawn = draw_detections(grey(), rows, ["nut", "bolt", "screw"])
    for (left, top, *_), label in zip(taken, range(3), strict=True):
        assert tuple(int(v) for v in drawn[top, left]) == class_colour(label)
