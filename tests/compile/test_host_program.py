"""Whole float networks on the C++ executor alone: what the importer lets through runs there, whatever its age and number of dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip(
    "npuforge.board_runtime._native", reason="the native module is not built: python setup.py build_ext --inplace"
)
from npuforge.board_runtime.session import Session
from npuforge.compile.host_program import float_graph, host_program
from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.compile.reference import OnnxRunner
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.onnx_nodes import WORDS
from npuforge.compile.steps.partition import partition


def test_operator_sets_before_seven_are_raised(build):
    """Broadcasting by attribute, and a PRelu slope per channel without broadcasting: what operator set 6 says, by hand in numpy."""
    bias, slope = np.array([1.0, -2.0, 0.5, 3.0], np.float32), np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    nodes = [("Add", ["x", "b"], ["t"], {"broadcast": 1, "axis": 1}), ("PRelu", ["t", "s"], ["y"], {})]
    model = build(nodes, constants={"b": bias, "s": slope}, opset=6)
    model.graph.input.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("b", "s"))
    model.ir_version = 3
    (before,) = [n.name for n in model.graph.node if n.op_type == "PRelu"]
    program = host_program(float_graph(model))
    x = np.random.default_rng(2).normal(size=(1, 4, 8, 8)).astype(np.float32)
    shifted = x + bias.reshape(4, 1, 1)
    expected = np.where(shifted < 0, slope.reshape(4, 1, 1) * shifted, shifted)
    np.testing.assert_allclose(Session(program).run({"x": x})["y"], expected, rtol=1e-6)
    assert before in {s for n in import_onnx(model).graph.nodes for s in n.sources}


def test_operator_set_that_cannot_be_raised(build):
    model = build([("Upsample", ["x"], ["y"], {"scales": [1.0, 1.0, 2.0, 2.0]})], opset=7)
    model.opset_import[0].version = 5
    with pytest.raises(ModelError, match="operator set 5 is older than 7"):
        import_onnx(model)


def test_operator_defined_by_others(build):
    """ONNX defines Attention by other operators; it is written out and its nodes keep the file's name as their source."""
    nodes = [("Attention", ["q", "k", "v"], ["y"], {"is_causal": 1}, "look")]
    shapes = {name: (1, 2, 5, 4) for name in ("q", "k", "v")}
    model = build(nodes, inputs=shapes, opset=23)
    graph = float_graph(model)
    assert len(graph.nodes) > 3 and {s for n in graph.nodes for s in n.sources} == {"look"}
    q, k, v = (np.random.default_rng(i).normal(size=(1, 2, 5, 4)).astype(np.float32) for i in range(3))
    score = q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) / 2.0
    score = np.where(np.tril(np.ones((5, 5), bool)), score, -np.inf)
    share = np.exp(score - score.max(-1, keepdims=True))
    expected = share / share.sum(-1, keepdims=True) @ v
    found = Session(host_program(graph)).run({"q": q, "k": k, "v": v})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_definition_of_the_operator_set(build, opset: int):
    """ONNX's definition by other operators is written anew for some operator sets: the model's is taken."""
    graph = float_graph(build([("MeanVarianceNormalization", ["x"], ["y"], {"axes": [0, 2, 3]}, "norm")], opset=opset))
    x = np.random.default_rng(3).normal(2.0, 3.0, (1, 4, 8, 8)).astype(np.float32)
    wide = x.astype(np.float64) - x.mean((0, 2, 3), dtype=np.float64, keepdims=True)
    expected = wide / np.sqrt((wide**2).mean((0, 2, 3), keepdims=True))
    np.testing.assert_allclose(Session(host_program(graph)).run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_convolution_of_nothing(build, weights):
    cut = {"first": np.array([0]), "last": np.array([0]), "axis": np.array([2])}
    nodes = [
        ("Slice", ["x", "first", "last", "axis"], ["t"], {}),
        ("Conv", ["t", "w"], ["y"], {"kernel_shape": [1, 1]}, "conv"),
    ]
    model = build(nodes, constants={"w": weights(3, 4, 1, 1), **cut})
    with pytest.raises(UnsupportedError, match=r"node 'conv' \(Conv\): tensor 't' has shape \[1, 4, 0, 8\], .*--shape"):
        partition(float_graph(model))


def test_constant_output(build):
    """An output that the input does not reach is handed out all the same."""
    model = build(
        [("Identity", ["c"], ["y"], {}), ("Relu", ["x"], ["z"], {})],
        constants={"c": np.ones(3, np.float32)},
        outputs=["y", "z"],
    )
    x = np.random.default_rng(2).normal(size=(1, 4, 8, 8)).astype(np.float32)
    found = Session(host_program(float_graph(model))).run({"x": x})
    np.testing.assert_array_equal(found["y"], np.ones(3, np.float32))
    np.testing.assert_array_equal(found["z"], np.maximum(x, 0))


def test_weights_that_are_computed_run_on_the_cpu(build):
    model = build(
        [("Conv", ["x", "v"], ["y"], {"kernel_shape": [8, 8]}, "conv")], inputs={"x": (1, 4, 8, 8), "v": (6, 4, 8, 8)}
    )
    graph = partition(float_graph(model))
    (node,) = graph.nodes
    assert (node.op, node.device) == ("Conv", "CPU")
    assert node.reason == "the NPU takes constant weights and biases; 'v' of this one is computed"


@pytest.mark.parametrize("spatial", [(9,), (3, 4, 5)])
def test_one_and_three_dimensional_convolution(build, weights, spatial: tuple[int, ...]):
    shape, kernel = (1, 4, *spatial), [3] * len(spatial)
    model = build(
        [("Conv", ["x", "w"], ["y"], {"pads": [1] * 2 * len(spatial)}, "conv")],
        shape=shape,
        constants={"w": weights(6, 4, *kernel)},
    )
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    (expected,) = OnnxRunner(model, providers=["CPUExecutionProvider"]).run({"x": x}).values()
    found = Session(host_program(float_graph(model))).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_operator_without_an_implementation(build):
    model = build([("Det", ["x"], ["y"], {}, "determinant")])
    with pytest.raises(UnsupportedError, match=r"'determinant' \(Det\): the CPU partition has no Det"):
        host_program(float_graph(model))


@pytest.mark.parametrize("scales", [[1.0, 1.0, 2.0, 1.5], [1.0, 1.0, 0.6, 0.25]], ids=["larger", "smaller"])
@pytest.mark.parametrize("coordinates", WORDS["Resize", "coordinate_transformation_mode"])
def test_every_coordinate_mode_that_the_import_takes(build, coordinates, scales):
    """Whatever word passes the import runs in C++, nearest in its four roundings and linear; the values are ONNX Runtime's."""
    roi = np.array([0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.9, 0.7], np.float32)
    base = {"coordinate_transformation_mode": coordinates}
    kinds = [{"mode": "linear"}, *({"nearest_mode": word} for word in WORDS["Resize", "nearest_mode"])]
    nodes = [("Resize", ["x", "roi", "s"], [f"y{i}"], {**base, **kind}) for i, kind in enumerate(kinds)]
    outputs = [f"y{i}" for i in range(len(kinds))]
    model = build(nodes, constants={"roi": roi, "s": np.array(scales, np.float32)}, outputs=outputs, opset=11)
    x = np.random.default_rng(4).normal(size=(1, 4, 8, 8)).astype(np.float32)
    found = Session(host_program(float_graph(model))).run({"x": x})
    expected = OnnxRunner(model).run({"x": x})
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)
