"""`--target ascend`: operators that standard ones compose keep their domain and get TBE source, with what CANN wants the same on every node written out; `--standard` and
nodes that a program refuses write them as standard operators. The written networks are run by ONNX Runtime and the operators' references.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tbe_stand_in import as_tensor, install, numpy_modules

from npuforge.compile.ascend import flow
from npuforge.compile.context import Options
from npuforge.compile.onnx_runner import OnnxRunner
from npuforge.compile.steps.import_onnx import prepare_model
from npuforge.hw_kernels import arch

RANDOM = np.random.default_rng(11)
WINDOW: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}


def _constant(name: str, *shape: int, low: float = -1.0) -> onnx.TensorProto:
    return numpy_helper.from_array(RANDOM.uniform(low, 1.0, shape).astype(np.float32), name)


def _network(size: int = 8) -> onnx.ModelProto:
    """Two of each: with and without bias, with attributes written out and left to their defaults."""
    own = {"domain": "npuforge"}
    nodes = [
        helper.make_node("ConvBnLeakyRelu", ["x", "w1", "b1", "s", "o", "m", "v"], ["a"], "first", alpha=0.2, **WINDOW, **own),
        helper.make_node("ConvBnLeakyRelu", ["a", "w2", "", "s", "o", "m", "v"], ["b"], "second", group=2, **own),
        helper.make_node("RotatedConv", ["b", "w3", "b3"], ["c"], "third", rotations=8, pads=[1, 1, 1, 1], **own),
        helper.make_node("Relu", ["c"], ["d"], "relu"),
        helper.make_node("RotatedConv", ["d", "w4"], ["y"], "fourth", kernel_shape=[3, 3], rotations=8, group=4, **own),
    ]  # fmt: skip
    constants = [
        _constant("w1", 4, 3, 3, 3), _constant("b1", 4), _constant("w2", 4, 2, 1, 1), _constant("w3", 2, 4, 3, 3), _constant("b3", 2),
        _constant("w4", 4, 4, 3, 3), _constant("s", 4), _constant("o", 4), _constant("m", 4), _constant("v", 4, low=0.1),
    ]  # fmt: skip
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, [1, 3, size, size])],
        [value("y", TensorProto.FLOAT, None)],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _compile(folder: Path, monkeypatch: pytest.MonkeyPatch, size: int = 8, standard: bool = False) -> Any:
    monkeypatch.setenv("PATH", str(folder))
    onnx.save(_network(size), folder / "net.onnx")
    options = Options(folder / "net.onnx", arch.load("nf-b1024"), folder / "out")
    return flow.compile_for_ascend(options, "Ascend310P3", standard)


def _run(model: Any, size: int = 8) -> np.ndarray:
    x = np.random.default_rng(5).normal(size=(1, 3, size, size)).astype(np.float32)
    (y,) = OnnxRunner(prepare_model(model)).run({"x": x}).values()
    return y


def test_they_keep_their_domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the network computes what it did."""
    build = _compile(tmp_path, monkeypatch)
    assert build.lowered == build.on_ai_cpu == build.without_source == {}
    assert set(build.operators) == {"npuforge::ConvBnLeakyRelu", "npuforge::RotatedConv"}
    files = {p.name for p in (tmp_path / "out").iterdir()}
    for name in ("conv_bn_leaky_relu", "rotated_conv"):
        assert {f"{name}{end}" for end in (".py", ".ini", "_plugin.cc", "_proto.cc")} <= files
    made = onnx.load(tmp_path / "out" / "model.onnx")
    nodes = {n.name: n for n in made.graph.node}
    assert [n.domain for n in nodes.values()].count("npuforge") == 4
    for pair, attributes, inputs in (
        (("first", "second"), {"alpha", "group", "pads", "strides"}, 7),  # both take their size from the weights
        (("third", "fourth"), {"rotations", "group", "pads"}, 3),
    ):
        for name in pair:
            assert {a.name for a in nodes[name].attribute} == attributes
            assert len(nodes[name].input) == inputs and all(nodes[name].input)
    np.testing.assert_allclose(_run(made), _run(onnx.load(tmp_path / "net.onnx")), rtol=1e-6, atol=1e-6)


def test_source_of_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on the stand-in for TBE, node by node, in place of the operators."""
    _compile(tmp_path, monkeypatch)
    made = onnx.load(tmp_path / "out" / "model.onnx")
    install(monkeypatch, numpy_modules([]))
    spaces: dict[str, dict[str, Any]] = {}
    for kind, file in (("ConvBnLeakyRelu", "conv_bn_leaky_relu"), ("RotatedConv", "rotated_conv")):
        spaces[kind] = {"compute": f"{file}_compute"}
        exec((tmp_path / "out" / f"{file}.py").read_text(), spaces[kind])
    x = np.random.default_rng(5).normal(size=(1, 3, 8, 8)).astype(np.float32)
    tensors = {"x": x} | {i.name: numpy_helper.to_array(i) for i in made.graph.initializer}
    for node in made.graph.node:
        inputs = [as_tensor(tensors[t]) for t in node.input]
        if node.op_type == "Relu":
            tensors[node.output[0]] = np.maximum(inputs[0], 0)
            continue
        values = [helper.get_attribute_value(a) for a in sorted(node.attribute, key=lambda a: a.name)]
        space = spaces[node.op_type]
        (tensors[node.output[0]],) = space[space["compute"]](*inputs, None, *values)
    np.testing.assert_allclose(tensors["y"], _run(onnx.load(tmp_path / "net.onnx")), rtol=1e-4, atol=1e-4)


def test_as_standard_operators_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = _compile(tmp_path, monkeypatch, standard=True)
    assert set(build.lowered) == {"first", "second", "third", "fourth"} and build.operators == {}
    made = onnx.load(tmp_path / "out" / "model.onnx")
    assert {n.domain for n in made.graph.node} == {""}
    np.testing.assert_allclose(_run(made), _run(onnx.load(tmp_path / "net.onnx")), rtol=1e-4, atol=1e-4)


def test_what_a_program_refuses_is_written_as_standard_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map of 4 x 4096 x 4096 elements has more than an array may; the reason is said."""
    build = _compile(tmp_path, monkeypatch, size=4096)
    assert set(build.lowered) == {"first", "second", "third", "fourth"} and build.operators == {}
    notices = json.loads((tmp_path / "out" / "ascend.json").read_text())["notices"]
    first = next(n for n in notices if n.startswith("node 'first'"))
    assert "is written as standard operators: node 'first'" in first and "arrays have up to 2**24 elements" in first
