"""Custom nodes with an optional input left without a name (`""`): the import writes out what that is equal to, for the reference and for every target."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.onnx_runner import OnnxRunner
from npuforge.compile.steps.import_onnx import prepare_export, prepare_model

RANDOM = np.random.default_rng(2)
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
CONSTANTS = {
    "w": RANDOM.normal(size=(4, 3, 3, 3)),
    "s": RANDOM.normal(size=4),
    "o": RANDOM.normal(size=4),
    "m": RANDOM.normal(size=4),
    "v": RANDOM.uniform(0.1, 1, 4),
}


def _model(nodes: list[onnx.NodeProto], computed_weights: bool = False) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    constants = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in CONSTANTS.items()]
    if computed_weights:
        nodes = [helper.make_node("Neg", ["w"], ["w_negative"]), *nodes]
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, [2, 3, 6, 5])],
        [value("y", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9)


@pytest.mark.parametrize("weight", ["w", "w_negative"])
@pytest.mark.parametrize("kind", ["ConvBnLeakyRelu", "RotatedConv"])
@pytest.mark.parametrize("prepare", [prepare_model, prepare_export])
def test_a_bias_without_a_name(kind: str, weight: str, prepare: object) -> None:
    """Against ONNX Runtime's Conv, BatchNormalization and LeakyRelu, and its Conv with one rotation."""
    if kind == "RotatedConv":
        own = [helper.make_node(kind, ["x", weight, ""], ["y"], domain="npuforge", rotations=1)]
        standard = [helper.make_node("Conv", ["x", weight], ["y"])]
    else:
        own = [helper.make_node(kind, ["x", weight, "", "s", "o", "m", "v"], ["y"], domain="npuforge", alpha=0.3)]
        standard = [
            helper.make_node("Conv", ["x", weight], ["c"]),
            helper.make_node("BatchNormalization", ["c", "s", "o", "m", "v"], ["n"]),
            helper.make_node("LeakyRelu", ["n"], ["y"], alpha=0.3),
        ]
    computed = weight != "w"
    prepared = prepare(_model(own, computed))  # type: ignore[operator]
    assert all(t for n in prepared.graph.node for t in n.input)
    x = RANDOM.normal(size=(2, 3, 6, 5)).astype(np.float32)
    session = onnxruntime.InferenceSession(_model(standard, computed).SerializeToString())
    np.testing.assert_allclose(
        OnnxRunner(prepared).run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5
    )


def test_the_name_is_nobody_elses() -> None:
    nodes = [
        helper.make_node("Identity", ["s"], ["n/input2"]),
        helper.make_node("RotatedConv", ["x", "w", ""], ["y"], "n", domain="npuforge", rotations=1),
    ]
    names = [i.name for i in prepare_model(_model(nodes)).graph.initializer]
    assert "n/input2_2" in names and "n/input2" not in names
