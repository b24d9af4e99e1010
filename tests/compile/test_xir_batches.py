"""The notices about inputs and outputs that do not begin with the batch. That the vendor's graph runner aborts on [40, 5] and runs [1, 40, 5] was seen by hand."""

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


def imported(
    shape: list[int], more: tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto], list[tuple[str, int]]] = ([], [], [])
) -> Graph:
    """A convolution whose result is reshaped to `shape` and negated; `more`: nodes, inputs, outputs."""
    weights = np.random.default_rng(1).normal(size=(5, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "c", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "shape"], ["r"], "r"),
        helper.make_node("Neg", ["r"], ["y"], "n"),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 5])]
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


@pytest.mark.parametrize("dpu", [False, True])
def test_outputs_that_do_not_begin_with_the_batch(dpu: bool) -> None:
    (line,) = unlike_batches(built(imported([40, 5]), dpu))
    assert "the vendor's graph runner" in line and "'y' [40, 5] does not begin with the batch, 1; give such" in line
    assert unlike_batches(built(imported([1, 40, 5]), dpu)) == []


def test_an_input_that_does_not_begin_with_the_batch() -> None:
    more = (
        [helper.make_node("Mul", ["c", "row"], ["m"], "m")],
        [helper.make_tensor_value_info("row", TensorProto.FLOAT, [5])],
        [("m", TensorProto.FLOAT)],
    )
    (line,) = unlike_batches(built(imported([1, 40, 5], more), False))
    assert "will not take the .xmodel: 'row' [5] does not begin with the batch, 1; give such an input" in line


def test_a_constant_output() -> None:
    """One that does not begin with the batch has a child of its own, which reads nothing."""
    found = imported(
        [1, 5, 8, 5], ([helper.make_node("Identity", ["shape"], ["o"], "o")], [], [("o", TensorProto.INT64)])
    )
    model = built(found, False)
    (line,) = unlike_batches(model)
    assert line.startswith(
        "the vendor's graph runner (Vitis AI Library) leaves out the constant network output 'o' [4], not"
    )
