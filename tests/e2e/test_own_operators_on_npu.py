"""A network of the kit's own operators through import, quantiser and code generator: on the NPU, the same bits on csim and sim."""

from __future__ import annotations

import numpy as np
import pytest
from ladder import Quantised, climb, compile_graph
from onnx import TensorProto, helper
from own_network import Builder, network

from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.reference import FloatReference
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor
from npuforge.quant.quantize import quantize


@pytest.mark.parametrize(("mode", "arch", "least"), [("fine", "nf-b1024", 25.0), ("pow2", "nf-b4096", 8.0)])
def test_own_operators_run_on_the_npu(mode: str, arch: str, least: float) -> None:
    model = network()
    graph = partition(fuse(fold(import_onnx(model).graph)))
    assert [p.device for p in graph.partitions] == ["NPU"], {n.name: n.reason for n in graph.nodes if n.reason}
    feeds = [{"input": np.random.default_rng(i).normal(size=(1, 3, 12, 10)).astype(np.float32)} for i in range(3)]
    expected = np.concatenate([next(iter(FloatReference(model).run(f).values())) for f in feeds])
    imported = np.concatenate([ReferenceExecutor(graph).run(f)[graph.outputs[0]] for f in feeds])
    np.testing.assert_allclose(imported, expected, rtol=1e-4, atol=1e-4)  # what the file says, operators as written
    statistics = calibrate(graph, feeds, lambda wanted: ReferenceExecutor(graph, wanted).run)
    integer = Quantised(quantize(graph, statistics, mode), Preprocess())
    found = np.concatenate([IntegerExecutor(integer.qgraph).run_outputs(f)[graph.outputs[0]] for f in feeds])
    assert 10 * np.log10(np.square(expected).sum() / np.square(found - expected).sum()) > least
    binary = compile_graph(integer, arch)
    stored = IntegerExecutor(integer.qgraph).quantise_input("input", feeds[0]["input"])
    assert climb(integer, binary, {"input": stored}) == []


def test_a_mask_that_is_read_keeps_the_operator() -> None:
    """On the CPU partition, with both outputs."""
    b = Builder()
    b.add("npuforge::LeakyReluMask", outputs=2, alpha=0.3)
    model = b.model()
    model.graph.output.append(helper.make_tensor_value_info("n0_extra1", TensorProto.FLOAT, None))
    graph = partition(fuse(fold(import_onnx(model).graph)))
    assert [(n.op, n.device) for n in graph.nodes] == [("npuforge::LeakyReluMask", "CPU")]
