"""YOLO families against float64 numpy formulas from the authors' papers and code: v2, v5 (v7, v4's new coords), v8 (v9, v11), OBB, Fastest-V2, decoded rows."""

from typing import Any

import numpy as np
import pytest
from head_formulas import Arrays, compare, corners, grid, head, normal, rows, sigmoid

from npuforge.compile.ir.errors import UsageError

ANCHORS = [[[10, 13], [16, 30], [33, 23]], [[30, 61], [62, 45], [59, 119]]]  # YOLOv5's first two levels


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def cells_of(map_: np.ndarray, anchors: int) -> np.ndarray:
    """[1, anchors * values, h, w] → [anchors, h * w, values] in float64."""
    _, channels, h, w = map_.shape
    return map_[0].astype(np.float64).reshape(anchors, channels // anchors, h * w).transpose(0, 2, 1)


LAYOUTS = {
    "channels": lambda m, a: m,
    "channels last": lambda m, a: m.transpose(0, 2, 3, 1),
    "anchors apart": lambda m, a: m.reshape(1, a, -1, *m.shape[2:]).transpose(0, 1, 3, 4, 2),
    "anchors apart, channels last": lambda m, a: m.reshape(1, a, -1, *m.shape[2:]).transpose(0, 3, 4, 1, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activated", [False, True])
def test_yolov5(layout: str, activated: bool) -> None:
    width, height, classes = 96, 64, 4
    outputs, expected = {}, []
    for name, stride, anchors in (("p3", 8, ANCHORS[0]), ("p4", 16, ANCHORS[1])):
        h, w = height // stride, width // stride
        raw = normal(1, 3 * (5 + classes), h, w)
        given = sigmoid(raw).astype(np.float32) if activated else raw
        outputs[name] = LAYOUTS[layout](given, 3)
        y = given.astype(np.float64) if activated else sigmoid(raw.astype(np.float64))
        for t, anchor in zip(cells_of(y, 3), anchors, strict=True):
            xy = (t[:, :2] * 2 - 0.5 + grid(h, w)) * stride
            wh = (t[:, 2:4] * 2) ** 2 * np.array(anchor)
            expected.append(rows(corners(xy, wh), t[:, 4:5] * t[:, 5:], 0.3))
    options: dict[str, Any] = {"strides": [8, 16], "anchors": ANCHORS}
    if activated:
        options["activation"] = "none"
    found = head("yolov5", width, height, options, score_threshold=0.3).candidates(outputs)
    compare(found, np.concatenate(expected))


def test_yolov4_new_coords_are_yolov5_with_their_own_scale() -> None:
    """darknet's `new_coords=1, scale_x_y=1.05`: x = (σ·1.05 − 0.025 + cell)·stride, w = (2σ)²·anchor."""
    raw = normal(1, 2 * 7, 4, 6)
    t = sigmoid(cells_of(raw, 2))
    expected = []
    for p, anchor in zip(t, [[20, 30], [40, 10]], strict=True):
        xy = (p[:, :2] * 1.05 - 0.025 + grid(4, 6)) * 16
        expected.append(rows(corners(xy, (2 * p[:, 2:4]) ** 2 * anchor), p[:, 4:5] * p[:, 5:], 0.3))
    options = {"strides": [16], "anchors": [[[20, 30], [40, 10]]], "scale_x_y": [1.05]}
    compare(head("yolov5", 96, 64, options, score_threshold=0.3).candidates({"o": raw}), np.concatenate(expected))


def test_yolov2() -> None:
    """darknet's region layer: anchors in cells, softmax over the classes."""
    anchors = [[1.08, 1.19], [3.42, 4.41], [6.63, 11.38], [9.42, 5.11], [16.62, 10.52]]
    raw = normal(1, 5 * 25, 4, 6)
    expected = []
    for t, anchor in zip(cells_of(raw, 5), anchors, strict=True):
        centre = (sigmoid(t[:, :2]) + grid(4, 6)) / [6, 4] * [192, 128]
        size = np.exp(t[:, 2:4]) * anchor / [6, 4] * [192, 128]
        expected.append(rows(corners(centre, size), sigmoid(t[:, 4:5]) * softmax(t[:, 5:], 1), 0.1))
    options = {"strides": [32], "anchors": [anchors]}
    compare(head("yolov2", 192, 128, options, score_threshold=0.1).candidates({"grid": raw}), np.concatenate(expected))


def dfl(p: np.ndarray, bins: int) -> np.ndarray:
    """[cells, 4 * bins] → [cells, 4]."""
    return (softmax(p.reshape(len(p), 4, bins), 2) * np.arange(bins)).sum(axis=2) if bins > 1 else p


@pytest.mark.parametrize("bins", [1, 8, 16])
@pytest.mark.parametrize("split", [False, True])
def test_yolov8(bins: int, split: bool) -> None:
    width, height, classes = 96, 64, 3
    boxes: Arrays = {}
    scores: Arrays = {}
    maps: Arrays = {}
    expected = []
    for stride in (8, 16, 32):
        h, w = height // stride, width // stride
        box, cls = normal(1, 4 * bins, h, w), normal(1, classes, h, w)
        if bins == 1:
            box = np.abs(box)
        boxes[f"box{stride}"], scores[f"cls{stride}"] = box, cls
        maps[f"m{stride}"] = np.concatenate([box, cls], axis=1)
        reach = dfl(cells_of(box, 1)[0], bins)
        point = grid(h, w) + 0.5
        corner = np.concatenate([point - reach[:, :2], point + reach[:, 2:]], axis=1) * stride
        expected.append(rows(corner, sigmoid(cells_of(cls, 1)[0]), 0.6))
    options: dict[str, Any] = {"bins": bins}
    if split:
        options["outputs"] = {"boxes": list(boxes), "classes": list(scores)}
    outputs = {**scores, **boxes} if split else maps
    found = head("yolov8", width, height, options, score_threshold=0.6).candidates(outputs)
    compare(found, np.concatenate(expected))


@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.999999, 1.0])
def test_the_threshold_is_the_scores_own_also_where_logits_are_compared(threshold: float) -> None:
    logits = np.linspace(-20, 20, 16 * 16, dtype=np.float32).reshape(1, 1, 16, 16)
    maps = np.concatenate([np.zeros((1, 4, 16, 16), np.float32), logits], axis=1)
    found = head("yolov8", 128, 128, {"strides": [8], "bins": 1}, score_threshold=threshold).candidates({"m": maps})
    sure = sigmoid(logits.astype(np.float64)).ravel()
    expected = (1 / (1 + np.exp(-logits)) > np.float32(threshold)).sum()
    assert abs(len(found) - expected) <= (np.abs(sure - threshold) < 1e-7).sum()


def rotated(centre: np.ndarray, size: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Corners [N, 8], clockwise from the unturned box's top left."""
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], axis=-1).reshape(-1, 1, 2, 2)
    offsets = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) / 2 * size[:, None]
    return (centre[:, None] + (turn @ offsets[..., None])[..., 0]).reshape(-1, 8)


