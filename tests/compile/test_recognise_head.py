"""Heads recognised from a graph's outputs: small graphs that end as each exporter ends them, the real files, and look-alikes that must not be taken."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from head_nets import Net

from npuforge.board_runtime.heads import Head
from npuforge.compile.ir.graph import Graph, TensorInfo
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess
from npuforge.compile.steps import fold, fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.preprocessing import complete
from npuforge.compile.steps.recognise_head import class_names, recognise

MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "models"


def yolox(n: Net) -> Graph:
    maps = []
    for stride in (8, 16, 32):
        box, obj, cls = n.map(stride, 4), n.node("Sigmoid", n.map(stride, 1)), n.node("Sigmoid", n.map(stride, 3))
        maps.append(n.flat(n.node("Concat", box, obj, cls, axis=1), 8))
    return n.graph(n.node("Transpose", n.node("Concat", *maps, axis=2), perm=[0, 2, 1], name="output"))


def yolov5(n: Net) -> Graph:
    levels = []
    for stride in (8, 16, 32):
        y = n.node("Sigmoid", n.rows(n.map(stride, 3 * 8), 8))
        cells = 3 * (n.side // stride) ** 2
        twice = n.node("Mul", y, n.constant(np.full((1, cells, 8), 2), np.float32))
        levels.append(n.node("Add", twice, n.constant(np.random.default_rng(1).random((1, cells, 8)), np.float32)))
    return n.graph(n.node("Concat", *levels, axis=1, name="output0"))


def yolov8_raw(n: Net) -> Graph:
    joined = [n.node("Concat", n.map(s, 64), n.map(s, 5), axis=1, name=f"p{s}") for s in (8, 16, 32)]
    return n.graph(*joined[::-1])


def yolov8_split(n: Net) -> Graph:
    outputs = []
    for stride in (8, 16, 32):
        outputs += [n.node("Sigmoid", n.map(stride, 5), name=f"c{stride}"), n.map(stride, 64, name=f"b{stride}")]
    return n.graph(*outputs)


def yolov8(n: Net, angle: bool = False) -> Graph:
    cells = sum((n.side // s) ** 2 for s in (8, 16, 32))
    boxes = n.node("Concat", *(n.flat(n.map(s, 64), 64) for s in (8, 16, 32)), axis=2)
    scores = n.node("Concat", *(n.flat(n.map(s, 5), 5) for s in (8, 16, 32)), axis=2)
    bins = n.node("Transpose", n.node("Reshape", boxes, n.constant([1, 4, 16, cells])), perm=[0, 2, 1, 3])
    soft = n.node("Softmax", bins, axis=1)
    weight = n.constant(np.arange(16).reshape(1, 16, 1, 1), np.float32)
    reach = n.node("Reshape", n.node("Conv", soft, weight, kernel_shape=[1, 1]), n.constant([1, 4, cells]))
    strides = n.constant(np.random.default_rng(2).random((1, 1, cells)) + 1, np.float32)
    parts = [n.node("Mul", reach, strides), n.node("Sigmoid", scores)]
    if angle:
        turn = n.node("Concat", *(n.flat(n.map(s, 1), 1) for s in (8, 16, 32)), axis=2)
        parts.append(n.node("Sub", n.node("Sigmoid", turn), n.constant(0.25, np.float32)))
        n.metadata["task"] = "obb"
    return n.graph(n.node("Concat", *parts, axis=1, name="output0"))


def yolov8_obb(n: Net) -> Graph:
    return yolov8(n, angle=True)


def yolov10(n: Net) -> Graph:
    rows, scores = n.rows(n.map(8, 6), 6), n.flat(n.map(8, 1), 1)
    n.node("TopK", scores, n.constant([100]), outputs=2, axis=2, name="best")
    places = n.node("Reshape", n.nodes[-1].output[1], n.constant([1, 100, 1]))
    table = n.node("Expand", places, n.constant([1, 100, 6]))
    return n.graph(n.node("GatherElements", rows, table, axis=1, name="output0"))


def nanodet(n: Net, strides: tuple[int, ...] = (8, 16, 32)) -> Graph:
    scores = [n.rows(n.node("Sigmoid", n.map(s, 4)), 4, name=f"c{s}") for s in strides]
    return n.graph(*[n.rows(n.map(s, 32), 32, name=f"d{s}") for s in strides], *scores)


def picodet(n: Net) -> Graph:
    return nanodet(n, (8, 16, 32, 64))


def nanodet_plus(n: Net) -> Graph:
    maps = [n.flat(n.node("Concat", n.node("Sigmoid", n.map(s, 4)), n.map(s, 32), axis=1), 36) for s in (8, 16, 32, 64)]
    return n.graph(n.node("Transpose", n.node("Concat", *maps, axis=2), perm=[0, 2, 1], name="output"))


def scrfd(n: Net) -> Graph:
    names = []
    for values, role in ((1, "s"), (4, "b"), (10, "k")):
        for s in (8, 16, 32):
            x = n.map(s, 2 * values)
            names.append(n.rows(n.node("Sigmoid", x) if values == 1 else x, values, name=f"{role}{s}"))
    return n.graph(*names)


def scrfd_of_five_strides(n: Net) -> Graph:
    names = []
    for values, role in ((1, "s"), (4, "b")):
        for s in (8, 16, 32, 64, 128):
            x = n.map(s, values)
            names.append(n.rows(n.node("Sigmoid", x) if values == 1 else x, values, name=f"{role}{s}"))
    return n.graph(*names)


def retinaface(n: Net) -> Graph:
    def joined(values: int) -> str:
        return n.node("Concat", *(n.rows(n.map(s, 2 * values), values) for s in (8, 16, 32)), axis=1)

    return n.graph(joined(4), n.node("Softmax", joined(2), axis=2, name="conf"), joined(10))


def centernet(n: Net) -> Graph:
    return n.graph(n.node("Sigmoid", n.map(4, 3), name="hm"), n.map(4, 2, name="reg"), n.map(4, 2, name="wh"))


def fastestdet(n: Net) -> Graph:
    parts = n.node("Sigmoid", n.map(16, 1)), n.map(16, 4), n.node("Softmax", n.map(16, 3), axis=1)
    return n.graph(n.node("Concat", *parts, axis=1))


def yolov4_pytorch(n: Net) -> Graph:
    boxes, scores = [], []
    for s in (8, 16, 32):
        boxes.append(n.node("Reshape", n.rows(n.map(s, 12), 4), n.constant([1, -1, 1, 4])))
        scores.append(n.node("Sigmoid", n.rows(n.map(s, 9), 3)))
    return n.graph(n.node("Concat", *scores, axis=1), n.node("Concat", *boxes, axis=1))


def tensorflow(n: Net) -> Graph:
    boxes = n.node("Reshape", n.map(32, 4), n.constant([1, -1, 4]), name="detection_boxes:0")
    scores = n.node("Reshape", n.map(32, 1), n.constant([1, -1]), name="detection_scores:0")
    return n.graph(boxes, n.node("Reshape", n.map(32, 1), n.constant([1, -1]), name="detection_classes:0"), scores)


CASES: dict[Callable[[Net], Graph], tuple[str, dict[str, Any]]] = {
    yolox: ("yolox", {"outputs": {"predictions": "output"}}),
    yolov5: ("yolo_rows", {"objectness": True}),
    yolov8: ("yolo_rows", {"objectness": False, "angle": False}),
    yolov8_obb: ("yolo_rows", {"objectness": False, "angle": True}),
    yolov8_raw: ("yolov8", {"outputs": {"maps": ["p8", "p16", "p32"]}, "strides": [8, 16, 32]}),
    yolov8_split: (
        "yolov8",
        {"outputs": {"boxes": ["b8", "b16", "b32"], "classes": ["c8", "c16", "c32"]}, "activation": "none"},
    ),
    yolov10: ("detections", {"outputs": {"rows": "output0"}}),
    nanodet: ("nanodet", {"outputs": {"classes": ["c8", "c16", "c32"], "distances": ["d8", "d16", "d32"]}}),
    picodet: ("picodet", {"strides": [8, 16, 32, 64]}),
    nanodet_plus: ("nanodet_plus", {}),
    scrfd: ("scrfd", {"outputs": {r: [f"{r[0]}{s}" for s in (8, 16, 32)] for r in ("scores", "boxes", "keypoints")}}),
    scrfd_of_five_strides: ("scrfd", {"strides": [8, 16, 32, 64, 128]}),
    retinaface: ("retinaface", {"activation": "none"}),
    centernet: ("centernet", {"outputs": {"heatmap": "hm", "sizes": "wh", "offsets": "reg"}, "activation": "none"}),
    fastestdet: ("fastestdet", {}),
    yolov4_pytorch: ("boxes", {"relative": True}),
    tensorflow: ("detections", {"box_format": "corners_yx", "relative": True}),
}
CASES[scrfd][1]["outputs"]["distances"] = CASES[scrfd][1]["outputs"].pop("boxes")


@pytest.mark.parametrize("build", CASES, ids=lambda b: b.__name__)
def test_each_exporters_ending_is_recognised(build: Callable[[Net], Graph]) -> None:
    kind, options = CASES[build]
    net = Net()
    graph = build(net)
    head = recognise(graph).head
    assert head is not None and head.kind == kind
    assert {k: head.options[k] for k in options} == options
    outputs = {n: np.zeros(graph.tensors[n].shape, np.float32) for n in graph.outputs}
    Head(Preprocess(net.side, net.side, head=head)).detect(outputs)  # the decoder accepts these very outputs


def test_the_input_that_takes_the_image_tells_the_size() -> None:
    """Not the first one, where a network has several."""
    graph = fastestdet(Net())
    graph.inputs.insert(0, "factor")
    graph.tensors["factor"] = TensorInfo("factor", (1, 2))
    record, _ = complete(graph, None)
    assert (record.input, record.head.kind) == ("image", "fastestdet")


def test_raw_anchor_maps_give_a_hint_with_their_strides() -> None:
    n = Net()
    found = recognise(n.graph(n.map(16, 24, name="a"), n.map(8, 24, name="b")))
    assert found.head is None
    assert "strides: [16, 8]" in found.hint and "outputs: {maps: [a, b]}" in found.hint


def test_boxes_and_scores_of_unknown_priors_give_a_hint() -> None:
    n = Net()
    found = recognise(n.graph(n.rows(n.map(8, 8), 4), n.node("Softmax", n.rows(n.map(8, 6), 3), axis=2)))
    assert found.head is None and "kind: ssd" in found.hint and "kind: boxes, options: {relative: true}" in found.hint


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ("4 1s 80s", "yolox"),
        ("80s 32", "nanodet_plus"),  # NanoDet at YOLOX's three strides: classes first, distances in bins
        ("80s 30", None),  # no whole bins
        ("80 32", None),
        ("4 80s", None),  # no objectness
        ("4 1 80", None),  # a Sigmoid nowhere
        ("4s 1s 80s", None),
        ("85", None),  # one convolution, nothing tells its columns
        ("4 1s 5s", "yolox"),
    ],
)
def test_the_columns_behind_a_sigmoid_tell_yolox_from_other_rows(parts: str, kind: str | None) -> None:
    n, levels = Net(), []
    for stride in (8, 16, 32):
        joined = [(n.map(stride, int(p.rstrip("s"))), p) for p in parts.split()]
        joined = [n.node("Sigmoid", m) if p.endswith("s") else m for m, p in joined]
        levels.append(n.flat(n.node("Concat", *joined, axis=1), sum(int(p.rstrip("s")) for p in parts.split())))
    rows = n.node("Transpose", n.node("Concat", *levels, axis=2), perm=[0, 2, 1], name="output")
    found = recognise(n.graph(rows))
    assert (found.head.kind if found.head else None) == kind
    assert kind or (
        "nanodet_plus" in found.hint and "strides: [8, 16, 32], outputs: {predictions: output}" in found.hint
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda n: n.graph(n.node("Flatten", n.map(128, 10))),  # a classifier
        lambda n: n.graph(n.map(1, 1)),  # a map of raw values
        lambda n: n.graph(n.rows(n.map(8, 6), 6)),  # rows of one stride only
        lambda n: n.graph(
            n.map(4, 3, name="a"), n.map(4, 2, name="b"), n.map(4, 2, name="c")
        ),  # CenterNet without names
    ],
)
def test_other_outputs_stay_tensors(build: Callable[[Net], Graph]) -> None:
    assert recognise(build(Net())).head is None


def test_masks_behind_the_classes_are_not_taken_for_classes() -> None:
    n = Net()
    n.metadata["task"] = "segment"
    assert recognise(yolov8(n)).head is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{0: 'cat', 1: 'dog'}", ("cat", "dog")),
        ("['cat', 'dog']", ("cat", "dog")),
        ("{1: 'cat'}", ()),
        ("__import__('os')", ()),
        ("[1, 2]", ()),
        ("", ()),
    ],
)
def test_class_names_of_the_file(text: str, expected: tuple[str, ...]) -> None:
    assert class_names({"names": text} if text else {}) == expected


def test_what_the_user_declares_wins() -> None:
    net = Net()
    net.metadata["names"] = "{0: 'a', 1: 'b', 2: 'c'}"
    graph = yolox(net)
    record, notices = complete(graph, None)
    assert record.head.kind == "yolox" and record.class_names == ["a", "b", "c"]
    assert any("detection head recognised: yolox" in n for n in notices)
    declared = Preprocess(head=HeadSpec("auto"), class_names=["x", "y", "z"])
    assert complete(graph, declared)[0].class_names == ["x", "y", "z"]
    assert complete(graph, Preprocess(head=HeadSpec("none")))[0].head.kind == "none"


REAL = {
    "blazeface_front_128x128": "blazeface",
    "fastestdet": "fastestdet",
    "nanodet_m": "nanodet",
    "ultraface_RFB-320": "ultraface",
    "yolo_fastest_1.1": None,
    "yolox_nano_handsign_with_nms": "detections",
    "yolox_nano_kazuhito": "yolox",
    "yunet_n_320_320": "yunet",
}


@pytest.mark.data
@pytest.mark.skipif(not MODELS.is_dir(), reason=f"{MODELS} is absent")
@pytest.mark.parametrize("model", REAL)
def test_real_files(model: str) -> None:
    graph = partition(fuse.run(fold.run(import_onnx(MODELS / f"{model}.onnx").graph, None), None))
    found = recognise(graph)
    assert (found.head.kind if found.head else None) == REAL[model]
