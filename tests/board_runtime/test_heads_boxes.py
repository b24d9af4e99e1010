"""Heads with priors, points, peaks and boxes from the graph against float64 numpy formulas from the authors' papers and code."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from head_formulas import RNG, Arrays, compare, corners, grid, head, normal, rows, sigmoid

from npuforge.compile.ir.errors import UsageError


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def ssd_boxes(loc: np.ndarray, priors: np.ndarray, variances: tuple[float, float]) -> np.ndarray:
    """SSD's decoding; priors are centre and size."""
    centre = priors[:, :2] + loc[:, :2] * variances[0] * priors[:, 2:]
    return corners(centre, priors[:, 2:] * np.exp(loc[:, 2:] * variances[1]))


def test_ssd_priors_from_the_paper() -> None:
    """SSD300's own configuration; the priors as the paper's code lists them, in units of the image."""
    maps, steps = [38, 19, 10, 5, 3, 1], [8, 16, 32, 64, 100, 300]
    low, high = [30, 60, 111, 162, 213, 264], [60, 111, 162, 213, 264, 315]
    ratios: list[list[float]] = [[2], [2, 3], [2, 3], [2, 3], [2], [2]]
    found = []
    for k, side in enumerate(maps):
        for i, j in product(range(side), repeat=2):
            cx, cy = (j + 0.5) * steps[k] / 300, (i + 0.5) * steps[k] / 300
            s, both = low[k] / 300, np.sqrt(low[k] * high[k]) / 300
            found += [(cx, cy, s, s), (cx, cy, both, both)]
            for a in ratios[k]:
                found += [(cx, cy, s * np.sqrt(a), s / np.sqrt(a)), (cx, cy, s / np.sqrt(a), s * np.sqrt(a))]
    priors = np.array(found) * 300
    assert len(priors) == 8732  # the paper's number
    loc = normal(1, 8732, 4)
    raw = normal(1, 8732, 4, scale=3)
    scores = softmax(raw.astype(np.float64))[0]
    expected = rows(ssd_boxes(loc[0].astype(np.float64), priors, (0.1, 0.2)), scores[:, 1:], 0.9)
    options: dict[str, Any] = {"strides": steps, "min_boxes": [[v] for v in low], "max_boxes": [[v] for v in high]}
    options |= {"aspect_ratios": ratios}
    in_graph = head("ssd", 300, 300, options, score_threshold=0.9)
    compare(in_graph.candidates({"loc": loc, "conf": scores[None].astype(np.float32)}), expected)
    outside = head("ssd", 300, 300, options | {"activation": "softmax"}, score_threshold=0.9)
    compare(outside.candidates({"loc": loc, "conf": raw}), expected)


@pytest.mark.parametrize("background", ["first", "last", "none"])
def test_ssd_with_its_sizes_listed(background: str) -> None:
    """TensorFlow's SSD: sigmoid scores and boxes of any size per cell."""
    anchors = [[[30, 30], [60, 42], [42, 60]], [[90, 90]]]
    priors = []
    for (w, h), step, sizes in (((6, 4), 16, anchors[0]), ((3, 2), 32, anchors[1])):
        priors += [((x + 0.5) * step, (y + 0.5) * step, *size) for x, y in grid(h, w) for size in sizes]
    loc, raw = normal(1, len(priors), 4), normal(1, len(priors), 4)
    scores = sigmoid(raw[0].astype(np.float64))
    scores = {"first": scores[:, 1:], "last": scores[:, :-1], "none": scores}[background]
    boxes = ssd_boxes(loc[0].astype(np.float64), np.array(priors, dtype=np.float64), (0.1, 0.2))
    options = {"strides": [16, 32], "anchors": anchors, "activation": "sigmoid", "background": background}
    found = head("ssd", 96, 64, options, score_threshold=0.6).candidates({"l": loc, "c": raw})
    compare(found, rows(boxes, scores, 0.6))


