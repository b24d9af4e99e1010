"""Every registered operator with an NPU program × its own cases: quantised, generated, run on the plain interpreter == the operator's integer semantics."""

from __future__ import annotations

import numpy as np
import pytest
from backend import run_and_compare
from interpreter import Machine
from networks_int8 import expected

from npuforge.compile.ir.graph import Partition
from npuforge.compile.steps.generate import generate
from npuforge.compile.steps.write_bin import to_bytes
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.dsl.program import LayerProgram
from npuforge.hw_kernels.operator import Case, case_graph, registry
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import ReferenceExecutor
from npuforge.quant.quantize import quantize

CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name, op in registry().items()
    if isinstance(op.program, LayerProgram)
    for number, case in enumerate(op.cases)
]


def test_all_npu_operators_are_here() -> None:
    assert {p.values[0] for p in CASES} >= {
        *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "Add", "Sub", "Mul"),
        *("Affine", "Resize", "Concat", "ChannelGather", "SpaceToDepth"),
    }


@pytest.mark.parametrize("mode", ["fine", "pow2"])
@pytest.mark.parametrize("arch", ["nf-b1024", "nf-b4096"])
@pytest.mark.parametrize(("name", "case"), CASES)
def test_case(name: str, case: Case, arch: str, mode: str) -> None:
    graph = case_graph(name, case)
    for node in graph.nodes:
        node.device = "NPU"
    graph.partitions = [Partition("NPU", [n.name for n in graph.nodes], list(graph.inputs), list(graph.outputs))]
    random = np.random.default_rng(1)
    feeds = [
        {t: random.normal(0, 1.5, graph.tensors[t].shape).astype(np.float32) for t in graph.inputs} for _ in range(2)
    ]
    statistics = calibrate(graph, feeds, lambda wanted: ReferenceExecutor(graph, wanted).run)
    qgraph = quantize(graph, statistics, mode)
    compiled = generate(qgraph, load(arch))
    machine = Machine(to_bytes(compiled))
    inputs = {
        t: random.integers(-128, 128, np.array(graph.tensors[t].shape)[[0, 2, 3, 1]]).astype(np.int8)
        for t in graph.inputs
    }
    for tensor, value in inputs.items():
        machine.write_tensor(tensor, value[0])
    values = expected(qgraph, inputs)
    run_and_compare(machine, {k: v[0] for k, v in values.items()})
    for tensor in graph.outputs:
        np.testing.assert_array_equal(machine.read_tensor(tensor), values[tensor][0])
