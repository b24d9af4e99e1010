"""The DPU flavour: the fix form, run by XIR's documented float operators, gives our integers bit by bit; what stays on the DPU, what goes to the CPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fix_form_interpreter import execute
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.dpu import adapt, limits
from npuforge.compile.dpu.fix_form import build_fix_form, write_fix_form
from npuforge.compile.dpu.flow import ends_in_head
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.xir.reader import read_xmodel
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor
from npuforge.quant.quantize import quantize

TARGET = limits.load("dpu:DPUCZDX8G")


def network(groups: int = 1) -> onnx.ModelProto:
    """Every operator that the fix form has; `groups`: of one convolution in the middle."""
    random, make = np.random.default_rng(3), helper.make_node
    constants: dict[str, np.ndarray] = {"zero": np.float32(0), "six": np.float32(6)}
    constants["scales"] = np.array([1, 1, 2, 2], np.float32)
    constants["half"], constants["odd_even"] = np.array([4, 4]), np.array([1, 3, 5, 7, 0, 2, 4, 6])

    def conv(x: str, y: str, shape: tuple[int, ...], op: str = "Conv", **attrs: Any) -> onnx.NodeProto:
        outputs = shape[1] if op == "ConvTranspose" else shape[0]
        fan = math.prod(shape[1:]) if op == "Conv" else shape[0] * 9
        constants[f"{y}_w"] = (random.normal(size=shape) / np.sqrt(fan)).astype(np.float32)
        constants[f"{y}_b"] = random.normal(size=outputs).astype(np.float32) * 0.3
        return make(op, [x, f"{y}_w", f"{y}_b"], [y], y, kernel_shape=list(shape[2:]), **attrs)

    upsampling: dict[str, Any] = {"mode": "nearest", "nearest_mode": "floor"}
    upsampling["coordinate_transformation_mode"] = "asymmetric"
    nodes = [
        conv("x", "c1", (8, 3, 3, 2), strides=[2, 1], pads=[1, 0, 1, 1]),
        make("LeakyRelu", ["c1"], ["l1"], "l1", alpha=0.1),
        conv("l1", "d1", (8, 1, 3, 3), group=8, pads=[1, 1, 1, 1]),
        make("Relu", ["d1"], ["r0"], "r0"),
        conv("r0", "d2", (8, 1, 3, 3), group=8, pads=[1, 1, 1, 1]),
        make("LeakyRelu", ["d2"], ["l2"], "l2", alpha=0.1),  # the engine of depthwise convolutions has none
        make("Split", ["l2", "half"], ["s0", "s1"], "split", axis=1),
        make("Concat", ["s1", "s0"], ["swapped"], "swapped", axis=1),
        make("Gather", ["swapped", "odd_even"], ["r1"], "shuffled", axis=1),
        make("MaxPool", ["r1"], ["m1"], "m1", kernel_shape=[2, 2], strides=[2, 2]),
        conv("m1", "g1", (8, 8 // groups, 3, 3), group=groups, pads=[2, 2, 2, 2], dilations=[2, 2]),
        make("Clip", ["g1", "zero", "six"], ["k1"], "k1"),
        make("AveragePool", ["k1"], ["a1"], "a1", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        conv("a1", "up", (8, 8, 3, 3), "ConvTranspose", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        make("Resize", ["k1", "", "scales"], ["n1"], "n1", **upsampling),
        make("Resize", ["k1", "", "scales"], ["n2"], "n2", mode="linear"),
        make("Add", ["up", "n1"], ["first"], "first"),
        make("Add", ["first", "n2"], ["wide"], "wide"),
        make("SpaceToDepth", ["wide"], ["blocks"], "blocks", blocksize=2),
        conv("blocks", "back", (32, 8, 2, 2), "ConvTranspose", strides=[2, 2]),
        make("Relu", ["back"], ["sum"], "sum"),
        make("Mul", ["sum", "n1"], ["product"], "product"),
        make("Concat", ["sum", "product"], ["cat"], "cat", axis=1),
        conv("cat", "h", (5, 16, 1, 1)),
        make("Sigmoid", ["h"], ["y"], "y"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 12))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    initialisers = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def quantised(model: onnx.ModelProto, silu_as_hardswish: bool = False) -> tuple[QGraph, np.ndarray]:
    graph, _ = adapt.adapted(fuse(fold(import_onnx(model).graph)), silu_as_hardswish)
    graph = adapt.separated(graph, TARGET)
    graph = partition(graph, limit=TARGET.reason)
    random = np.random.default_rng(0)
    images = [{"x": random.normal(0, 1, (1, 3, 16, 12)).astype(np.float32)} for _ in range(2)]
    statistics = calibrate(graph, images, lambda wanted: GraphExecutor(graph, wanted, threads=1).run)
    return quantize(graph, statistics, "pow2"), images[0]["x"]


def test_fix_form_gives_our_integers() -> None:
    qgraph, image = quantised(network())
    nodes = qgraph.graph.nodes
    assert [n.name for n in nodes if n.device == "CPU"] == ["y"]
    ways = [limits.xir_operator(n, qgraph.graph) for n in nodes]
    assert {"leaky-relu", limits.MOVES, "mul", "resize"} <= set(ways)  # an activation alone, a shuffle
    found, expected = execute(build_fix_form(qgraph), image), IntegerExecutor(qgraph).run({"x": image})
    for node in nodes[:-1]:
        name = node.outputs[0]
        fix = qgraph.quant[name].fix_point
        assert fix is not None
        np.testing.assert_array_equal(found[f"{name}_fix"] * 2.0**fix, expected[name], err_msg=name)
    kinds = {op.type for op in build_fix_form(qgraph).ops}
    assert {
        "conv2d",
        "depthwise-conv2d",
        "transposed-conv2d",
        "maxpool2d",
        "avgpool2d",
        "add",
        "mul",
        "concat",
    } <= kinds
    assert {"resize", "relu", "relu6", "leaky-relu", "fix", "data", "const", "transpose", "sigmoid"} <= kinds


@pytest.mark.parametrize("depthwise", [False, True])
def test_hard_swish_is_close_to_the_dpus(depthwise: bool) -> None:
    """SiLU on request, behind a convolution and alone: at most 3 steps from what the vendor's quantiser says the DPU computes."""
    random, make = np.random.default_rng(5), helper.make_node
    weights = {
        "w": random.normal(size=(6, 3, 3, 3)) / 3,
        "v": random.normal(size=(6, 1, 3, 3)),
        "h": np.ones((1, 6, 1, 1)),
    }
    nodes = [
        make("Conv", ["x", "w"], ["c"], "c", kernel_shape=[3, 3]),
        make("Conv", ["c", "v"], ["d"], "d", kernel_shape=[3, 3], group=6),
        make("Sigmoid", ["d" if depthwise else "c"], ["s"], "s"),
        make("Mul", ["d" if depthwise else "c", "s"], ["y"], "y"),
        make("Conv", ["y", "h"], ["head"], "head", kernel_shape=[1, 1]),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 12))]
    outputs = [helper.make_tensor_value_info("head", TensorProto.FLOAT, None)]
    constants = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()]
    used = nodes if depthwise else [nodes[0], *nodes[2:]]
    graph = helper.make_graph(used, "net", values, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    qgraph, image = quantised(model, silu_as_hardswish=True)
    assert {n.device for n in qgraph.graph.nodes} == {"NPU"}
    found, expected = execute(build_fix_form(qgraph), image), IntegerExecutor(qgraph).run({"x": image})["y"]
    steps = np.abs(found["y_fix"] * 2.0 ** qgraph.quant["y"].fix_point - expected)
    assert 0 < steps.max() <= 3 and steps.mean() < 1


def test_a_node_beyond_the_limits_is_on_the_cpu_with_its_reason(tmp_path: Path) -> None:
    qgraph, _ = quantised(network(groups=2))
    on_cpu = {n.outputs[0]: n.reason for n in qgraph.graph.nodes if n.device == "CPU"}
    wanted = "DPUCZDX8G_ISA1_B4096: convolution in 2 groups, allowed 1 or as many as channels"
    assert wanted in on_cpu.values()
    write_fix_form(qgraph, tmp_path / "net.xmodel")
    kinds = [op.type for op in read_xmodel(tmp_path / "net.xmodel").ops]
    assert "onnx::Conv" in kinds and kinds.count("transpose") >= 2  # there and back


@pytest.mark.data
@pytest.mark.parametrize(
    ("model", "target", "on_cpu", "partitions"),
    [
        ("yolo_fastest_1.1", "DPUCZDX8G", 0, 1),  # LeakyReLU behind every depthwise convolution, SPP
        ("yolo_fastest_1.1", "DPUCVDX8G", 0, 1),
        ("fastestdet", "DPUCZDX8G", 5, 2),  # shuffles inside; the head in float
        ("yolox_nano_kazuhito", "DPUCZDX8G", 14, 2),  # Focus, SiLU as HardSwish; the head in float
    ],
)
def test_real_networks_stay_whole(models: Path, model: str, target: str, on_cpu: int, partitions: int) -> None:
    """A network in pieces is what users of DPUs complain about: how many nodes and pieces the limits leave."""
    imported = import_onnx(models / f"{model}.onnx").graph
    imported.fixed_tail = not ends_in_head(imported, None)
    graph, _ = adapt.adapted(fuse(fold(imported)), True)
    dpu = limits.load(f"dpu:{target}")
    graph = partition(adapt.separated(graph, dpu), limit=dpu.reason)
    assert sum(n.device == "CPU" for n in graph.nodes) == on_cpu
    assert len(graph.partitions) == partitions
    assert not [n.reason for n in graph.nodes if n.reason.startswith(dpu.name)]


def test_leaky_relu_becomes_26_256ths_and_its_loss_is_measured() -> None:
    graph = fuse(fold(import_onnx(network()).graph))
    after, changed = adapt.adapted(graph, False)
    assert len(changed) == 2
    assert [n.activation.alpha for n in after.nodes if n.activation.kind == "LeakyRelu"] == [26 / 256] * 2
    assert [n.activation.alpha for n in graph.nodes if n.activation.kind == "LeakyRelu"] == [pytest.approx(0.1)] * 2
    image = np.random.default_rng(0).normal(0, 1, (1, 3, 16, 12)).astype(np.float32)
    first, second = (GraphExecutor(g, ["y"]).run({"x": image})["y"].astype(np.float64) for g in (graph, after))
    expected = np.linalg.norm(first - second) / np.linalg.norm(first)
    assert 0 < expected < 0.01
    assert adapt.measured_loss(graph, after, [{"x": image}]) == {"y": pytest.approx(expected, rel=1e-6)}
