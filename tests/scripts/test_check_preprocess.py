"""The preprocessing check on a detector built by hand that sees red squares: wrong settings are found, the right one is left alone."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import InputError
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess
from npuforge.compile.ir.samples import InputSpec, Sample, load_sample
from npuforge.scripts.check_preprocess import (
    CLEAR_GAIN,
    COLOUR_GAIN,
    IMAGENET,
    check_preprocess,
    clear_gain,
    matched_score,
    needed_gain,
    overlaps,
    variations,
)
from npuforge.scripts.datasets import Dataset, ImageTruth

SIDE = 64
RIGHT = Preprocess(SIDE, SIDE, std=[255.0] * 3, input="image", head=HeadSpec("yolox", {"strides": [8]}, 0.3, 0.5))
SPECS = {"image": InputSpec((1, 3, SIDE, SIDE), "float32")}


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """[1, 64, 6]: one box of 8 x 8 pixels per cell; with d = mean of R − mean of G and B of an RGB image in 0..1, score = σ(40·(d − 0.45))·σ(40·(1.1 − d))."""
    weight = np.zeros((6, 3, 8, 8), np.float32)
    weight[4] = np.array([1.0, -0.5, -0.5]).reshape(3, 1, 1) * 40 / 64
    weight[5] = -weight[4]
    bias = np.array([0.5, 0.5, 0, 0, -18, 44], np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["raw"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Split", ["raw", "parts"], ["box", "scores"], axis=1),
        helper.make_node("Sigmoid", ["scores"], ["p"]),
        helper.make_node("Concat", ["box", "p"], ["all"], axis=1),
        helper.make_node("Reshape", ["all", "flat"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["output"], perm=[0, 2, 1]),
    ]
    constants = {"w": weight, "b": bias, "parts": np.array([4, 2]), "flat": np.array([1, 6, 64])}
    graph = helper.make_graph(
        nodes,
        "red",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 64, 6])],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    path = tmp_path_factory.mktemp("model") / "red.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Sample], Dataset]:
    """Plain grey with one to three red squares on the grid of cells, and where they are."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(1)
    truths = []
    for i in range(10):
        image = np.full((SIDE, SIDE, 3), rng.integers(60, 120), dtype=np.uint8)
        cells = rng.choice(64, int(rng.integers(1, 4)), replace=False)
        boxes = np.array([[8 * (c % 8), 8 * (c // 8), 8 * (c % 8) + 8, 8 * (c // 8) + 8] for c in cells], float)
        for x1, y1, x2, y2 in boxes.astype(int):
            image[y1:y2, x1:x2] = (10, 10, 230)  # BGR
        path = folder / f"{i}.png"
        cv2.imwrite(str(path), image)
        n = len(boxes)
        truths.append(
            ImageTruth(path, SIDE, SIDE, boxes, np.zeros(n, np.int64), np.full(n, 64.0), np.zeros(n, dtype=bool))
        )
    return [load_sample(t.path, RIGHT, SPECS) for t in truths], Dataset("test", ["red"], truths)


@pytest.mark.parametrize("with_truth", [False, True])
def test_the_right_setting_stands(detector: Path, pictures: tuple[list[Sample], Dataset], with_truth: bool) -> None:
    images, truth = pictures
    check = check_preprocess(detector, RIGHT, images, truth if with_truth else None)
    assert check.better is None and check.notice() == ""
    assert check.declared.agreement > 0.95
    squares = sum(len(t.boxes) for t in truth.images) / len(images)
    assert check.declared.detections == pytest.approx(squares)
    labels = {s.label for s in check.tried}
    assert {"color BGR", "pixels as they are (0..255)", IMAGENET, "resize letterbox_center"} <= labels
    assert "pixels / 255" not in labels and "resize stretch" not in labels  # these are the declared ones


@pytest.mark.parametrize("with_truth", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [replace(RIGHT, color="BGR"), replace(RIGHT, std=[65025.0] * 3)],  # the second: divided by 255 twice
    ids=["colour", "scale"],
)
def test_mistakes_are_found(
    detector: Path, pictures: tuple[list[Sample], Dataset], wrong: Preprocess, with_truth: bool
) -> None:
    images, truth = pictures
    check = check_preprocess(detector, wrong, images, truth if with_truth else None)
    assert check.better is not None
    assert (check.better.record.color, check.better.record.std) == ("RGB", [255.0] * 3)
    assert "color: RGB" in check.notice() and "std: [255, 255, 255]" in check.notice()


def test_a_small_gain_counts_for_swapped_colours_only() -> None:
    swapped = replace(RIGHT, color="BGR", mean=[3.0, 2.0, 1.0])
    assert needed_gain(replace(RIGHT, mean=[1.0, 2.0, 3.0]), swapped) == COLOUR_GAIN < CLEAR_GAIN
    assert needed_gain(RIGHT, replace(RIGHT, resize="letterbox_center")) == CLEAR_GAIN
    assert needed_gain(RIGHT, replace(RIGHT, color="BGR", std=[1.0] * 3)) == CLEAR_GAIN  # two changes


def test_colours_that_cost_five_per_cent_are_found(
    detector: Path, pictures: tuple[list[Sample], Dataset], tmp_path: Path
) -> None:
    """A network that hardly minds: its score is that of the right order, 5 % less where blue and red are swapped (a second layer adds both orders up)."""
    model = onnx.load(detector)
    weight = numpy_helper.to_array(model.graph.initializer[0])
    turned = weight[:, ::-1]
    rest = {t.name: t for t in model.graph.initializer}
    rest["w"].CopyFrom(numpy_helper.from_array(np.concatenate([weight, turned[4:]]), "w"))
    bias = numpy_helper.to_array(rest["b"])
    rest["b"].CopyFrom(numpy_helper.from_array(np.concatenate([bias, bias[4:]]), "b"))
    rest["parts"].CopyFrom(numpy_helper.from_array(np.array([4, 4]), "parts"))
    mix = np.array([[1, 0, 0.95, 0], [0, 1, 0, 0.95]], np.float32).reshape(2, 4, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(mix, "mix"))
    # σ(a)·σ(b) of both orders, mixed: objectness a + 0.95 a', class b + 0.95 b', at most one order sees a square
    nodes = list(model.graph.node)
    nodes[2].output[0] = "both"
    nodes.insert(3, helper.make_node("Conv", ["both", "mix"], ["p"], kernel_shape=[1, 1]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, tmp_path / "robust.onnx")
    images, _ = pictures
    check = check_preprocess(tmp_path / "robust.onnx", replace(RIGHT, color="BGR"), images)
    assert check.better is not None and check.better.record.color == "RGB"
    assert check_preprocess(tmp_path / "robust.onnx", RIGHT, images).better is None


def test_two_mistakes_that_hide_each_other_give_no_false_advice(
    detector: Path, pictures: tuple[list[Sample], Dataset]
) -> None:
    """Neither change alone makes this detector see anything."""
    assert check_preprocess(detector, replace(RIGHT, color="BGR", std=[65025.0] * 3), pictures[0]).better is None


def test_a_record_without_a_head_is_refused(detector: Path, pictures: tuple[list[Sample], Dataset]) -> None:
    with pytest.raises(InputError, match="needs a detection head"):
        check_preprocess(detector, Preprocess(SIDE, SIDE), pictures[0])


def test_changes_turn_mean_and_std_with_the_colour() -> None:
    record = replace(RIGHT, color="BGR", mean=[1.0, 2.0, 3.0], std=[4.0, 5.0, 6.0])
    found = dict(variations(record))
    assert (found["color RGB"].mean, found["color RGB"].std) == ([3.0, 2.0, 1.0], [6.0, 5.0, 4.0])
    assert found[IMAGENET].mean == [103.53, 116.28, 123.675]  # blue first, as the network takes it


def test_matching_by_hand() -> None:
    a = np.array([[0, 0, 10, 10, 0.9, 0], [0, 0, 10, 9, 0.8, 0], [50, 50, 60, 60, 0.7, 1]], float)
    b = np.array([[0, 0, 10, 8, 0.6, 0], [50, 50, 60, 60, 0.9, 2]], float)
    np.testing.assert_allclose(overlaps(a, b), [[0.8, 0], [8 / 9, 0], [0, 1]])
    assert matched_score(a, b) == pytest.approx(0.6)  # one partner, taken once; the third has none of its class
    assert matched_score(a, b[:0]) == 0.0


def test_gain_is_clear_only_where_nearly_all_draws_agree() -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(0.5, 1.5, 40)
    assert 1.4 < clear_gain(base * 1.5, base) <= 1.5 + 1e-9
    assert clear_gain(rng.permutation(base), base) < 1.0
    assert clear_gain(np.zeros(40), np.zeros(40)) == 1.0
