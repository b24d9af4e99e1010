"""How many classes a head's outputs have: every kind, shapes from the table in docs/heads.md for a 64 x 64 input and a count of our choice."""

import numpy as np
import pytest

from npuforge.board_runtime.heads import CLASS_NUMBERS, Head
from npuforge.compile.ir.errors import HeadError
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess
from npuforge.compile.ir.preprocess_io import HEAD_OPTIONS

CELLS = {8: 64, 16: 16, 32: 4, 64: 1}
ANCHORS = [[[10, 13], [16, 30]], [[30, 61], [62, 45]]]
TWO = {"strides": [8, 16], "anchors": ANCHORS}


def shapes(kind: str, n: int) -> tuple[list[tuple[int, ...]], dict[str, object]]:
    """Output shapes with n classes (1 where the kind has no others), and options."""
    rows, bins = sum(CELLS[s] for s in (8, 16, 32)), 16
    maps = [(1, 2 * (5 + n), 8, 8), (1, 2 * (5 + n), 4, 4)]
    sizes = [(1, 8, 8), (1, 4, 4), (1, 2, 2)]
    kinds: dict[str, tuple[list[tuple[int, ...]], dict[str, object]]] = {
        "blazeface": ([(1, 128, 1), (1, 96, 1), (1, 128, 16), (1, 96, 16)], {}),
        "boxes": ([(1, 50, 4), (1, 50, n + 1)], {"activation": "softmax", "background": "last"}),
        "centernet": ([(1, n, 16, 16), (1, 2, 16, 16), (1, 2, 16, 16)], {}),
        "darknet": (maps, TWO),
        "db_text": ([(1, 1, 64, 64)], {}),
        "fastestdet": ([(1, 5 + n, 4, 4)], {}),
        "nanodet": ([(1, CELLS[s], n) for s in (8, 16, 32)] + [(1, CELLS[s], 32) for s in (8, 16, 32)], {}),
        "nanodet_plus": ([(1, rows + 1, n + 32)], {}),
        "picodet": ([(1, c, n) for c in CELLS.values()] + [(1, c, 32) for c in CELLS.values()], {}),
        "retinaface": ([(1, 2 * rows, 4), (1, 2 * rows, 2), (1, 2 * rows, 10)], {}),
        "scrfd": ([(2 * CELLS[s], w) for w in (1, 4, 10) for s in (8, 16, 32)], {}),
        "ssd": ([(1, 40, 4), (1, 40, n + 1)], {"strides": [16, 32], "anchors": ANCHORS, "activation": "softmax"}),
        "ultraface": ([(1, 3 * 64 + 2 * 16 + 2 * 4 + 3, 2), (1, 3 * 64 + 2 * 16 + 2 * 4 + 3, 4)], {}),
        "yolo_fastest_v2": ([(1, 8, 8, 10 + n), (1, 4, 4, 10 + n)], TWO),
        "yolo_rows": ([(1, 4 + n, rows)], {"objectness": False}),
        "yolov2": ([(1, 2 * (5 + n), 2, 2)], {"strides": [32], "anchors": [[[1.0, 1.2], [3.4, 4.4]]]}),
        "yolov5": ([(1, 2, 8, 8, 5 + n), (1, 2, 4, 4, 5 + n)], TWO),
        "yolov8": ([(1, 4 * bins + n, *s[1:]) for s in sizes], {}),
        "yolov8_obb": ([(1, 4 * bins + n, *s[1:]) for s in sizes] + [(1, 1, *s[1:]) for s in sizes], {}),
        "yolox": ([(1, rows, 5 + n)], {}),
        "yunet": ([(1, CELLS[s], w) for w in (1, 1, 4, 10) for s in (8, 16, 32)], {}),
    }
    return kinds[kind]


ONE_CLASS = ("blazeface", "db_text", "retinaface", "scrfd", "ultraface", "yunet")


@pytest.mark.parametrize("kind", sorted(set(HEAD_OPTIONS) - {"auto", "none", *CLASS_NUMBERS}))
@pytest.mark.parametrize("classes", [1, 2, 80])
def test_every_kind_counts_its_classes(kind: str, classes: int) -> None:
    tensors, options = shapes(kind, classes)
    head = Head(
        Preprocess(
            width=64,
            height=64,
            head=HeadSpec(
                kind, dict(options) | {"multi_label": True} if "multi_label" in HEAD_OPTIONS[kind] else dict(options)
            ),
        )
    )
    found = head.class_count({f"t{i}": shape for i, shape in enumerate(tensors)})
    assert found == (1 if kind in ONE_CLASS else classes)


def test_class_numbers_in_the_outputs_cannot_be_counted() -> None:
    head = Head(Preprocess(width=64, height=64, head=HeadSpec("detections")))
    assert head.class_count({"rows": (10, 6)}) is None


def test_outputs_that_do_not_fit_are_no_usage_error_of_the_command_line() -> None:
    head = Head(Preprocess(width=64, height=64, head=HeadSpec("yolox")))
    for ask in (
        lambda: head.class_count({"y": (1, 3, 85)}),
        lambda: head.detect({"y": np.zeros((1, 3, 85))}),
        lambda: head.candidates({"y": np.zeros((1, 3, 85))}),
    ):
        with pytest.raises(HeadError, match=r"yolox head: output `y` \[1, 3, 85\] does not fit") as caught:
            ask()
        assert caught.value.exit_code == 1
