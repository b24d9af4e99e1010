"""Float execution: any tensor by name, custom nodes by the operator's own reference, the graph written back as ONNX."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from npuforge.compile.graph_to_onnx import graph_to_onnx, pre_activation
from npuforge.compile.ir.errors import UnsupportedError, UsageError
from npuforge.compile.onnx_runner import OnnxRunner
from npuforge.compile.reference import FloatReference, GraphExecutor
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx

CPU = ["CPUExecutionProvider"]
ONE = {"kernel_shape": [1, 1]}


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.fixture
def image():
    return np.random.default_rng(1).normal(size=(1, 4, 8, 8)).astype(np.float32)


@pytest.fixture
def mixed(build):
    """Doubling, custom GELU, tripling, custom GELU: standard and custom nodes in turn, with a second path."""
    nodes = [
        ("Mul", ["x", "two"], ["a"], {}),
        ("CustomGELU", ["a"], ["b"], {}, "gelu1", "com.example"),
        ("Mul", ["b", "three"], ["c"], {}),
        ("CustomGELU", ["c"], ["d"], {}, "gelu2", "com.example"),
        ("Add", ["d", "a"], ["y"], {}),
    ]
    return build(nodes, constants={"two": np.float32(2), "three": np.float32(3)}, domains=["com.example"])


def test_custom_nodes_run_between_sessions(mixed, image):
    reference = FloatReference(mixed, providers=CPU, outputs=["b", "c"])
    found = reference.run({"x": image})
    x = image.astype(np.float64)
    b = gelu(2 * x)
    assert np.abs(found["b"] - b).max() < 1e-5 and np.abs(found["c"] - 3 * b).max() < 1e-5
    assert np.abs(found["y"] - (gelu(3 * b) + 2 * x)).max() < 1e-5
    assert reference.provider == "CPUExecutionProvider" and list(found) == ["y", "b", "c"]


def test_custom_node_first_and_last(build, image):
    nodes = [("CustomGELU", ["x"], ["y"], {}, "gelu", "com.example")]
    found = FloatReference(build(nodes, domains=["com.example"]), providers=CPU).run({"x": image})
    assert np.abs(found["y"] - gelu(image.astype(np.float64))).max() < 1e-6


def test_unknown_custom_node(build, image):
    model = build([("Strange", ["x"], ["y"], {}, "odd", "org.nobody")], domains=["org.nobody"])
    with pytest.raises(UnsupportedError, match=r"'odd'.*org\.nobody::Strange"):
        FloatReference(model, providers=CPU).run({"x": image})


def test_unknown_tensor_and_missing_input(mixed, image):
    with pytest.raises(UsageError, match="'nothing'"):
        FloatReference(mixed, providers=CPU, outputs=["nothing"])
    with pytest.raises(UsageError, match="'x' is missing"):
        FloatReference(mixed, providers=CPU).run({})


def test_inner_tensors_of_the_fused_graph(build, weights, image):
    nodes = [
        ("Conv", ["x", "w"], ["t"], ONE),
        ("LeakyRelu", ["t"], ["r"], {"alpha": 0.1}),
        ("Conv", ["r", "v"], ["y"], ONE),
    ]
    model = build(nodes, constants={"w": weights(4, 4, 1, 1), "v": weights(2, 4, 1, 1)})
    graph = fuse(fold(import_onnx(model).graph))
    wanted = ["x", "r", "y", pre_activation(graph.nodes[0])]
    found = GraphExecutor(graph, wanted, CPU).run({"x": image})
    expected = OnnxRunner(model, ["t", "r", "y"], CPU).run({"x": image})
    assert list(found) == wanted and np.array_equal(found["x"], image)
    for name, other in (("r", "r"), ("y", "y"), (wanted[3], "t")):
        assert np.abs(found[name] - expected[other]).max() < 1e-6


def test_graph_to_onnx_is_valid(build, weights):
    nodes = [
        ("Conv", ["x", "w"], ["t"], ONE),
        ("Sigmoid", ["t"], ["g"], {}),
        ("Mul", ["t", "g"], ["s"], {}),
        ("AveragePool", ["s"], ["p"], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("Conv", ["p", "w"], ["y"], ONE),
    ]
    model = graph_to_onnx(fuse(fold(import_onnx(build(nodes, constants={"w": weights(4, 4, 1, 1)})).graph)))
    onnx.checker.check_model(model, full_check=True)
    assert [v.name for v in model.graph.output] == ["y"]


def test_dynamic_file_with_shapes(build, image, tmp_path):
    model = build([("Relu", ["x"], ["y"], {})], shape=("N", 4, "H", "W"))
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    found = FloatReference(path, {"x": (1, 4, 8, 8)}, CPU).run({"x": image})
    assert np.array_equal(found["y"], np.maximum(image, 0))


def test_custom_nodes_may_read_a_tensor_twice(build):
    """A box overlaps itself whole; what was read twice is still there for the next reader."""
    boxes = np.array([[1, 2, 4, 2, 0.1], [30, 2, 6, 3, 0.7]], np.float32)
    nodes = [
        ("Mul", ["x", "one"], ["boxes"], {}),
        ("RotatedIou", ["boxes", "boxes"], ["same"], {}, "same", "npuforge"),
        ("RotatedIou", ["boxes", "others"], ["y"], {}, "apart", "npuforge"),
    ]
    constants = {"one": np.float32(1), "others": boxes[::-1].copy()}
    model = build(nodes, shape=(2, 5), constants=constants, domains=["npuforge"])
    found = OnnxRunner(model, ["same", "y"], CPU).run({"x": boxes})
    assert np.abs(found["same"] - np.eye(2)).max() < 1e-6 and np.abs(found["y"] - np.eye(2)[::-1]).max() < 1e-6
