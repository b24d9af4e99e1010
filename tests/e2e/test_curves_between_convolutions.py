"""Convolution → element-wise operator → convolution is one NPU partition, within the stated error of ONNX's own meaning, the same bits on csim and sim.

The first convolution spreads its values beyond [-8, 8), so that tables and tails are both used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from ladder import Quantised, climb, compile_graph
from ladder_bf16 import Ladder
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.graph_to_onnx import graph_to_onnx
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.compile.reference import FloatReference
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.hw_kernels.arch import load
from npuforge.quant.bf16 import quantize_bf16
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor
from npuforge.quant.quantize import quantize

CHANNELS = 16


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    domain, _, name = op.rpartition("::")
    return helper.make_node(name, inputs.split(), output.split(), name=f"{name}-{output}", domain=domain, **attributes)


# name: the nodes from `a` (and `b`, another convolution) to `m`; what runs on the NPU before the last convolution
NETWORKS: dict[str, tuple[list[onnx.NodeProto], list[str]]] = {
    "Elu": ([node("Elu", "a", "m", alpha=1.3)], ["Conv+Elu"]),
    "Celu": ([node("Celu", "a", "m", alpha=3.0)], ["Conv+Elu"]),
    "Selu": ([node("Selu", "a", "m")], ["Conv+Elu"]),
    "Softplus": ([node("Softplus", "a", "m")], ["Conv+Softplus"]),
    "Erf": ([node("Erf", "a", "m")], ["Conv+Erf"]),
    "Swish": ([node("Swish", "a", "m", alpha=1.702)], ["Conv+Silu"]),
    "SiluPolynomial": ([node("npuforge::SiluPolynomial", "a", "m")], ["Conv+SiluPolynomial"]),
    "HardSigmoid": ([node("HardSigmoid", "a", "m", alpha=0.05, beta=0.4)], ["Conv+Clip"]),
    "Abs": ([node("Abs", "a", "m")], ["Conv+LeakyRelu"]),
    "Elu behind a sum": ([node("Add", "a b", "s"), node("Elu", "s", "m")], ["Conv", "Conv", "Add+Elu"]),
    "Selu beside its argument": (
        [node("Selu", "a", "s"), node("Add", "a s", "m")],
        ["Conv", "Affine+Elu", "Affine", "Add"],
    ),
    "Mish by Softplus": (
        [node("Softplus", "a", "s"), node("Tanh", "s", "t"), node("Mul", "a t", "m")],
        ["Conv+Mish"],
    ),
    "a gate by Softplus": (
        [node("Softplus", "a", "s"), node("Mul", "b s", "m")],
        ["Conv", "Conv+Softplus", "Mul"],
    ),
}


def model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    random = np.random.default_rng(1)
    read = {t for n in nodes for t in n.input}
    constants = {
        "w0": random.normal(0, 1.2, (CHANNELS, 3, 3, 3)),
        "b0": random.normal(0, 1, CHANNELS),
        "w1": random.normal(0, 1.2, (CHANNELS, 3, 3, 3)),
        "w2": random.normal(0, 0.25, (5, CHANNELS, 1, 1)),
    }
    border = {"pads": [1, 1, 1, 1]}
    chain = [node("Conv", "x w0 b0", "a", **border)]
    chain += [node("Conv", "x w1", "b", **border)] if "b" in read else []
    graph = helper.make_graph(
        [*chain, *nodes, node("Conv", "m w2", "y")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 10, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items()],
    )
    newest = 24 if any(n.op_type == "Swish" for n in nodes) else 21
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", newest), helper.make_opsetid("npuforge", 1)], ir_version=10
    )


def placed(name: str, precision: str = "int8") -> Graph:
    return partition(fuse(fold(import_onnx(model(NETWORKS[name][0])).graph)), precision=precision)


def feeds() -> list[dict[str, np.ndarray]]:
    return [{"x": np.random.default_rng(i).normal(size=(1, 3, 10, 9)).astype(np.float32)} for i in range(3)]


def decibels(expected: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10(np.square(expected).sum() / np.square(found - expected).sum()))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_partition_with_the_files_meaning(name: str) -> None:
    graph = placed(name)
    assert [p.device for p in graph.partitions] == ["NPU"], {n.name: n.reason for n in graph.nodes if n.reason}
    words = [n.op + ("" if n.activation.kind == "none" else f"+{n.activation.kind}") for n in graph.nodes]
    assert sorted(words) == sorted([*NETWORKS[name][1], "Conv"])
    reference = FloatReference(model(NETWORKS[name][0]))
    for feed in feeds():
        (expected,) = reference.run(feed).values()
        np.testing.assert_allclose(ReferenceExecutor(graph).run(feed)["y"], expected, rtol=1e-4, atol=1e-4)
        (written,) = FloatReference(graph_to_onnx(graph)).run(feed).values()
        np.testing.assert_allclose(written, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("mode", "arch", "least"), [("fine", "nf-b1024", 32.0), ("pow2", "nf-b4096", 22.0)])
@pytest.mark.parametrize("name", NETWORKS)
def test_int8_is_near_and_the_same_on_every_level(name: str, mode: str, arch: str, least: float) -> None:
    graph = placed(name)
    statistics = calibrate(graph, feeds(), lambda wanted: ReferenceExecutor(graph, wanted).run)
    integer = Quantised(quantize(graph, statistics, mode), Preprocess())
    expected = np.concatenate([ReferenceExecutor(graph).run(f)["y"] for f in feeds()])
    found = np.concatenate([IntegerExecutor(integer.qgraph).run_outputs(f)["y"] for f in feeds()])
    assert decibels(expected, found) > least
    stored = IntegerExecutor(integer.qgraph).quantise_input("x", feeds()[0]["x"])
    noise = np.random.default_rng(5).integers(-128, 128, stored.shape).astype(np.int8)
    binary = compile_graph(integer, arch)
    for x in (stored, noise):
        assert climb(integer, binary, {"x": x}) == []


@pytest.mark.parametrize("name", NETWORKS)
def test_bf16_is_near_and_the_same_on_every_level(name: str) -> None:
    graph = placed(name, "bf16")
    assert [p.device for p in graph.partitions] == ["NPU"]
    ladder = Ladder(quantize_bf16(graph), Preprocess(), load("nf-b1024-bf16"))
    binary, feed = ladder.binary(), feeds()[0]
    assert ladder.climb(binary, feed, (("csim", 1), ("sim", 1))) == []
    found = LaneExecutor(ladder.qgraph, ladder.arch).run_outputs(feed)["y"]
    assert decibels(ReferenceExecutor(graph).run(feed)["y"], found) > 40.0
