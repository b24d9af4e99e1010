"""ONNX Runtime binding: every custom operator on its cases, and a network that mixes them with standard ones.

Run where the package is: `pip install npuforge[onnxruntime-extensions]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from contract import Subject, subjects

pytest.importorskip(
    "onnxruntime_extensions",
    reason="onnxruntime-extensions is not installed: pip install npuforge[onnxruntime-extensions]",
)
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import ModelError, UnsupportedError, UsageError
from npuforge.compile.reference import FloatReference
from npuforge.hw_kernels.bindings.onnxruntime_ops import session
from npuforge.hw_kernels.levels import declared


def element(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def one_node(subject: Subject) -> onnx.ModelProto:
    graph, inputs = subject.graph(), subject.inputs()
    node = graph.nodes[0]
    domain, op_type = node.op.split("::")
    return helper.make_model(
        helper.make_graph(
            [helper.make_node(op_type, node.inputs, node.outputs, name="node", domain=domain, **node.attrs)],
            "case",
            [
                helper.make_tensor_value_info(t, element(x.dtype.name), x.shape)
                for t, x in zip(node.inputs, inputs, strict=True)
            ],
            [helper.make_tensor_value_info(t, element(graph.tensors[t].dtype), None) for t in node.outputs],
        ),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)],
        ir_version=9,
    )


OWN = subjects(lambda op: declared(op, "ORT"))


@pytest.mark.parametrize("subject", OWN, ids=str)
def test_custom_operator_in_onnx_runtime(subject: Subject) -> None:
    inputs, node = subject.inputs(), subject.graph().nodes[0]
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    expected = subject.op.reference(node, wide)
    found = session(one_node(subject)).run(None, dict(zip(node.inputs, inputs, strict=True)))
    assert len(found) == len(expected)
    for y, value in zip(found, expected, strict=True):
        assert y.shape == value.shape and y.dtype.kind == value.dtype.kind
        np.testing.assert_allclose(y, value, rtol=1e-6, atol=1e-6)


def test_network_of_own_and_standard_operators() -> None:
    """As the kit's own float reference runs it."""
    from own_network import network

    model = network()
    feed = {"input": np.random.default_rng(3).normal(size=(1, 3, 12, 10)).astype(np.float32)}
    expected = FloatReference(model).run(feed)
    (found,) = session(model).run(None, feed)
    np.testing.assert_allclose(found, next(iter(expected.values())), rtol=1e-5, atol=1e-5)


def test_a_path_bytes_and_a_model_give_the_same(tmp_path: Path) -> None:
    """Also with the weights in a file beside the model; the model given stays as it is."""
    from own_network import network

    model = network()
    before = model.SerializeToString()
    feed = {"input": np.random.default_rng(3).normal(size=(1, 3, 12, 10)).astype(np.float32)}
    (expected,) = session(model).run(None, feed)
    assert model.SerializeToString() == before
    (tmp_path / "net.onnx").write_bytes(before)
    outside = onnx.ModelProto()
    outside.CopyFrom(model)
    onnx.save(outside, tmp_path / "outside.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    for given in (before, tmp_path / "net.onnx", str(tmp_path / "net.onnx"), tmp_path / "outside.onnx"):
        np.testing.assert_array_equal(session(given).run(None, feed)[0], expected)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("nothing.onnx", ModelError, "file nothing.onnx cannot be read: No such file or directory; give the path"),
        (b"", ModelError, "the bytes given are no ONNX model: it names no operator set"),
        (b"garbage", ModelError, "the bytes given are no ONNX model"),
        (3, UsageError, "expected a path, the bytes of an ONNX file or a ModelProto, found int"),
    ],
)
def test_what_is_no_model_is_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as found:
        session(given)
    assert "\n" not in str(found.value)


def test_unknown_operator_is_named() -> None:
    graph = helper.make_graph(
        [helper.make_node("Frobnicate", ["x"], ["y"], name="n1", domain="elsewhere")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.ones(1, np.float32), "unused")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("elsewhere", 1)])
    with pytest.raises(UnsupportedError, match="node 'n1': no operator 'elsewhere::Frobnicate' is known"):
        session(model)


def test_a_second_session_is_refused_while_the_first_is_held() -> None:
    """onnxruntime-extensions 0.15 ends the process when a session made before another operator type came runs again."""
    first = session(one_node(OWN[0]))
    with pytest.raises(UsageError, match="del that session first"):
        session(one_node(OWN[-1]))
    feed = dict(zip([i.name for i in first.get_inputs()], OWN[0].inputs(), strict=True))
    assert len(first.run(None, feed)) == len(first.get_outputs())  # the refusal left it as it was
    del first
    assert session(one_node(OWN[-1])) is not None
