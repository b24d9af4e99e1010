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
from npuforge.compile.ir.errors import UnsupportedError
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
    """A map of 16384 x 16385 elements is more than an array may have; the reason is said. A smaller one beside it keeps its source."""
    monkeypatch.setenv("PATH", str(tmp_path))
    own = {"domain": "npuforge", "kernel_shape": [1, 1]}
    nodes = [
        helper.make_node("ConvBnLeakyRelu", [x, "w", "s", "s", "s", "s", "s"], [y], name, **own)
        for x, y, name in (("x", "a", "large"), ("z", "b", "small"))
    ]
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [1, 1, 16384, 16385]), value("z", TensorProto.FLOAT, [1, 1, 6, 5])]
    results = [value(n, TensorProto.FLOAT, None) for n in "ab"]
    graph = helper.make_graph(nodes, "net", inputs, results, [_constant("w", 1, 1, 1, 1), _constant("s", 1, low=0.1)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "net.onnx")
    options = Options(tmp_path / "net.onnx", arch.load("nf-b1024"), tmp_path / "out")
    build = flow.compile_for_ascend(options, "Ascend310P3")
    assert set(build.lowered) == {"large"} and list(build.operators) == ["npuforge::ConvBnLeakyRelu"]
    notices = json.loads((tmp_path / "out" / "ascend.json").read_text())["notices"]
    first = next(n for n in notices if n.startswith("node 'large'"))
    assert "is written as standard operators: " in first and "arrays have up to 2**28 elements" in first
    own_nodes = [n.name for n in onnx.load(tmp_path / "out" / "model.onnx").graph.node if n.domain == "npuforge"]
    assert own_nodes == ["small"]


def _custom(nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], outputs: str, folder: Path) -> Options:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()],
        [value(n, TensorProto.FLOAT, None) for n in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "net.onnx")
    return Options(folder / "net.onnx", arch.load("nf-b1024"), folder / "out")


def test_a_composition_with_a_program_over_tiles_keeps_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = helper.make_node("ModSigmoid", ["x", "z"], ["y"], "n", domain="npuforge")
    build = flow.compile_for_ascend(_custom([node], {"x": [1, 4], "z": [1, 4]}, "y", tmp_path), "Ascend310")
    assert list(build.operators) == ["npuforge::ModSigmoid"] and not build.lowered
    assert (tmp_path / "out" / "mod_sigmoid.py").exists()


def test_numbers_that_are_whole_on_one_node_and_real_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """alpha=1 is an integer to ONNX's helpers; and one node asks for the mask, the other not."""
    monkeypatch.setenv("PATH", str(tmp_path))
    nodes = [
        helper.make_node("LeakyReluMask", ["x"], ["a", "b"], "one", domain="npuforge", alpha=1),
        helper.make_node("LeakyReluMask", ["b"], ["c"], "two", domain="npuforge", alpha=0.1),
    ]
    build = flow.compile_for_ascend(_custom(nodes, {"x": [2, 3]}, "ac", tmp_path), "Ascend310")
    assert list(build.operators) == ["npuforge::LeakyReluMask"] and not build.on_ai_cpu
    made = onnx.load(tmp_path / "out" / "model.onnx")
    assert [a.type for n in made.graph.node for a in n.attribute] == [onnx.AttributeProto.FLOAT] * 2
    assert [len(n.output) for n in made.graph.node] == [2, 2]
    assert "attr_alpha.type=float" in (tmp_path / "out" / "leaky_relu_mask.ini").read_text()


