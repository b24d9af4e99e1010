"""The float reference around custom nodes: integers, booleans and half or double numbers cross from one part of the network to the next as what they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.onnx_runner import OnnxRunner


def runner(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> OnnxRunner:
    value = helper.make_tensor_value_info
    initializers = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    inputs, outputs = [value("x", TensorProto.FLOAT, [3, 8])], [value("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializers)
    return OnnxRunner(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def test_indices_and_conditions_from_in_front_of_a_custom_node() -> None:
    make = helper.make_node
    nodes = [
        make("TopK", ["x", "two"], ["best", "places"], axis=1),
        make("Greater", ["x", "zero"], ["positive"]),
        make("Silu", ["x"], ["curved"], domain="npuforge"),
        make("Where", ["positive", "curved", "x"], ["chosen"]),
        make("GatherElements", ["chosen", "places"], ["y"], axis=1),
    ]
    x = np.random.default_rng(2).normal(0, 2, (3, 8)).astype(np.float32)
    (y,) = runner(nodes, {"two": np.array([2]), "zero": np.array(0, np.float32)}).run({"x": x}).values()
    places = np.argsort(-x, axis=1, kind="stable")[:, :2]
    np.testing.assert_allclose(y, np.take_along_axis(np.where(x > 0, silu(x), x), places, 1), rtol=1e-6)


def test_rows_that_a_custom_node_names() -> None:
    """RotatedNms gives int64, which a Gather behind it reads."""
    boxes = np.array([[2.0, 2, 2, 2, 0, 0, 0, 0], [2.1, 2, 2, 2, 0, 0, 0, 0], [8, 8, 2, 2, 0, 0, 0, 0]], np.float32)
    make = helper.make_node
    nodes = [
        make("Slice", ["x", "begin", "end"], ["boxes"]),
        make("RotatedNms", ["boxes", "scores"], ["rows"], domain="npuforge", iou_threshold=0.5),
        make("Gather", ["rows", "at"], ["kept"], axis=1),
        make("Gather", ["x", "kept"], ["y"], axis=0),
    ]
    constants = {
        "begin": np.array([0, 0]),
        "end": np.array([3, 5]),
        "at": np.array(1),
        "scores": np.array([[0.9, 0.8, 0.7]], np.float32),
    }
    (y,) = runner(nodes, constants).run({"x": boxes}).values()
    np.testing.assert_array_equal(y, boxes[[0, 2]])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_other_real_numbers(kind: int) -> None:
    make = helper.make_node
    nodes = [
        make("Cast", ["x"], ["wide"], to=kind),
        make("Silu", ["x"], ["curved"], domain="npuforge"),
        make("Cast", ["curved"], ["own"], to=kind),
        make("Add", ["wide", "own"], ["sum"]),
        make("Cast", ["sum"], ["y"], to=TensorProto.FLOAT),
    ]
    x = np.random.default_rng(3).normal(0, 2, (3, 8)).astype(np.float32)
    (y,) = runner(nodes, {}).run({"x": x}).values()
    np.testing.assert_allclose(y, x + silu(x), rtol=4e-3, atol=4e-3)
