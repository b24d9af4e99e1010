"""Inputs and outputs that do not begin with the batch: the `.xmodel` gives them the axis; of a DPU build there is a notice. That the vendor's graph
runner aborts on [40, 5] was seen by hand; what it makes of our files is tests/e2e/test_whole_files.py.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.dpu import limits
from npuforge.compile.dpu.fix_form import build_fix_form
from npuforge.compile.ir.graph import Graph
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps import generate, write_bin
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.xir.batches import unlike_batches
from npuforge.compile.xir.model import XModel
from npuforge.compile.xir.writer import build_xmodel
from npuforge.hw_kernels import arch as arches
from npuforge.quant.calibrate import calibrate
from npuforge.quant.quantize import quantize

More = tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto], list[tuple[str, int]]]


def imported(shape: list[int], more: More = ([], [], []), batch: int = 1) -> Graph:
    """A convolution whose result is reshaped to `shape` and negated; `more`: nodes, inputs, outputs."""
    weights = np.random.default_rng(1).normal(size=(5, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "c", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "shape"], ["r"], "r"),
        helper.make_node("Neg", ["r"], ["y"], "n"),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 5])]
    values.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array(shape, np.int64), "shape")]
    outputs = [*values[1:], *(helper.make_tensor_value_info(name, kind, None) for name, kind in more[2])]
    graph = helper.make_graph([*nodes, *more[0]], "net", [values[0], *more[1]], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return fuse(fold(import_onnx(model).graph))


def built(graph: Graph, dpu: bool) -> XModel:
    graph = partition(graph, limit=limits.load("dpu:DPUCZDX8G").reason) if dpu else partition(graph)
    feeds = [{n: np.random.default_rng(2).normal(size=graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}]
    statistics = calibrate(graph, feeds, lambda wanted: GraphExecutor(graph, wanted, threads=1).run)
    qgraph = quantize(graph, statistics, "pow2")
    if dpu:
        return build_fix_form(qgraph)
    return build_xmodel(qgraph, write_bin.to_bytes(generate.generate(qgraph, arches.load("nf-b1024"))))


ROW: More = (
    [helper.make_node("Mul", ["c", "row"], ["m"], "m")],
    [helper.make_tensor_value_info("row", TensorProto.FLOAT, [5])],
    [("m", TensorProto.FLOAT)],
)
CONSTANT: More = ([helper.make_node("Identity", ["shape"], ["o"], "o")], [], [("o", TensorProto.INT64)])


def test_the_vendors_compiler_leaves_them() -> None:
    (line,) = unlike_batches(built(imported([40, 5]), True))
    assert "the vendor's graph runner" in line and "'y' [40, 5] does not begin with the batch, 1; give such" in line
    assert unlike_batches(built(imported([1, 40, 5]), True)) == []


@pytest.mark.parametrize(
    ("graph", "shapes"),
    [
        (imported([40, 5]), {"y": [1, 40, 5]}),
        (imported([1, 40, 5]), {"y": [1, 40, 5]}),
        (imported([1, 40, 5], ROW), {"row": [1, 5], "m": [1, 5, 8, 5]}),
        (imported([1, 5, 8, 5], CONSTANT), {"o": [1, 4]}),
    ],
    ids=["an output", "none", "an input", "a constant"],
)
def test_a_batch_of_one_is_added(graph: Graph, shapes: dict[str, list[int]]) -> None:
    model = built(graph, False)
    found = {op.tensor.name: op.tensor.shape for op in model.ops}
    assert {name: found[name] for name in shapes} == shapes and unlike_batches(model) == []


@pytest.mark.parametrize(
    ("graph", "shapes"),
    [
        (imported([80, 5], batch=2), {"x": [1, 2, 3, 8, 5], "y": [1, 80, 5]}),
        (imported([2, 40, 5], batch=2), {"x": [2, 3, 8, 5], "y": [2, 40, 5]}),
        (imported([2, 40, 5], ROW, batch=2), {"x": [1, 2, 3, 8, 5], "row": [1, 5], "m": [1, 2, 5, 8, 5]}),
        (imported([2, 40, 5], CONSTANT, batch=2), {"x": [1, 2, 3, 8, 5], "y": [1, 2, 40, 5], "o": [1, 3]}),
    ],
    ids=["an output", "none", "an input", "a constant"],
)
def test_of_another_batch_all_have_the_axis(graph: Graph, shapes: dict[str, list[int]]) -> None:
    model = built(graph, False)
    found = {op.tensor.name: op.tensor.shape for op in model.ops}
    assert {name: found[name] for name in shapes} == shapes and unlike_batches(model) == []


def test_constants_alone() -> None:
    """Nothing of the network is computed: a child that reads nothing."""
    nodes = [helper.make_node("Identity", ["k"], ["o"], "o")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("x", "o")]
    graph = helper.make_graph(
        nodes, "net", values[:1], values[1:], [numpy_helper.from_array(np.ones(2, np.float32), "k")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (line,) = unlike_batches(built(fuse(fold(import_onnx(model).graph)), False))
    assert "leaves out the constant network output 'o' [1, 2], since no other" in line
