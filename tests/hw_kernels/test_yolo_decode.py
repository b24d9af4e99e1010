"""YoloDecode against figures from PyTorch (formulas written out there, gradients by autograd) and against central differences."""

import json

import numpy as np
import pytest

from npuforge.board_runtime import _native as native
from npuforge.compile.ir.errors import ModelError, NpuforgeError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.operator import Case, case_graph, find
from npuforge.hw_kernels.ops.yolo_decode.op import YoloDecode

NAME = "npuforge::YoloDecode"
ATTRS = {"anchors": [10.0, 14.0, 23.0, 27.0, 37.0, 58.0, 81.0, 82.0], "strides": [16, 32], "num_classes": 2}
# PyTorch 2.13 float64; inputs 2.5·sin(0.7·i + k), k = 0.3 and 1.1
BOXES = {
    0: [-15.40114111, -14.59436979, 37.05661332, 17.15089036],
    5: [-94.12524806, -4.23624166, 168.20595918, 9.21982895],
    11: [44.66404018, -131.27576826, 48.77833579, 173.63515324],
    12: [25.57293934, 22.52357656, 32.2022612, 29.7646858],
    15: [-417.17126493, -8.87610211, 488.42501179, 56.29082724],
}
SCORES = [0.0654076181, 0.6015975269, 0.0923248584, 0.4100765242, 0.2744918316, 0.1357388186, 0.5804451793, 0.061800738]
SCORES += [
    0.4343309243,
    0.1029690069,
    0.2823594575,
    0.3132957091,
    0.673802562,
    0.1080002789,
    0.7342440276,
    0.0693287616,
]
CLASSES = [0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1]
GRADIENTS = [
    (
        -351.06058039602084,
        -831.0753310236628,
        [2.25584034, 1.69543169, 1.16913313, 0.0, 0.66791621, 10.73988701, 5.64566387, 0.0],
    ),
    (696.6839921590615, 1474.9761416920976, [1.02482667, -2.24767529, 0.0]),
]


def example() -> tuple[YoloDecode, Node, list[np.ndarray]]:
    op = find(NAME)
    assert isinstance(op, YoloDecode)
    shapes = [(1, 14, 2, 3), (1, 14, 1, 2)]
    inputs = [2.5 * np.sin(0.7 * np.arange(np.prod(s)) + k).reshape(s) for s, k in zip(shapes, (0.3, 1.1), strict=True)]
    return op, Node("decode", NAME, ["a", "b"], ["boxes", "scores", "classes"], dict(ATTRS)), inputs


def test_reference_gives_what_pytorch_gives() -> None:
    op, node, inputs = example()
    boxes, scores, classes = op.reference(node, inputs)
    assert boxes.shape == (1, 16, 4)
    for index, box in BOXES.items():
        np.testing.assert_allclose(boxes[0, index], box, atol=1e-7)
    np.testing.assert_allclose(scores[0], SCORES, atol=1e-9)
    assert classes[0].tolist() == CLASSES


def test_gradient_is_autograds() -> None:
    op, node, inputs = example()
    box = np.cos(np.arange(64.0)).reshape(1, 16, 4)
    score = 100 * np.sin(np.arange(16.0) + 1)[None]
    for result, x, (total, product, some) in zip(
        op.gradient(node, inputs, [box, score]), inputs, GRADIENTS, strict=True
    ):
        np.testing.assert_allclose([result.sum(), (result * x).sum()], [total, product], rtol=1e-9)
        np.testing.assert_allclose(result.reshape(-1)[3::11][:8], some, atol=1e-7)


@pytest.mark.parametrize("case", YoloDecode.cases, ids=lambda c: c.why)
def test_cases_infer_reference_and_central_differences(case: Case) -> None:
    op = find(NAME)
    assert isinstance(op, YoloDecode)
    rng = np.random.default_rng(0)
    node = case_graph(NAME, case).nodes[0]
    inputs = [rng.normal(0, 1.5, s) for s in case.x]
    outputs = op.reference(node, inputs)
    open_size = case.attrs.get("score_threshold", 0) > 0
    rows = [len(outputs[1][0])] if not open_size else [-1]
    images = case.x[0][0]
    assert op.infer(node, case.x) == [(images, *rows, 4), (images, *rows), (images, *rows)]
    assert outputs[0].shape == (*outputs[1].shape, 4) and outputs[1].shape == outputs[2].shape
    weights = [rng.normal(size=o.shape) for o in outputs[:2]]

    def loss(arrays: list[np.ndarray]) -> float:
        return sum(float((w * o).sum()) for w, o in zip(weights, op.reference(node, arrays), strict=False))

    gradients = op.gradient(node, inputs, weights)
    for k, x in enumerate(inputs):
        for i in rng.choice(x.size, min(x.size, 25), replace=False):  # no score is so near a threshold as to cross it
            step = np.zeros(x.size)
            step[i] = 1e-5
            moved = [[*inputs[:k], x + s * step.reshape(x.shape), *inputs[k + 1 :]] for s in (1, -1)]
            expected = (loss(moved[0]) - loss(moved[1])) / 2e-5
            np.testing.assert_allclose(gradients[k].reshape(-1)[i], expected, rtol=1e-5, atol=1e-6)


