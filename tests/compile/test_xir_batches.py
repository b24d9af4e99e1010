"""The notice about outputs that do not begin with the batch. That the vendor's graph runner aborts on [40, 5] and runs [1, 40, 5] was seen by hand."""

from __future__ import annotations

import numpy as np
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


def imported(shape: list[int]) -> Graph:
    """A convolution whose result is reshaped to `shape` and negated."""
    weights = np.random.default_rng(1).normal(size=(5, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "c", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "shape"], ["r"], "r"),
        helper.make_node("Neg", ["r"], ["y"], "n"),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 5])]
    values.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array(shape, np.int64), "shape")]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return fuse(fold(import_onnx(model).graph))


def built(shape: list[int], dpu: bool) -> XModel:
    graph = partition(imported(shape), limit=limits.load("dpu:DPUCZDX8G").reason) if dpu else partition(imported(shape))
    feeds = [{"x": np.random.default_rng(2).normal(size=(1, 3, 8, 5)).astype(np.float32)}]
    statistics = calibrate(graph, feeds, lambda wanted: GraphExecutor(graph, wanted, threads=1).run)
    qgraph = quantize(graph, statistics, "pow2")
    if dpu:
        return build_fix_form(qgraph)
    return build_xmodel(qgraph, write_bin.to_bytes(generate.generate(qgraph, arches.load("nf-b1024"))))


@pytest.mark.parametrize("dpu", [False, True])
def test_outputs_that_do_not_begin_with_the_batch(dpu: bool) -> None:
    (line,) = unlike_batches(built([40, 5], dpu))
    assert "the vendor's graph runner" in line and "'y' [40, 5] does not begin with the batch, 1; give such" in line
    assert unlike_batches(built([1, 40, 5], dpu)) == []