def enclosing(points: np.ndarray) -> np.ndarray:
    xy = points.reshape(-1, 4, 2)
    return np.concatenate([xy.min(axis=1), xy.max(axis=1)], axis=1)


@pytest.mark.parametrize("split", [False, True])
def test_yolov8_oriented_boxes(split: bool) -> None:
    width, height, classes, bins = 96, 64, 3, 16
    first: Arrays = {}
    second: Arrays = {}
    angles: Arrays = {}
    expected = []
    for stride in (8, 16, 32):
        h, w = height // stride, width // stride
        box, cls, turn = normal(1, 4 * bins, h, w), normal(1, classes, h, w), normal(1, 1, h, w, scale=3)
        first[f"m{stride}"] = box if split else np.concatenate([box, cls], axis=1)
        second[f"c{stride}"], angles[f"a{stride}"] = cls, turn
        reach = dfl(cells_of(box, 1)[0], bins)
        angle = (sigmoid(turn.astype(np.float64)).ravel() - 0.25) * np.pi
        f = (reach[:, 2:] - reach[:, :2]) / 2
        turned = np.stack(
            [f[:, 0] * np.cos(angle) - f[:, 1] * np.sin(angle), f[:, 0] * np.sin(angle) + f[:, 1] * np.cos(angle)], 1
        )
        points = rotated((grid(h, w) + 0.5 + turned) * stride, (reach[:, :2] + reach[:, 2:]) * stride, angle)
        expected.append(rows(enclosing(points), sigmoid(cells_of(cls, 1)[0]), 0.6, points))
    outputs, options = {**first, **angles}, {}
    if split:
        outputs = {**angles, **second, **first}
        options = {"outputs": {"boxes": list(first), "classes": list(second), "angles": list(angles)}}
    decoder = head("yolov8_obb", width, height, options, score_threshold=0.6)
    assert decoder.oriented
    compare(decoder.candidates(outputs), np.concatenate(expected))