def test_extreme_maps_stay_finite_and_ties_take_the_first_class() -> None:
    op, node, inputs = example()
    for value in (-80.0, 0.0, 80.0):
        boxes, scores, classes = op.reference(node, [np.full_like(x, value) for x in inputs])
        assert np.isfinite(boxes).all() and (scores >= 0).all() and (scores <= 1).all() and not classes.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strides": [16]}, "strides"),
        ({"anchors": [1.0, 2.0, 3.0]}, "anchor values"),
        ({"anchors": [10.0, 14.0, 23.0, 27.0, 37.0, 58.0, 81.0, -1.0]}, "anchor values"),
        ({"num_classes": 0}, "num_classes"),
        ({"num_classes": 3}, r"input a .* expected \[1, 16, H, W\]"),
        ({"num_classes": None}, "needs the attribute num_classes"),
    ],
)
def test_attributes_that_do_not_fit_are_refused_by_name(change: dict, message: str) -> None:
    op, node, inputs = example()
    node.attrs = {k: v for k, v in (node.attrs | change).items() if v is not None}
    with pytest.raises(ModelError, match=f"node decode: .*{message}"):
        op.infer(node, [x.shape for x in inputs])


def test_it_is_placed_on_the_cpu_with_its_reason() -> None:
    op, _, _ = example()
    graph = case_graph(NAME, YoloDecode.cases[0])
    assert "CPU partition" in (op.failed_constraint(graph.nodes[0], graph) or "")


@pytest.mark.parametrize("case", YoloDecode.cases, ids=lambda c: c.why)
def test_cpu_partition_gives_the_reference(case: Case) -> None:
    """cpu.hpp, through the native module, in float32."""
    rng = np.random.default_rng(3)
    inputs = [rng.normal(0, 2, s).astype(np.float32) for s in case.x]
    op = find(NAME)
    assert op is not None
    expected = op.reference(case_graph(NAME, case).nodes[0], list(inputs))
    results = native.run_operator(NAME, json.dumps(case.attrs), "null", inputs, [False] * len(inputs), 3)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == np.float32 and result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-3)
    with pytest.raises(NpuforgeError, match=r"npuforge::YoloDecode.*stride"):
        native.run_operator(
            NAME, json.dumps(case.attrs | {"strides": [8] * 7}), "null", inputs, [False] * len(inputs), 3
        )


def test_every_image_of_a_batch_is_decoded_as_alone() -> None:
    """The second of three is the example: PyTorch's figures; the C++ kernel of the CPU agrees on all."""
    op, node, inputs = example()
    batch = [np.concatenate([-x, x, x + 1]) for x in inputs]
    boxes, scores, classes = op.reference(node, batch)
    assert boxes.shape == (3, 16, 4) and scores.shape == classes.shape == (3, 16)
    for index, box in BOXES.items():
        np.testing.assert_allclose(boxes[1, index], box, atol=1e-7)
    np.testing.assert_allclose(scores[1], SCORES, atol=1e-9)
    assert classes[1].tolist() == CLASSES
    box, score = np.zeros((3, 16, 4)), np.zeros((3, 16))
    box[1], score[1] = np.cos(np.arange(64.0)).reshape(16, 4), 100 * np.sin(np.arange(16.0) + 1)
    for result, x, (total, product, some) in zip(
        op.gradient(node, batch, [box, score]), inputs, GRADIENTS, strict=True
    ):
        assert not result[[0, 2]].any()
        np.testing.assert_allclose([result.sum(), (result[1:2] * x).sum()], [total, product], rtol=1e-9)
        np.testing.assert_allclose(result[1].reshape(-1)[3::11][:8], some, atol=1e-7)
    narrow = [x.astype(np.float32) for x in batch]
    found = native.run_operator(NAME, json.dumps(ATTRS), "null", narrow, [False, False], 3)
    for result, wanted in zip(found, (boxes, scores, classes), strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-3)


def test_maps_of_other_numbers_of_images_are_refused() -> None:
    op, node, inputs = example()
    with pytest.raises(ModelError, match=r"input b of YoloDecode has shape \[1, 14, 1, 2\]; expected \[2, 14, H, W\]"):
        op.reference(node, [np.repeat(inputs[0], 2, 0), inputs[1]])


def test_a_batch_with_a_threshold_is_refused_with_the_reason() -> None:
    op, node, inputs = example()
    batch = [np.repeat(x, 2, 0) for x in inputs]
    node.attrs["score_threshold"] = 0.25
    for call in (lambda: op.reference(node, batch), lambda: op.infer(node, [x.shape for x in batch])):
        with pytest.raises(
            ModelError, match=r"2 images and score_threshold 0\.25; the images would keep different numbers"
        ):
            call()
    with pytest.raises(NpuforgeError, match="those of a batch would keep different numbers of rows"):
        narrow = [x.astype(np.float32) for x in batch]
        native.run_operator(NAME, json.dumps(node.attrs), "null", narrow, [False, False], 3)


def test_sizes_without_a_gradient_get_zero_where_the_box_is_infinite() -> None:
    """Only scores are differentiated and e^tw leaves float64: d score / d tw is 0, not 0 times infinity."""
    op, node, inputs = example()
    inputs = [x.copy() for x in inputs]
    inputs[0][:, [2, 3, 9, 10]] = 1e5  # tw and th of both anchors
    zeros = [np.zeros((1, 16, 4)), np.ones((1, 16)), np.zeros((1, 16))]
    found = op.gradient(node, inputs, zeros)[0]
    assert found is not None and np.isfinite(found).all()
    assert not found[:, [2, 3, 9, 10]].any() and found[:, [4, 11]].all()
    moved = [np.ones_like(x) for x in inputs]
    moved[0][:, [2, 3, 9, 10]] = 0.0
    of_inputs, of_outputs = op.second_gradient(node, inputs, zeros, moved)
    assert all(np.isfinite(x).all() for x in (*of_inputs, *of_outputs) if x is not None)