@pytest.mark.parametrize("standard", [False, True])
def test_computed_weights(standard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a RotatedConv: in its source, and as standard operators."""
    monkeypatch.setenv("PATH", str(tmp_path))
    nodes = [
        helper.make_node("Abs", ["u"], ["w"], "abs"),
        helper.make_node("RotatedConv", ["x", "w"], ["y"], "turned", domain="npuforge", rotations=3),
    ]
    options = _custom(nodes, {"x": [1, 2, 7, 6], "u": [2, 2, 3, 3]}, "y", tmp_path)
    build = flow.compile_for_ascend(options, "Ascend310", standard)
    assert set(build.lowered) == ({"turned"} if standard else set())
    random = np.random.default_rng(4)
    feeds = {n: random.normal(size=s).astype(np.float32) for n, s in (("x", (1, 2, 7, 6)), ("u", (2, 2, 3, 3)))}
    found = OnnxRunner(onnx.load(tmp_path / "out" / "model.onnx")).run(feeds)["y"]
    expected = OnnxRunner(prepare_model(tmp_path / "net.onnx")).run(feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _decode() -> onnx.NodeProto:
    """x [1, 6, H, W] -> a, b, c, whose rows the data decide."""
    sizes: dict[str, Any] = {"anchors": [4.0, 5.0], "strides": [8], "num_classes": 1, "score_threshold": 0.5}
    return helper.make_node("YoloDecode", ["x"], ["a", "b", "c"], "decode", domain="npuforge", **sizes)


def test_programs_over_tiles_take_known_shapes_and_real_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a YoloDecode with a threshold the rows are not known: the AI CPU computes it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    nodes = [
        _decode(),
        helper.make_node("Silu", ["b"], ["y"], "silu", domain="npuforge"),
    ]
    build = flow.compile_for_ascend(_custom(nodes, {"x": [1, 6, 4, 5]}, "y", tmp_path), "Ascend310")
    assert build.on_ai_cpu == {"npuforge::Silu": "node 'silu': the shape of its input b is not known"}


def test_a_composition_over_tiles_that_is_refused_is_lowered_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ModSigmoid behind a YoloDecode with a threshold; another one keeps its source."""
    monkeypatch.setenv("PATH", str(tmp_path))
    nodes = [
        _decode(),
        helper.make_node("ModSigmoid", ["b", "b"], ["y"], "open", domain="npuforge"),
        helper.make_node("ModSigmoid", ["z", "z"], ["w"], "known", domain="npuforge"),
    ]
    build = flow.compile_for_ascend(_custom(nodes, {"x": [1, 6, 4, 5], "z": [1, 3]}, "yw", tmp_path), "Ascend310")
    assert build.lowered == {"open": "npuforge::ModSigmoid"}
    assert not build.on_ai_cpu and not build.without_source
    assert set(build.operators) == {"npuforge::YoloDecode", "npuforge::ModSigmoid"}
    made = onnx.load(tmp_path / "out" / "model.onnx")
    assert [n.name for n in made.graph.node if n.op_type == "ModSigmoid"] == ["known"]


def test_programs_over_tiles_take_float16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = helper.make_node("Silu", ["x"], ["y"], "silu", domain="npuforge")
    options = _custom([node], {"x": [1, 4]}, "y", tmp_path)
    model = onnx.load(options.model)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save(model, options.model)
    build = flow.compile_for_ascend(options, "Ascend310")
    assert list(build.operators) == ["npuforge::Silu"] and not build.on_ai_cpu
    assert "input0.dtype=float16,float" in (tmp_path / "out" / "silu.ini").read_text()


def test_names_that_cann_cannot_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = helper.make_node("Silu", ["x;1"], ["y"], "silu", domain="npuforge")
    with pytest.raises(UnsupportedError, match="input 'x;1': atc cannot be told the shape"):
        flow.compile_for_ascend(_custom([node], {"x;1": [2, 3]}, "y", tmp_path), "Ascend310")
    options = _custom(
        [helper.make_node("Silu", ["x:0"], ["y"], "silu", domain="npuforge")], {"x:0": [2, 3]}, "y", tmp_path
    )
    assert "--input_shape=x:0:2,3" in flow.compile_for_ascend(options, "Ascend310").command
    with pytest.raises(UnsupportedError, match=r"CsrGate and CSRGate would both have the files csr_gate\.\*"):
        flow._refuse_same_type([("a", "CSRGate"), ("a", "CsrGate")])
