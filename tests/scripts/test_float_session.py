"""FloatSession: standard models as ONNX Runtime gives them, custom nodes in between by their own reference, errors by name."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.scripts.float_session import FloatSession

ATTRS = {"anchors": [8.0, 6.0], "strides": [4], "num_classes": 2}


def model(domain: str = "npuforge") -> onnx.ModelProto:
    """image -> Mul -> YoloDecode -> boxes·0.5 and scores + a branch that bypasses the custom node."""
    nodes = [
        helper.make_node("Mul", ["image", "two"], ["head"], "double"),
        helper.make_node("YoloDecode", ["head"], ["raw", "scores", "classes"], "decode", domain=domain, **ATTRS),
        helper.make_node("Mul", ["raw", "half"], ["boxes"], "halve"),
        helper.make_node("ReduceMean", ["head"], ["mean"], "average", keepdims=0),
        helper.make_node("Add", ["scores", "mean"], ["shifted"], "join"),
    ]
    constants = [numpy_helper.from_array(np.float32(v), n) for n, v in (("two", 2), ("half", 0.5))]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 7, 2, 3])
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("boxes", [1, 6, 4]), ("shifted", [1, 6]), ("mean", []))
    ]
    graph = helper.make_graph(nodes, "test", [image], outputs, constants)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_custom_node_between_standard_ones() -> None:
    x = np.random.default_rng(0).normal(size=(1, 7, 2, 3)).astype(np.float32)
    session = FloatSession(model(), wanted=["raw", "head"], threads=1)
    result = session.run({"image": x})
    assert session.inputs == ["image"] and session.outputs == ["boxes", "shifted", "mean"]
    np.testing.assert_array_equal(result["head"], x * 2)
    # The definition, cell by cell.
    for row in range(2):
        for column in range(3):
            t = 2 * x[0, :, row, column].astype(np.float64)
            s = 1 / (1 + np.exp(-t))
            centre = (np.array([s[0] + column, s[1] + row])) * 4
            size = np.exp(t[2:4]) * [8, 6]
            k = row * 3 + column
            np.testing.assert_allclose(
                result["raw"][0, k], [*(centre - size / 2), *(centre + size / 2)], rtol=1e-5, atol=1e-5
            )
            np.testing.assert_allclose(result["boxes"][0, k], result["raw"][0, k] / 2)
            np.testing.assert_allclose(
                result["shifted"][0, k], s[4] * max(s[5], s[6]) + (2 * x).mean(), rtol=1e-5, atol=1e-6
            )


def test_standard_model_is_one_session_with_the_same_bits() -> None:
    proto = model()
    del proto.graph.node[4], proto.graph.node[2], proto.graph.node[1]
    del proto.graph.output[:2]
    x = np.random.default_rng(1).normal(size=(1, 7, 2, 3)).astype(np.float32)
    session = FloatSession(proto, threads=1)
    assert len(session._steps) == 1 and session.provider == "CPUExecutionProvider"
    expected = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"image": x}
    )[0]
    np.testing.assert_array_equal(session.run({"image": x})["mean"], expected)


def test_unknown_operator_and_unknown_tensor_are_named() -> None:
    with pytest.raises(UnsupportedError, match=r"node 'decode'.*'acme::YoloDecode'"):
        FloatSession(model("acme"))
    with pytest.raises(ModelError, match="no tensor called 'absent'"):
        FloatSession(model(), wanted=["absent"])
    broken = model()
    broken.graph.node[4].input[0] = "nowhere"
    with pytest.raises(ModelError, match="'nowhere' is used but nothing produces it"):
        FloatSession(broken)


def test_not_an_onnx_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "page.onnx"
    path.write_text("<html></html>")
    with pytest.raises(ModelError, match=r"page\.onnx"):
        FloatSession(path)
