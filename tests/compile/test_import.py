"""The import step: every kind of bad file is one typed line that names what was found and the remedy; names, shapes and custom operators are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from npuforge.compile.ir.errors import ModelError, NpuforgeError, QuantisationError, UnsupportedError, UsageError
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_model, import_onnx
from npuforge.compile.steps.verify import verify

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


@pytest.fixture
def small(build, weights):
    """One convolution."""
    return build([("Conv", ["x", "w"], ["y"], CONV, "conv")], constants={"w": weights(6, 4, 3, 3)})


def refused(error: type[NpuforgeError], path: Path, *parts: str, shapes=None) -> None:
    with pytest.raises(error) as caught:
        import_model(path, shapes)
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


def test_missing_file(tmp_path):
    refused(ModelError, tmp_path / "none.onnx", "none.onnx", "no such file")


def test_directory(tmp_path):
    refused(ModelError, tmp_path, "is a directory")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["empty"]),
        (b"<!DOCTYPE html><html><body>404</body></html>", ["HTML", "raw file"]),
        (b"\n\n  <HTML lang=en>", ["HTML"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["Git LFS", "git lfs pull"]),
        (b"PK\x03\x04rest of a zip", ["zip", "torch.onnx.export"]),
        (b"hello world, this is no model at all", ["not an ONNX model"]),
        (bytes(range(256)) * 4, ["not an ONNX model"]),
        (b"\x08\x08", ["holds no graph"]),
    ],
    ids=["empty", "html", "html without doctype", "lfs", "zip", "text", "noise", "no graph"],
)
def test_not_a_model(tmp_path, content, parts):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    refused(ModelError, path, str(path), *parts)


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_truncated(tmp_path, small, keep):
    data = small.SerializeToString()
    path = tmp_path / "net.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    refused(ModelError, path, "truncated", str(int(len(data) * keep)), "download or export it again")


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_external_data(tmp_path, small, damage):
    path = tmp_path / "net.onnx"
    onnx.save(small, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    verify(import_model(path), "import")
    data = tmp_path / "weights.bin"
    if damage == "missing":
        data.unlink()
        refused(ModelError, path, "'w'", "weights.bin", "missing")
    else:
        data.write_bytes(data.read_bytes()[:-4])
        refused(ModelError, path, "'w'", "weights.bin", str(data.stat().st_size))


def test_invalid_model(tmp_path, small):
    small.graph.node[0].input[0] = "nowhere"
    path = tmp_path / "net.onnx"
    path.write_bytes(small.SerializeToString())
    refused(ModelError, path, "not a valid ONNX model", "nowhere")


def test_invalid_model_in_memory(small):
    small.graph.node[0].input[0] = "nowhere"
    with pytest.raises(ModelError, match="nowhere"):
        import_onnx(small)


def test_channels_that_do_not_fit(build, weights):
    model = build([("Conv", ["x", "w"], ["y"], CONV, "conv")], constants={"w": weights(6, 4, 3, 3)})
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5
    with pytest.raises(NpuforgeError, match="conv"):
        graph = import_onnx(model).graph
        verify(fuse(fold(graph)), "fuse")


# ---- shapes
@pytest.fixture
def dynamic(tmp_path, build, weights):
    """A file whose batch, height and width are dynamic."""
    model = build([("Conv", ["x", "w"], ["y"], CONV)], shape=("N", 4, "H", "W"), constants={"w": weights(6, 4, 3, 3)})
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_dynamic_shape_without_option(dynamic):
    refused(UsageError, dynamic, "'x'", "Nx4xHxW", "--shape x=1x4x320x320")


def test_dynamic_shape_with_option(dynamic):
    graph = import_model(dynamic, {"x": (1, 4, 10, 12)})
    assert graph.tensors["x"].shape == (1, 4, 10, 12) and graph.tensors["y"].shape == (1, 6, 10, 12)


@pytest.mark.parametrize(
    ("shapes", "parts"),
    [
        ({"z": (1, 4, 8, 8)}, ["'z'", "its inputs: x"]),
        ({"x": (4, 8, 8)}, ["3 dimensions", "Nx4xHxW"]),
        ({"x": (1, 5, 8, 8)}, ["dimension 1", "fixes it at 4"]),
        ({"x": (1, 4, 0, 8)}, ["positive"]),
    ],
)
def test_wrong_shape_option(dynamic, shapes, parts):
    refused(UsageError, dynamic, *parts, shapes=shapes)


def test_shape_that_depends_on_data(build):
    nodes = [("NonZero", ["x"], ["i"], {}, "find"), ("Cast", ["i"], ["y"], {"to": 1})]
    graph = import_onnx(build(nodes)).graph
    assert graph.tensors["y"].shape == (4, -1)
    verify(fuse(fold(graph)), "fuse")


def test_shape_that_depends_on_data_before_a_convolution(build, weights):
    nodes = [
        ("NonZero", ["x"], ["i"], {}, "find"),
        ("Cast", ["i"], ["f"], {"to": 1}),
        ("Unsqueeze", ["f", "axes"], ["m"], {}, "lift"),
        ("Conv", ["m", "w"], ["y"], {"kernel_shape": [1, 1]}, "conv"),
    ]
    model = build(nodes, constants={"w": weights(6, 1, 1, 1), "axes": np.array([0, 1])})
    with pytest.raises(UnsupportedError, match=r"'find' \(NonZero\).*depends on the data and a convolution follows"):
        import_onnx(model)


def test_initialisers_listed_as_inputs(small):
    small.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (6, 4, 3, 3)))
    graph = import_onnx(small).graph
    assert graph.inputs == ["x"] and "w" in graph.constants


# ---- names
def test_unnamed_and_repeated_nodes(small, weights):
    del small.graph.node[:]
    small.graph.node.extend(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], **CONV),
            helper.make_node("Relu", ["a"], ["b"], name="same"),
            helper.make_node("Abs", ["b"], ["c"], name="same"),
            helper.make_node("Abs", ["c"], ["y"], name=""),
        ]
    )
    graph = import_onnx(small).graph
    assert [n.name for n in graph.nodes] == ["Conv_0", "same", "same_2", "Abs_3"]
    assert all(n.sources == [n.name] for n in graph.nodes)


def test_generated_name_avoids_a_given_one(small):
    del small.graph.node[:]
    small.graph.node.extend(
        [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"], name="Relu_0")]
    )
    assert [n.name for n in import_onnx(small).graph.nodes] == ["Relu_0_2", "Relu_0"]


BAKED = {
    "Reshape": [("Conv", ["x", "w"], ["t"], CONV), ("Reshape", ["t", "s"], ["y"], {})],
    "Add": [("Conv", ["x", "w"], ["t"], CONV), ("Add", ["t", "g"], ["y"], {})],
}


@pytest.mark.parametrize("op", BAKED)
def test_a_graph_that_bakes_another_size_in(build, weights, op):
    """Dynamic by its declaration, of one size by a constant: the node is named, with both shapes."""
    constants = {"w": weights(6, 4, 3, 3), "s": np.array([1, 6, 64]), "g": weights(1, 1, 8, 8)}
    nodes = BAKED[op]
    used = {t for n in nodes for t in n[1]}
    model = build(nodes, shape=("N", 4, "H", "W"), constants={k: v for k, v in constants.items() if k in used})
    assert import_onnx(model, {"x": (1, 4, 8, 8)}).graph.tensors["t"].shape == (1, 6, 8, 8)
    with pytest.raises(ModelError, match=rf"\({op}\).*\[1, 6, 16, 16\].*; .*--shape"):
        import_onnx(model, {"x": (1, 4, 16, 16)})


def test_shapes_of_several_inputs(build, weights):
    sizes = {"a": ("N", 4, "H", "W"), "b": ("N", 4, "H", "W")}
    model = build(
        [("Concat", ["a", "b"], ["t"], {"axis": 1}), ("Conv", ["t", "w"], ["y"], CONV)],
        inputs=sizes,
        constants={"w": weights(6, 8, 3, 3)},
    )
    graph = import_onnx(model, {"a": (1, 4, 8, 6), "b": (1, 4, 8, 6)}).graph
    assert graph.tensors["y"].shape == (1, 6, 8, 6)
    with pytest.raises(UsageError, match=r"input 'b' has the dynamic shape Nx4xHxW.*--shape b=1x4x320x320"):
        import_onnx(model, {"a": (1, 4, 8, 6)})


# ---- operators
def test_unknown_custom_operator(build):
    model = build([("Strange", ["x"], ["y"], {}, "odd", "org.nobody")], domains=["org.nobody"])
    with pytest.raises(UnsupportedError, match=r"'odd'.*org.nobody::Strange.*npuforge\.ops"):
        import_onnx(model)


def test_custom_operator_keeps_domain_and_attributes(build):
    model = build([("CustomGELU", ["x"], ["y"], {}, "gelu", "com.example")], domains=["com.example"])
    imported = import_onnx(model)
    assert imported.warnings == []
    assert imported.graph.nodes[0].op == "com.example::CustomGELU" and imported.graph.tensors["y"].shape == (1, 4, 8, 8)


def test_control_flow(build):
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["o"])],
        "b",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )
    reduced = helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0)
    less = helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL)
    choose = helper.make_node("If", ["c"], ["y"], name="choose", then_branch=branch, else_branch=branch)
    model = build([("Identity", ["x"], ["y"], {})])
    del model.graph.node[:]
    model.graph.node.extend([reduced, less, choose])
    with pytest.raises(UnsupportedError, match=r"'choose'.*sub-graph"):
        import_onnx(model)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite(small, bad):
    value = numpy_helper.to_array(small.graph.initializer[0]).copy()
    value[1, 2, 0, 0] = bad
    small.graph.initializer[0].CopyFrom(numpy_helper.from_array(value, "w"))
    with pytest.raises(QuantisationError, match=r"'conv'.*1 of 216 weights"):
        fuse(fold(import_onnx(small).graph))


ONE_DIMENSION = {
    "chain": (
        [
            ("Conv", ["x", "w", "b"], ["t"], {"kernel_shape": [3], "pads": [1, 0], "strides": [2], "dilations": [2]}),
            ("BatchNormalization", ["t", "b", "b", "b", "v"], ["n"], {}),
            ("PRelu", ["n", "slope"], ["u"], {}),
            ("MaxPool", ["u"], ["p"], {"kernel_shape": [2], "strides": [2]}),
            ("Conv", ["p", "k"], ["y"], {"kernel_shape": [1]}),
        ],
        ["Reshape", "Conv", "MaxPool", "Conv", "Reshape"],
    ),
    "branches": (
        [
            ("Conv", ["x", "w", "b"], ["t"], {"auto_pad": "SAME_UPPER"}),
            ("Mul", ["t", "row"], ["r"], {}),
            ("Add", ["r", "t"], ["s"], {}),
            ("ConvTranspose", ["s", "c"], ["d"], {"strides": [2]}),
            ("AveragePool", ["d"], ["e"], {"kernel_shape": [2], "strides": [2]}),
            ("Concat", ["e", "s"], ["f"], {"axis": 1}),
            ("Transpose", ["f"], ["y"], {"perm": [0, 2, 1]}),
        ],
        None,
    ),
}


@pytest.mark.parametrize("name", ONE_DIMENSION)
def test_one_dimensional_convolution(build, same, weights, name):
    """Becomes two-dimensional of height 1; reshapes stand at the ends only."""
    nodes, wanted = ONE_DIMENSION[name]
    constants = {
        "w": weights(6, 4, 3),
        "b": weights(6),
        "v": np.abs(weights(6)) + np.float32(0.1),
        "slope": weights(6, 1),
    }
    constants |= {"k": weights(2, 6, 1), "row": weights(21), "c": weights(6, 5, 3)}
    used = {t for n in nodes for t in n[1]}
    graph = same(
        build(nodes, shape=(1, 4, 21), constants={k: v for k, v in constants.items() if k in used}), place=True
    )
    convolutions = [n for n in graph.nodes if n.op.startswith("Conv")]
    assert {n.device for n in convolutions} == {"NPU"}
    found = [n.op for n in graph.nodes]
    assert found == wanted if wanted else found.count("Reshape") == 2


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_other_float_types_become_float32(weights, dtype):
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    kernel = weights(6, 4, 3, 3).astype(kind)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], "cast", to=dtype),
        helper.make_node("Conv", ["h", "w"], ["t"], "conv", **CONV),
        helper.make_node("Add", ["t", "c"], ["y"], "add"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 8, 8))]
    outputs = [helper.make_tensor_value_info("y", dtype, (1, 6, 8, 8))]
    constants = [numpy_helper.from_array(kernel, "w"), numpy_helper.from_array(np.asarray(0.5, kind), "c")]
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, constants), opset_imports=opset, ir_version=8
    )
    graph = fuse(fold(import_onnx(model).graph))
    assert [n.op for n in graph.nodes] == ["Conv"] and {t.dtype for t in graph.tensors.values()} == {"float32"}
    x = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(np.float32)
    expected = ReferenceEvaluator(model).run(["y"], {"x": x})[0]
    found = GraphExecutor(graph, providers=["CPUExecutionProvider"]).run({"x": x})["y"]
    assert np.abs(found - expected).max() < (2e-2 if dtype == TensorProto.FLOAT16 else 1e-5)


@pytest.mark.parametrize("op", ["TopK", "Split"])
def test_outputs_of_a_constant_node_keep_their_places(build, op):
    """The first is read on, the second is an output of the network. (onnxslim took the first away and left the second in its place.)"""
    sizes = {"TopK": np.array([2]), "Split": np.array([1, 3])}
    nodes = [("Shape", ["x"], ["i"], {}), (op, ["i", "s"], ["first", "y"], {}), ("Neg", ["first"], ["n"], {})]
    model = build(nodes, constants={"s": sizes[op]}, shape=(1, 3, 2, 1), opset=17, outputs=["y", "n"])
    for value in model.graph.output:
        value.type.tensor_type.elem_type = TensorProto.INT64
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        ["y", "n"], {"x": np.zeros((1, 3, 2, 1), np.float32)}
    )
    imported = import_onnx(model)
    for name, value in zip(("y", "n"), expected, strict=True):
        np.testing.assert_array_equal(imported.graph.constants[f"{name}/constant"], value)


@pytest.mark.parametrize("scale", [0.29, 0.57, 1 / 3, 1.15])
def test_sizes_in_double_precision(build, scale):
    """100 * 0.29 is 28.999… in double precision and 29 in float32: as many rows as in ONNX Runtime."""
    nodes = [
        ("Shape", ["x"], ["s"], {}),
        ("Gather", ["s", "two"], ["rows"], {}),
        ("Cast", ["rows"], ["wide"], {"to": TensorProto.DOUBLE}),
        ("Mul", ["wide", "scale"], ["part"], {}),
        ("Floor", ["part"], ["whole"], {}),
        ("Cast", ["whole"], ["size"], {"to": TensorProto.INT64}),
        ("Unsqueeze", ["size", "zero"], ["end"], {}),
        ("Slice", ["x", "zero", "end", "two_"], ["y"], {}),
    ]
    constants = {"two": np.array(2), "scale": np.float64(scale), "zero": np.array([0]), "two_": np.array([2])}
    model = build(nodes, constants=constants, shape=(1, 1, 100, 1))
    x = np.arange(100, dtype=np.float32).reshape(1, 1, 100, 1)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    assert import_onnx(model).graph.tensors["y"].shape == expected.shape


def test_double_precision_is_kept_between_constants(build):
    """16777216 + 1 is no float32."""
    nodes = [
        ("Cast", ["k"], ["d"], {"to": TensorProto.DOUBLE}),
        ("Add", ["d", "one"], ["e"], {}),
        ("Cast", ["e"], ["y"], {"to": TensorProto.INT64}),
    ]
    model = build(nodes, constants={"k": np.array([16777216]), "one": np.array([1.0])})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert import_onnx(model).graph.constants["y/constant"].tolist() == [16777217]


def test_an_omitted_output_of_a_constant_node(build):
    """Unique without the places of the first ones: what follows keeps its place."""
    nodes = [("Unique", ["c"], ["y", "", "back"], {}), ("Neg", ["back"], ["n"], {})]
    model = build(nodes, constants={"c": np.float32([3, 1, 3, 2])}, outputs=["y", "n"])
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    found = import_onnx(model).graph.constants
    assert found["y/constant"].tolist() == [1, 2, 3] and found["n/constant"].tolist() == [-2, 0, -2, -1]


@pytest.mark.parametrize("read", [0, 1])
def test_parts_of_a_constant_split(build, read):
    """In equal parts: one is an output of the network, the other is read on. (onnxslim made one part of them, the whole.)"""
    parts = ["y", "p"] if read else ["p", "y"]
    nodes = [("Split", ["c"], parts, {"axis": 0}), ("Neg", ["p"], ["n"], {})]
    model = build(nodes, constants={"c": np.arange(4, dtype=np.float32)}, outputs=["y", "n"])
    found = import_onnx(model).graph.constants
    halves = [np.float32([0, 1]), np.float32([2, 3])]
    np.testing.assert_array_equal(found["y/constant"], halves[1 - read])
    np.testing.assert_array_equal(found["n/constant"], -halves[read])


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (("MaxPool", ["c"], ["y", "i"], {"kernel_shape": [2, 2]}), "the places of a constant's maxima"),
        (
            ("RNN", ["c3", "w3", "r3"], ["y"], {"hidden_size": 1, "direction": "reverse"}),
            "forward over whole sequences",
        ),
    ],
)
def test_what_onnx_computes_wrongly_of_constants_is_refused(build, node, words):
    constants = {"c": np.ones((1, 1, 4, 4), np.float32), "c3": np.ones((2, 1, 1), np.float32)}
    constants |= {"w3": np.ones((1, 1, 1), np.float32), "r3": np.ones((1, 1, 1), np.float32)}
    model = build([node], constants=constants, outputs=[t for t in node[2] if t])
    for value in model.graph.output[1:]:
        value.type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(ModelError, match=words):
        import_onnx(model)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax_before_operator_set_13(same, build, axis):
    same(build([("Softmax", ["x"], ["y"], {"axis": axis})], shape=(1, 4, 3, 5), opset=11))
