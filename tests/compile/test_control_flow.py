"""If and Loop of constant condition and trip count are written out; what the data decide is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.steps import control_flow
from npuforge.compile.steps.import_onnx import import_onnx

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def graph_of(
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: list[tuple[str, int]],
    outputs: list[tuple[str, int]],
    constants: Any = (),
) -> onnx.GraphProto:
    """A sub-graph; (name, element type) of its inputs and outputs."""
    values = [
        [helper.make_tensor_value_info(n, kind, [] if kind != TensorProto.FLOAT else None) for n, kind in part]
        for part in (inputs, outputs)
    ]
    return helper.make_graph(nodes, name, *values, list(constants))


def branch(op: str, source: str = "t") -> onnx.GraphProto:
    return graph_of(
        op, [helper.make_node(op, [source], [f"{op}_out"], name="inner")], [], [(f"{op}_out", TensorProto.FLOAT)]
    )


F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def body(scan: bool = False, nested: bool = False, stop: str = "go") -> onnx.GraphProto:
    """v = Relu(v) + x per iteration; with an If on an outer constant, with the sum of each iteration as a scan output."""
    step = helper.make_node(
        "If", ["yes"], ["r"], name="if", then_branch=branch("Relu", "v"), else_branch=branch("Neg", "v")
    )
    nodes = [
        helper.make_node("Identity", [stop], ["on"], name="on"),
        step if nested else helper.make_node("Relu", ["v"], ["r"], name="relu"),
        helper.make_node("Mul", ["r", "half"], ["h"], name="mul"),
        helper.make_node("Add", ["h", "t"], ["w"], name="add"),
    ]
    outputs = [("on", B), ("w", F)]
    if scan:
        nodes.append(helper.make_node("ReduceSum", ["w"], ["total"], name="sum"))
        outputs.append(("total", F))
    constants = [numpy_helper.from_array(np.asarray(0.5, np.float32), "half")]
    return graph_of("body", nodes, [("i", INT), ("go", B), ("v", F)], outputs, constants)


def model(
    build: Any, weights: Any, flow: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), constants: Any = None
) -> onnx.ModelProto:
    """x → convolution → t → `flow` → u → convolution → y."""
    file = build(
        [("Conv", ["x", "w1"], ["t"], CONV, "first"), ("Conv", ["t", "w2"], ["y"], CONV, "last")],
        constants={"w1": weights(4, 4, 3, 3), "w2": weights(3, 4, 3, 3)},
    )
    file.graph.node[1].input[0] = "u"
    file.graph.node.insert(1, flow)
    for name, value in (constants or {}).items():
        file.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    del file.graph.value_info[:]
    file.graph.output.extend(helper.make_tensor_value_info(n, F, None) for n in outputs[1:])
    return file


@pytest.mark.parametrize("condition", [True, False])
def test_if(build, same, weights, condition):
    flow = helper.make_node("If", ["c"], ["u"], name="choose", then_branch=branch("Relu"), else_branch=branch("Neg"))
    graph = same(model(build, weights, flow, constants={"c": condition}))
    assert [n.op for n in graph.nodes] == ["Conv", "Conv"] and sum(len(n.sources) for n in graph.nodes) >= 3
    assert graph.nodes[0].activation.kind == ("Relu" if condition else "none")


@pytest.mark.parametrize("trips", [0, 1, 3])
@pytest.mark.parametrize("nested", [False, True])
def test_loop(build, same, weights, trips, nested):
    flow = helper.make_node("Loop", ["n", "", "t"], ["u"], name="loop", body=body(nested=nested))
    graph = same(model(build, weights, flow, constants={"n": trips, "yes": True}), 1e-4)
    assert [n.op for n in graph.nodes].count("Add") == trips
    assert all("body" not in n.attrs for n in graph.nodes)


@pytest.mark.parametrize("opset", [11, 13])
def test_scan_outputs(build, same, weights, opset):
    flow = helper.make_node("Loop", ["n", "go_in", "t"], ["u", "sums"], name="loop", body=body(scan=True))
    file = model(build, weights, flow, ("y", "sums"), {"n": 3, "go_in": True})
    file.opset_import[0].version = opset
    graph = same(file, 1e-4)
    assert graph.tensors["sums"].shape == (3, 1, 1, 1, 1)


def test_a_trip_count_of_the_data_is_refused(build, weights):
    count = [helper.make_node("ReduceMax", ["t"], ["m"], keepdims=0), helper.make_node("Cast", ["m"], ["n"], to=INT)]
    file = model(build, weights, helper.make_node("Loop", ["n", "", "t"], ["u"], name="loop", body=body()))
    for node in reversed(count):
        file.graph.node.insert(1, node)
    with pytest.raises(UnsupportedError, match=r"'loop' \(Loop\).*sub-graph in 'body'"):
        import_onnx(file)


def test_a_loop_that_may_stop_early_is_refused(build, weights):
    inner = body()
    inner.node[0].CopyFrom(helper.make_node("Not", ["go"], ["on"], name="on"))
    file = model(
        build, weights, helper.make_node("Loop", ["n", "", "t"], ["u"], name="loop", body=inner), constants={"n": 3}
    )
    with pytest.raises(UnsupportedError, match=r"'loop' \(Loop\).*sub-graph in 'body'"):
        import_onnx(file)


def test_a_loop_that_is_too_long_is_refused(build, weights, monkeypatch):
    monkeypatch.setattr(control_flow, "MOST_NODES", 11)
    file = model(
        build, weights, helper.make_node("Loop", ["n", "", "t"], ["u"], name="loop", body=body()), constants={"n": 3}
    )
    with pytest.raises(UnsupportedError, match=r"'loop' \(Loop\): 3 iterations of 4 nodes, expected at most 11"):
        import_onnx(file)


def test_functions_and_local_domains_are_written_out(build, same, weights):
    """A function that calls another, in domains of the file's own."""
    own = [helper.make_opsetid("", 13), helper.make_opsetid("local", 1)]
    gate = helper.make_function(
        "local", "Gate", ["a"], ["b"], [helper.make_node("Sigmoid", ["a"], ["b"], name="s")], own[:1]
    )
    swish = helper.make_function(
        "local", "Swish", ["a"], ["b"],
        [helper.make_node("Gate", ["a"], ["g"], name="g", domain="local"), helper.make_node("Mul", ["a", "g"], ["b"], name="m")], own,
    )  # fmt: skip
    file = model(build, weights, helper.make_node("Swish", ["t"], ["u"], name="act", domain="local"))
    file.opset_import.append(own[1])
    file.functions.extend([gate, swish])
    graph = same(file)
    assert [n.op for n in graph.nodes] == ["Conv", "Conv"] and graph.nodes[0].activation.kind == "Silu"