def test_retinaface() -> None:
    width, height = 96, 72  # the last maps are 6x5 and 3x3: the authors take ceil
    priors = []
    for step, sizes in ((8, (16, 32)), (16, (64, 128)), (32, (256, 512))):
        w, h = -(-width // step), -(-height // step)
        priors += [((x + 0.5) * step, (y + 0.5) * step, s, s) for x, y in grid(h, w) for s in sizes]
    table = np.array(priors)
    loc, points = normal(1, len(table), 4), normal(1, len(table), 10)
    conf = softmax(normal(1, len(table), 2).astype(np.float64)).astype(np.float32)
    keypoints = table[:, None, :2] + points[0].astype(np.float64).reshape(-1, 5, 2) * 0.1 * table[:, None, 2:]
    boxes = ssd_boxes(loc[0].astype(np.float64), table, (0.1, 0.2))
    expected = rows(boxes, conf[0, :, 1:], 0.7, keypoints.reshape(-1, 10))
    outputs = {"loc": loc, "conf": conf, "landms": points}
    compare(head("retinaface", width, height, {}, score_threshold=0.7).candidates(outputs), expected)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("with_points", [False, True])
def test_scrfd(batched: bool, with_points: bool) -> None:
    width, height = 96, 64
    scores: Arrays = {}
    distances: Arrays = {}
    points: Arrays = {}
    expected = []
    for stride in (8, 16, 32):
        centre = np.repeat(grid(height // stride, width // stride) * stride, 2, axis=0)
        n = len(centre)
        s, d, k = sigmoid(normal(n, 1)).astype(np.float32), np.abs(normal(n, 4)), normal(n, 10)
        scores[f"s{stride}"], distances[f"d{stride}"], points[f"k{stride}"] = s, d, k
        reach = d.astype(np.float64) * stride
        boxes = np.concatenate([centre - reach[:, :2], centre + reach[:, 2:]], axis=1)
        keypoints = (centre[:, None] + k.astype(np.float64).reshape(-1, 5, 2) * stride).reshape(-1, 10)
        expected.append(rows(boxes, s, 0.6, keypoints if with_points else None))
    outputs = {**scores, **distances, **(points if with_points else {})}
    if batched:
        outputs = {name: value[None] for name, value in outputs.items()}
    compare(head("scrfd", width, height, {}, score_threshold=0.6).candidates(outputs), np.concatenate(expected))


def test_scrfd_of_five_strides_has_one_anchor_a_cell() -> None:
    strides = (8, 16, 32, 64, 128)
    centres = [grid(128 // stride, 256 // stride) * stride for stride in strides]
    scores = {f"s{s}": sigmoid(normal(len(c), 1)).astype(np.float32) for s, c in zip(strides, centres, strict=True)}
    distances = {f"d{s}": np.abs(normal(len(c), 4)) for s, c in zip(strides, centres, strict=True)}
    expected = []
    for stride, centre in zip(strides, centres, strict=True):
        reach = distances[f"d{stride}"].astype(np.float64) * stride
        boxes = np.concatenate([centre - reach[:, :2], centre + reach[:, 2:]], axis=1)
        expected.append(rows(boxes, scores[f"s{stride}"], 0.6))
    found = head("scrfd", 256, 128, {"strides": list(strides)}, score_threshold=0.6)
    compare(found.candidates({**scores, **distances}), np.concatenate(expected))


@pytest.mark.parametrize("kind", ["picodet", "nanodet_plus"])
def test_distributions_at_four_strides(kind: str) -> None:
    """PicoDet measures from the middle of a cell, NanoDet-Plus from its corner and joins all in one tensor."""
    width, height, classes, bins = 160, 96, 3, 8
    outputs: Arrays = {}
    distances: Arrays = {}
    expected = []
    for stride in (8, 16, 32, 64):
        w, h = -(-width // stride), -(-height // stride)
        outputs[f"c{stride}"] = sigmoid(normal(1, h * w, classes)).astype(np.float32)
        distances[f"d{stride}"] = normal(1, h * w, 4 * bins, scale=2)
        p = softmax(distances[f"d{stride}"][0].astype(np.float64).reshape(-1, 4, bins))
        reach = (p * np.arange(bins)).sum(axis=2) * stride
        point = (grid(h, w) + (0.5 if kind == "picodet" else 0)) * stride
        boxes = np.concatenate([point - reach[:, :2], point + reach[:, 2:]], axis=1)
        expected.append(rows(boxes, outputs[f"c{stride}"][0].astype(np.float64), 0.7))
    given = {**outputs, **distances}
    if kind == "nanodet_plus":
        pairs = zip(outputs.values(), distances.values(), strict=True)
        given = {"output": np.concatenate([np.concatenate(pair, axis=2) for pair in pairs], axis=1)}
    compare(head(kind, width, height, {}, score_threshold=0.7).candidates(given), np.concatenate(expected))


@pytest.mark.parametrize("activation", ["none", "sigmoid"])
@pytest.mark.parametrize("with_offsets", [False, True])
def test_centernet(activation: str, with_offsets: bool) -> None:
    h, w = 16, 24
    raw = normal(1, 3, h, w)
    heat = raw.astype(np.float64) if activation == "sigmoid" else sigmoid(raw.astype(np.float64))
    given = raw if activation == "sigmoid" else heat.astype(np.float32)
    size, offset = np.abs(normal(1, 2, h, w)) * 5, RNG.random((1, 2, h, w)).astype(np.float32)
    expected = []
    for c, y, x in product(range(3), range(h), range(w)):
        score = sigmoid(heat[0, c, y, x]) if activation == "sigmoid" else heat[0, c, y, x]
        window = heat[0, c, max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        if score > 0.6 and heat[0, c, y, x] == window.max():
            cx, cy = np.array([x, y]) + (offset[0, :, y, x] if with_offsets else 0.5)  # the authors' ctdet_decode
            bw, bh = size[0, :, y, x]
            corner = np.array([cx - bw / 2, cy - bh / 2, cx + bw / 2, cy + bh / 2]) * 4
            expected.append([*corner, score, c])
    outputs = {"hm": given, "wh": size} | ({"reg": offset} if with_offsets else {})
    decoder = head("centernet", 4 * w, 4 * h, {"activation": activation}, score_threshold=0.6, nms_threshold=0.0)
    compare(decoder.candidates(outputs), np.array(expected))
    assert len(decoder.detect(outputs)) == min(len(expected), 100)  # peaks are final: no NMS


def test_boxes_and_scores_apart() -> None:
    """pytorch-YOLOv4's export: relative corners [1, N, 1, 4] and class confidences; DETR: centre boxes, softmax with nothing last."""
    boxes = np.sort(RNG.random((1, 40, 1, 2, 2)), axis=3).reshape(1, 40, 1, 4).astype(np.float32)
    conf = RNG.random((1, 40, 5)).astype(np.float32)
    found = head("boxes", 96, 64, {"relative": True}, score_threshold=0.6).candidates({"boxes": boxes, "confs": conf})
    compare(found, rows(boxes.reshape(40, 4) * np.array([96, 64, 96, 64]), conf[0], 0.6))
    raw = normal(1, 40, 6, scale=2)
    options = {"relative": True, "box_format": "center", "activation": "softmax", "background": "last"}
    p = boxes.reshape(40, 4).astype(np.float64) * [96, 64, 96, 64]
    found = head("boxes", 96, 64, options, score_threshold=0.5).candidates({"boxes": boxes[:, :, 0], "logits": raw})
    compare(found, rows(corners(p[:, :2], p[:, 2:]), softmax(raw.astype(np.float64))[0, :, :-1], 0.5))


def test_nms_inside_the_graph_is_not_repeated() -> None:
    """Rows [N, 7] of batch, box, class, score; two boxes on top of each other both stay."""
    table = [[0, 1, 2, 30, 40, 3, 0.9], [0, 1, 2, 30, 40, 3, 0.8], [0, 5, 6, 7, 8, 1, 0.2]]
    columns = ["batch", "x1", "y1", "x2", "y2", "class", "score"]
    decoder = head("detections", 96, 64, {"columns": columns}, score_threshold=0.3, nms_threshold=0.5)
    found = decoder.detect({"out": np.array(table, dtype=np.float32)})
    np.testing.assert_allclose(found, [[1, 2, 30, 40, 0.9, 3], [1, 2, 30, 40, 0.8, 3]], rtol=1e-6)
    assert decoder.detect({"out": np.zeros((0, 7), dtype=np.float32)}).shape == (0, 6)


def test_end_to_end_rows_of_yolov10() -> None:
    out = np.concatenate(
        [RNG.random((1, 300, 4)) * 90, RNG.random((1, 300, 1)), RNG.integers(0, 80, (1, 300, 1))], axis=2
    ).astype(np.float32)
    expected = out[0][out[0, :, 4] > 0.25]
    found = head("detections", 96, 64, {}, score_threshold=0.25).candidates({"output0": out})
    np.testing.assert_array_equal(found, expected)


def test_detections_in_four_tensors_with_their_number() -> None:
    """TensorFlow's and TensorRT's NMS: boxes (here y first, relative), scores, classes, filled up behind `count`."""
    boxes = np.array([[[0.1, 0.2, 0.5, 0.6], [0.3, 0.1, 0.9, 0.4], [0, 0, 1, 1]]], dtype=np.float32)
    outputs = {
        "b": boxes,
        "s": np.array([[0.9, 0.7, 0.99]], dtype=np.float32),
        "c": np.array([[2, 0, 0]], dtype=np.float32),
        "n": np.array([2], dtype=np.float32),
    }
    options = {
        "outputs": {"boxes": "b", "scores": "s", "classes": "c", "count": "n"},
        "box_format": "corners_yx",
        "relative": True,
    }
    found = head("detections", 100, 50, options, score_threshold=0.5).candidates(outputs)
    expected = [[20, 5, 60, 25, 0.9, 2], [10, 15, 40, 45, 0.7, 0]]
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "options", "outputs", "message"),
    [
        ("ssd", {}, {}, r"one list of min_boxes per stride"),
        ("ssd", {"strides": [8], "anchors": [[[1, 1]]], "min_boxes": [[1]]}, {}, r"and no other sizes"),
        ("ssd", {"strides": [8], "min_boxes": [[1]], "max_boxes": [[2, 3]]}, {}, r"one of max_boxes for each"),
        ("ssd", {"strides": [8], "min_boxes": [[1]]}, {"b": (1, 15, 4), "s": (1, 15, 2)}, r"expected 16 priors"),
        ("ssd", {"strides": [8], "min_boxes": [[1]]}, {"b": (1, 16, 4), "s": (1, 16, 1)}, r"no class besides the back"),
        ("ssd", {"background": "middle"}, {}, r"`middle` is not legal, expected one of none, first, last"),
        ("retinaface", {}, {"b": (1, 42, 4), "s": (1, 42, 3), "k": (1, 42, 10)}, r"is not nothing and face"),
        ("scrfd", {"strides": [8]}, {"s": (32, 1), "d": (31, 4), "k": (32, 10)}, r"stride 8, expected 32 rows each"),
        ("centernet", {"strides": [4, 8]}, {}, r"has one stride"),
        ("centernet", {}, {"h": (1, 1, 8, 8), "w": (1, 2, 4, 8)}, r"`w` \[1, 2, 4, 8\].*expected shape \[1, 2, 8, 8\]"),
        ("boxes", {}, {"b": (1, 3, 5), "s": (1, 3, 2)}, r"expected shape \[1, any, 4\]"),
        ("detections", {"columns": ["x1", "y1", "x2", "y2", "class"]}, {}, r"columns name no score"),
        ("detections", {"columns": ["left"]}, {}, r"unknown column `left`; columns are x1"),
        ("detections", {}, {"o": (1, 3, 7)}, r"expected shape \[1, any, 6\]"),
        ("detections", {}, {"o": (2, 3, 6)}, r"expected shape \[1, any, 6\]"),
        (
            "detections",
            {"outputs": {"boxes": "b", "scores": "s", "classes": "c"}},
            {"b": (1, 3, 4), "s": (1, 2), "c": (1, 3)},
            r"are not of the same detections",
        ),
        ("nanodet_plus", {}, {"o": (1, 22, 32)}, r"correct head.options.bins"),
    ],
)
def test_errors_name_what_is_wrong(
    kind: str, options: dict[str, Any], outputs: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        head(kind, 32, 32, options).candidates({n: np.zeros(s, dtype=np.float32) for n, s in outputs.items()})