def test_yolo_fastest_v2() -> None:
    """[1, h, w, 4·3 + 3 + classes]: reg (h, w, 3, 4), obj (h, w, 3), classes shared; all activated in the graph."""
    anchors = [[[12.64, 19.39], [37.88, 51.48], [55.71, 138.31]], [[126.91, 78.23], [131.57, 214.55], [279.92, 258.87]]]
    outputs: Arrays = {}
    expected = []
    for name, stride, sizes in (("794", 16, anchors[0]), ("796", 32, anchors[1])):
        h, w = 64 // stride, 96 // stride
        reg, obj = sigmoid(normal(1, h, w, 12)), sigmoid(normal(1, h, w, 3))
        cls = softmax(normal(1, h, w, 5, scale=3), 3)
        outputs[name] = np.concatenate([reg, obj, cls], axis=3).astype(np.float32)
        out = outputs[name][0].astype(np.float64).reshape(h * w, -1)
        boxes = np.stack(
            [
                corners(
                    (out[:, 4 * n : 4 * n + 2] * 2 - 0.5 + grid(h, w)) * stride,
                    (out[:, 4 * n + 2 : 4 * n + 4] * 2) ** 2 * np.array(sizes[n]),
                )
                for n in range(3)
            ],
            axis=1,
        )
        score = out[:, 12:15, None] * out[:, None, 15:]
        expected.append(rows(boxes.reshape(-1, 4), score.reshape(-1, 5), 0.3))
    options = {"strides": [16, 32], "anchors": anchors}
    compare(head("yolo_fastest_v2", 96, 64, options, score_threshold=0.3).candidates(outputs), np.concatenate(expected))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("options", "before"),
    [
        ({}, 5),  # YOLOv5, v6, v7, YOLOX with decode_in_inference
        ({"objectness": False}, 4),  # YOLOv8, v9, v11
        ({"objectness": False, "box_format": "corners"}, 4),
        ({"objectness": True, "box_format": "top_left", "relative": True}, 5),
    ],
)
def test_rows_decoded_in_the_graph(options: dict[str, Any], before: int, transposed: bool) -> None:
    out = np.abs(normal(1, 50, before + 3)) * 20
    out[..., 4:] = sigmoid(normal(1, 50, before - 1))
    p = out[0].astype(np.float64)
    form = options.get("box_format", "center")
    a, b = p[:, :2], p[:, 2:4]
    boxes = {"center": corners(a, b), "corners": p[:, :4], "top_left": np.concatenate([a, a + b], axis=1)}[form]
    if options.get("relative"):
        boxes = boxes * [96, 64, 96, 64]
    score = p[:, 5:] * p[:, 4:5] if before == 5 else p[:, 4:]
    given = np.ascontiguousarray(out.transpose(0, 2, 1)) if transposed else out
    found = head("yolo_rows", 96, 64, options, score_threshold=0.4).candidates({"output0": given})
    compare(found, rows(boxes, score, 0.4))


def test_oriented_rows_decoded_in_the_graph() -> None:
    """ultralytics' OBB export: centre, size, classes, angle last."""
    out = np.abs(normal(1, 4 + 3 + 1, 60)) * 20
    out[:, 4:7] = sigmoid(normal(1, 3, 60))
    out[:, 7] = normal(1, 60)
    p = out[0].astype(np.float64).T
    points = rotated(p[:, :2], p[:, 2:4], p[:, 7])
    decoder = head("yolo_rows", 96, 64, {"objectness": False, "angle": True}, score_threshold=0.5)
    assert decoder.oriented
    compare(decoder.candidates({"output0": out}), rows(enclosing(points), p[:, 4:7], 0.5, points))
    best = head("yolo_rows", 96, 64, {"objectness": False, "angle": True}, score_threshold=0.0)
    out[0, 7, 7] = np.nan
    out[0, 2, 3] = np.inf
    assert len(best.candidates({"output0": out})) == 58 * 3


@pytest.mark.parametrize(
    ("kind", "options", "shape", "message"),
    [
        ("yolov5", {"strides": [8], "anchors": [[[1, 2]]]}, (1, 9, 3, 4), r"does not fit 1 anchors, expected shape"),
        ("yolov5", {"strides": [8], "anchors": [[[1, 2]], [[1, 2]]]}, (1, 9, 4, 4), r"one list of anchors per stride"),
        (
            "yolov5",
            {"activation": "tanh"},
            (1, 9, 4, 4),
            r"`tanh` is not legal, expected one of none, sigmoid, softmax",
        ),
        ("yolov2", {}, (1, 9, 4, 4), r"yolov2 head: needs one list of anchors per stride"),
        ("yolov8", {"strides": [8]}, (1, 64, 4, 4), r"4 distances of 16 bins and classes; correct head.options.bins"),
        ("yolov8", {"bins": 0}, (1, 64, 4, 4), r"head\.options\.bins"),
        ("yolov8_obb", {"strides": [8]}, (1, 67, 4, 4), r"expected at least 2 output tensors, found 1"),
        ("yolo_fastest_v2", {"strides": [8], "anchors": [[[1, 2]]]}, (1, 4, 4, 5), r"does not fit 1 anchors of 5 ch"),
        ("yolo_rows", {}, (1, 100, 5), r"has no class, expected more than 5 values"),
        ("yolo_rows", {"angle": True, "box_format": "corners"}, (1, 100, 8), r"set box_format to center"),
        ("yolo_rows", {"box_format": "xywh"}, (1, 100, 8), r"`xywh` is not legal, expected one of corners"),
    ],
)
def test_errors_name_what_is_wrong(kind: str, options: dict[str, Any], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        head(kind, 32, 32, options).candidates({"out": np.zeros(shape, dtype=np.float32)})
