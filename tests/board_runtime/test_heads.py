"""Each C++ decoder against float64 numpy formulas written from the authors' definitions (not from the C++), on random maps."""

from typing import Any

import numpy as np
import pytest
from head_formulas import RNG, Arrays, compare, corners, grid, head, normal, rows, sigmoid

from npuforge.board_runtime.heads import Head
from npuforge.compile.ir.errors import InputError, UsageError
from npuforge.compile.ir.preprocess_io import load_preprocess, parse_preprocess


def test_yolox() -> None:
    width, height, classes = 96, 64, 4
    cells = [grid(height // s, width // s) for s in (8, 16, 32)]
    strides = np.concatenate([np.full(len(c), s) for c, s in zip(cells, (8, 16, 32), strict=True)])[:, None]
    centres = np.concatenate(cells)
    out = normal(1, len(centres), 5 + classes)
    out[..., 4:] = sigmoid(out[..., 4:])
    p = out[0].astype(np.float64)
    boxes = corners((p[:, :2] + centres) * strides, np.exp(p[:, 2:4]) * strides)
    expected = rows(boxes, p[:, 4:5] * p[:, 5:], 0.3)
    compare(head("yolox", width, height, {}, score_threshold=0.3).candidates({"output": out}), expected)


@pytest.mark.parametrize("scale_x_y", [1.0, 1.05, 2.0])
def test_darknet(scale_x_y: float) -> None:
    width, height, classes = 96, 64, 3
    anchors = [[[115, 73], [119, 199], [242, 238]], [[12, 18], [37, 49], [52, 132]]]
    outputs, expected = {}, []
    for name, stride, sizes in (("a", 32, anchors[0]), ("b", 16, anchors[1])):
        h, w = height // stride, width // stride
        out = normal(1, 3 * (5 + classes), h, w)
        outputs[name] = out
        for n, anchor in enumerate(sizes):
            t = out[0].reshape(3, 5 + classes, h * w)[n].T.astype(np.float64)
            centre = (sigmoid(t[:, :2]) * scale_x_y - (scale_x_y - 1) / 2 + grid(h, w)) * stride
            boxes = corners(centre, np.exp(t[:, 2:4]) * np.array(anchor))
            expected.append(rows(boxes, sigmoid(t[:, 4:5]) * sigmoid(t[:, 5:]), 0.3))
    options = {"strides": [32, 16], "anchors": anchors, "scale_x_y": [scale_x_y] * 2, "outputs": {"maps": ["a", "b"]}}
    compare(head("darknet", width, height, options, score_threshold=0.3).candidates(outputs), np.concatenate(expected))


def test_fastestdet() -> None:
    height, width, classes = 4, 6, 5
    out = normal(1, 5 + classes, height, width)
    out[:, 0] = sigmoid(out[:, 0])
    out[:, 5:] = np.exp(out[:, 5:]) / np.exp(out[:, 5:]).sum(axis=1, keepdims=True)
    t = out[0].reshape(5 + classes, -1).T.astype(np.float64)
    centre = (np.tanh(t[:, 1:3]) + grid(height, width)) / [width, height] * [192, 128]
    boxes = corners(centre, sigmoid(t[:, 3:5]) * [192, 128])
    expected = rows(boxes, t[:, :1] ** 0.6 * t[:, 5:] ** 0.4, 0.25)
    compare(head("fastestdet", 192, 128, {}, score_threshold=0.25).candidates({"o": out}), expected)


def test_nanodet() -> None:
    width, height, classes, bins = 96, 64, 4, 8
    outputs: Arrays = {}
    distances: Arrays = {}
    expected = []
    for stride in (8, 16, 32):
        cells = grid(height // stride, width // stride)
        outputs[f"c{stride}"] = sigmoid(normal(1, len(cells), classes)).astype(np.float32)
        distances[f"d{stride}"] = normal(1, len(cells), 4 * bins, scale=2)
        p = distances[f"d{stride}"][0].astype(np.float64).reshape(-1, 4, bins)
        weights = np.exp(p) / np.exp(p).sum(axis=2, keepdims=True)
        reach = (weights * np.arange(bins)).sum(axis=2) * stride
        centre = (cells + 0.5) * stride
        boxes = np.concatenate([centre - reach[:, :2], centre + reach[:, 2:]], axis=1)
        expected.append(rows(boxes, outputs[f"c{stride}"][0].astype(np.float64), 0.7))
    # by position (class maps first), and by name with the outputs in another order
    by_position = head("nanodet", width, height, {}, score_threshold=0.7).candidates({**outputs, **distances})
    compare(by_position, np.concatenate(expected))
    options = {"outputs": {"classes": list(outputs), "distances": list(distances)}}
    by_name = head("nanodet", width, height, options, score_threshold=0.7).candidates({**distances, **outputs})
    np.testing.assert_array_equal(by_name, by_position)


def test_yunet() -> None:
    width, height = 96, 64
    outputs: Arrays = {}
    expected = []
    sizes = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
    for stride in (8, 16, 32):
        cells = grid(height // stride, width // stride)
        for role, n in sizes.items():
            value = normal(1, len(cells), n)
            outputs[f"{role}_{stride}"] = sigmoid(value) if n == 1 else value
        box, points = (outputs[f"{r}_{stride}"][0].astype(np.float64) for r in ("bbox", "kps"))
        score = np.sqrt(outputs[f"cls_{stride}"][0].astype(np.float64) * outputs[f"obj_{stride}"][0])
        boxes = corners((box[:, :2] + cells) * stride, np.exp(box[:, 2:]) * stride)
        keypoints = ((points.reshape(-1, 5, 2) + cells[:, None]) * stride).reshape(-1, 10)
        expected.append(rows(boxes, score, 0.5, keypoints))
    options = {"outputs": {role: [f"{role}_{s}" for s in (8, 16, 32)] for role in sizes}}
    compare(head("yunet", width, height, options, score_threshold=0.5).candidates(outputs), np.concatenate(expected))


@pytest.mark.parametrize("decoded", [False, True])
def test_ultraface(decoded: bool) -> None:
    width, height = 160, 120  # maps 20x15, 10x8, 5x4, 3x2
    priors = []
    min_boxes = [[10, 16, 24], [32, 48], [64, 96], [128, 192, 256]]
    for (w, h), sides in zip(((20, 15), (10, 8), (5, 4), (3, 2)), min_boxes, strict=True):
        for x, y in grid(h, w):
            priors += [((x + 0.5) / w, (y + 0.5) / h, s / width, s / height) for s in sides]
    prior = np.clip(np.array(priors), 0, 1)
    scores = sigmoid(normal(1, len(prior), 2))
    boxes = normal(1, len(prior), 4) if not decoded else RNG.random((1, len(prior), 4)).astype(np.float32)
    p = boxes[0].astype(np.float64)
    real = (
        p if decoded else corners(p[:, :2] * 0.1 * prior[:, 2:] + prior[:, :2], np.exp(p[:, 2:] * 0.2) * prior[:, 2:])
    )
    expected = rows(real * [width, height, width, height], scores[0, :, 1:], 0.8)
    found = head("ultraface", width, height, {"decoded": decoded}, score_threshold=0.8).candidates(
        {"s": scores, "b": boxes}
    )
    compare(found, expected)


def test_blazeface() -> None:
    outputs: Arrays = {}
    regressors: Arrays = {}
    expected = []
    for side, per_cell in ((16, 2), (8, 6)):
        centre = np.repeat((grid(side, side) + 0.5) / side, per_cell, axis=0) * 128
        outputs[f"s{side}"] = normal(1, len(centre), 1, scale=3)
        outputs[f"s{side}"][0, :2] = [[1e6], [-1e6]]  # clipped, not overflowed
        regressors[f"r{side}"] = normal(1, len(centre), 16, scale=20)
        r = regressors[f"r{side}"][0].astype(np.float64)
        keypoints = (r[:, 4:].reshape(-1, 6, 2) + centre[:, None]).reshape(-1, 12)
        score = sigmoid(np.clip(outputs[f"s{side}"][0].astype(np.float64), -100, 100))
        expected.append(rows(corners(centre + r[:, :2], r[:, 2:4]), score, 0.6, keypoints))
    found = head("blazeface", 128, 128, {}, score_threshold=0.6).candidates({**outputs, **regressors})
    compare(found, np.concatenate(expected))


def test_yolodecode_takes_boxes_as_they_are() -> None:
    boxes = (RNG.random((1, 40, 4)) * 100).astype(np.float32)
    scores = RNG.random((1, 40)).astype(np.float32)
    classes = RNG.integers(0, 5, (1, 40)).astype(np.float32)
    keep = scores[0] > 0.5
    expected = np.concatenate([boxes[0], scores.T, classes.T], axis=1)[keep]
    found = head("yolodecode", 64, 64, {}, score_threshold=0.5).candidates(
        {"boxes": boxes, "scores": scores, "classes": classes}
    )
    np.testing.assert_array_equal(found, expected)


def test_best_class_only() -> None:
    out = np.zeros((1, 21, 8), dtype=np.float32)
    out[0, 5, 4:] = [1.0, 0.6, 0.9, 0.7]
    multi = head("yolox", 32, 32, {}, score_threshold=0.5).candidates({"o": out})
    single = head("yolox", 32, 32, {"multi_label": False}, score_threshold=0.5).candidates({"o": out})
    assert multi[:, 5].tolist() == [0, 1, 2]
    assert single[:, 5].tolist() == [1] and single[0, 4] == np.float32(0.9)


def test_values_that_are_not_finite_are_dropped() -> None:
    out = np.zeros((1, 21, 6), dtype=np.float32)
    out[..., 4:] = 1.0
    out[0, 0, 2] = 1e4  # exp overflows
    out[0, 1, 0] = np.nan
    out[0, 2, 4] = np.nan
    out[0, 3, 5] = np.nan
    assert len(head("yolox", 32, 32, {}).candidates({"o": out})) == 17


@pytest.mark.parametrize(
    ("kind", "options", "outputs", "message"),
    [
        (
            "yolox",
            {"outputs": {"predictions": "x"}},
            {"output": (1, 21, 6)},
            r"no output `x`.*its outputs are `output`",
        ),
        ("yolox", {}, {"output": (1, 20, 6)}, r"`output` \[1, 20, 6\].*expected shape \[1, 21, any\]"),
        ("yolox", {}, {"output": (1, 21, 5)}, r"has no class"),
        ("yolox", {}, {}, r"expected at least 1 output tensors, found 0"),
        ("yolox", {"anchors": []}, {}, r"unknown option `anchors`; legal options: outputs, strides, multi_label"),
        ("yolox", {"strides": [0]}, {}, r"stride 0 is not positive"),
        ("yolox", {"strides": "8"}, {}, r"head\.options\.strides"),
        ("yolox", {"multi_label": 1}, {}, r"head\.options\.multi_label"),
        ("darknet", {}, {}, r"one list of anchors per stride"),
        ("darknet", {"strides": [32], "anchors": [[[1, 2, 3]]]}, {}, r"anchor must be \[width, height\]"),
        ("darknet", {"strides": [32], "anchors": [[[1, 2]]]}, {"o": (1, 4, 1, 1)}, r"does not fit 1 anchors"),
        ("nanodet", {}, {"a": (1, 16, 2)}, r"expected at least 3 output tensors, found 1"),
        ("ultraface", {"min_boxes": [[1]]}, {}, r"one list of min_boxes per stride"),
        ("blazeface", {"anchors_per_cell": [1]}, {}, r"one anchors_per_cell per stride"),
        ("yolodecode", {}, {"b": (1, 3, 4), "s": (1, 2), "c": (1, 3)}, r"`s` \[1, 2\].*expected shape \[1, 3\]"),
        ("yolo9000", {}, {}, r"unknown head kind `yolo9000`"),
        ("none", {}, {}, r"declares no detection head"),
    ],
)
def test_errors_name_what_is_wrong(
    kind: str, options: dict[str, Any], outputs: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(InputError if kind == "none" else UsageError, match=message):
        head(kind, 32, 32, options).candidates({n: np.zeros(s, dtype=np.float32) for n, s in outputs.items()})


def test_option_tables_of_python_and_cpp_agree() -> None:
    from npuforge.board_runtime import _native
    from npuforge.compile.ir.preprocess_io import HEAD_OPTIONS, preset_names

    assert sorted(HEAD_OPTIONS) == sorted([*_native.heads.kinds(), "none", "auto"])
    for kind in _native.heads.kinds():
        assert set(HEAD_OPTIONS[kind]) == set(_native.heads.option_names(kind))
    for name in preset_names():
        Head(load_preprocess(name))  # the C++ side accepts every preset


def test_record_through_json_gives_the_same_head() -> None:
    record = parse_preprocess(load_preprocess("yolo_fastest_1.1").to_json())
    outputs = {"yolo0_10x10": normal(1, 255, 10, 10), "yolo1_20x20": normal(1, 255, 20, 20)}
    np.testing.assert_array_equal(
        Head(record).detect(outputs), Head(load_preprocess("yolo_fastest_1.1")).detect(outputs)
    )
