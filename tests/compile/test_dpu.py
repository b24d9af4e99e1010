"""The DPU flavour: the fix form, run by XIR's documented float operators, gives our integers bit by bit; limits with their reasons."""

from __future__ import annotations

import json
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
from npuforge.compile.ir.errors import InputError, UsageError
from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
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


# ---- limits
def one_node(
    op: str, x: tuple[int, ...], y: tuple[int, ...], activation: Activation, **attrs: Any
) -> tuple[Node, Graph]:
    node = Node("n", op, ["x"], ["y"], attrs, activation)
    return node, Graph("g", [node], {"x": TensorInfo("x", x), "y": TensorInfo("y", y)}, {}, ["x"], ["y"])


LINEAR = Activation()
MAP = (1, 16, 40, 40)


@pytest.mark.parametrize(
    ("op", "x", "activation", "attrs", "words"),
    [
        ("Conv", MAP, LINEAR, {"kernel_shape": [17, 3]}, "kernel 17x3"),
        ("Conv", MAP, LINEAR, {"kernel_shape": [16, 16]}, ""),
        ("Conv", MAP, LINEAR, {"kernel_shape": [3, 3], "strides": [1, 9]}, "stride 1x9"),
        ("Conv", MAP, LINEAR, {"kernel_shape": [3, 3], "pads": [0, 3, 0, 0]}, "pads [0, 3, 0, 0]"),
        ("Conv", MAP, LINEAR, {"kernel_shape": [3, 3], "pads": [2, 2, 2, 2]}, ""),
        ("Conv", (1, 4096, 9, 9), LINEAR, {"kernel_shape": [1, 1], "dilations": [2, 2]}, "8192, allowed 4096"),
        # 16 x 16 taps of 9 blocks of 16 channels are 2304 entries of a bank of 2048; 8 blocks fill it
        ("Conv", (1, 144, 40, 40), LINEAR, {"kernel_shape": [16, 16]}, "2304 words in a memory of 2048"),
        ("Conv", (1, 128, 40, 40), LINEAR, {"kernel_shape": [16, 16]}, ""),
        ("Conv", MAP, Activation("Silu"), {"kernel_shape": [1, 1]}, "--silu hardswish"),
        ("Conv", MAP, Activation("PRelu"), {"kernel_shape": [1, 1]}, "conv2d with PRelu"),
        ("Conv", MAP, Activation("Clip", low=0.0, high=6.0), {"kernel_shape": [1, 1]}, ""),
        ("Conv", MAP, Activation("Clip", low=0.0, high=1.0), {"kernel_shape": [1, 1]}, "conv2d with Clip"),
        ("Conv", MAP, Activation("LeakyRelu"), {"kernel_shape": [1, 1], "group": 16}, "depthwise-conv2d with Leaky"),
        ("MaxPool", MAP, LINEAR, {"kernel_shape": [3, 3], "dilations": [2, 2]}, "dilated pooling"),
        ("AveragePool", MAP, LINEAR, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, "fewer taps"),
        ("Conv", MAP, LINEAR, {"kernel_shape": [31, 33], "group": 16, "pads": [15, 15, 30, 32]}, ""),
        ("Conv", MAP, LINEAR, {"kernel_shape": [31, 33], "group": 16, "pads": [16, 0, 0, 0]}, "pads [16, 0, 0, 0]"),
        ("ConvTranspose", MAP, LINEAR, {"kernel_shape": [2, 2], "strides": [4, 4]}, "kernel/stride 0x0"),
        ("ConvTranspose", MAP, LINEAR, {"kernel_shape": [33, 2], "strides": [2, 2]}, "kernel/stride 17x1"),
        ("MaxPool", MAP, LINEAR, {"kernel_shape": [257, 1]}, "kernel 257x1 (height x width), allowed 1-256"),
        ("Mul", MAP, LINEAR, {}, ""),
        ("Mul", MAP, Activation("LeakyRelu"), {}, "mul with LeakyRelu, allowed none, Relu"),
        ("Sub", MAP, LINEAR, {}, "no operator Sub"),
        ("ChannelGather", MAP, LINEAR, {"indices": [0, 2, -1]}, ""),
        ("ChannelGather", (1, 5000, 4, 4), LINEAR, {"indices": [1, 0]}, "5000 input channels, allowed 4096"),
        ("SpaceToDepth", MAP, LINEAR, {"blocksize": 2}, ""),
        ("SpaceToDepth", MAP, LINEAR, {"blocksize": 9}, "stride 9x9"),
        ("Affine", MAP, Activation("LeakyRelu"), {"scale": [1.0] * 16, "bias": [0.0] * 16}, ""),
        ("Affine", MAP, Activation("LeakyRelu"), {"scale": [2.0] * 16, "bias": [0.0] * 16}, "no operator Affine"),
        ("Resize", (1, 16, 20, 20), LINEAR, {"mode": "linear"}, ""),
        ("Resize", (1, 16, 20, 10), LINEAR, {"mode": "linear"}, "a resize other"),
        ("Resize", (1, 16, 5, 5), LINEAR, {"mode": "linear"}, "a resize other"),
        ("Resize", (1, 16, 20, 20), LINEAR, {"mode": "cubic"}, "a resize other"),
    ],
)
def test_limits(op: str, x: tuple[int, ...], activation: Activation, attrs: dict[str, Any], words: str) -> None:
    reason = TARGET.reason(*one_node(op, x, MAP, activation, **attrs))
    assert words in reason and bool(reason) == bool(words), reason
    assert not reason or reason.startswith("DPUCZDX8G_ISA1_B4096: ")


def test_output_channels_by_the_size_of_the_dpu() -> None:
    node, graph = one_node("Conv", MAP, (1, 2049, 40, 40), LINEAR, kernel_shape=[1, 1])
    assert not TARGET.reason(node, graph)
    small = limits.load("dpu:DPUCZDX8G_ISA1_B1024")
    assert small.reason(node, graph) == "DPUCZDX8G_ISA1_B1024: 2049 output channels, allowed 2048"


def test_unknown_target() -> None:
    wanted = "--target dpu:B9: no such target; expected npuforge, ascend:SOC or one of dpu:DPUCAHX8H, dpu:DPUCAHX8L,"
    with pytest.raises(UsageError, match=wanted):
        limits.load("dpu:B9")


@pytest.mark.parametrize(
    ("target", "op", "x", "attrs", "words"),
    [
        (
            "DPUCAHX8H",
            "Conv",
            MAP,
            {"kernel_shape": [4, 4], "group": 16},
            "kernel 4x4 (height x width), allowed 1,2,3,5",
        ),
        (
            "DPUCAHX8H",
            "Conv",
            MAP,
            {"kernel_shape": [2, 2], "strides": [3, 3], "group": 16},
            "stride 3x3 beyond the kernel",
        ),
        ("DPUCAHX8H", "AveragePool", MAP, {"kernel_shape": [2, 3]}, "kernel 2x3 (height x width), allowed square"),
        ("DPUCAHX8H", "MaxPool", MAP, {"kernel_shape": [9, 9]}, "kernel 9x9 (height x width), allowed 1-8"),
        ("DPUCAHX8H", "Mul", MAP, {}, "no operator mul"),
        ("DPUCAHX8H_ISA2", "Conv", MAP, {"kernel_shape": [3, 3], "group": 16}, "no operator depthwise-conv2d"),
        ("DPUCVDX8G", "Conv", MAP, {"kernel_shape": [9, 9]}, "covers 81 taps, allowed 64"),
        ("DPUCVDX8G", "Conv", (1, 2049, 9, 9), {"kernel_shape": [6, 6]}, "covers 72 taps, allowed 64"),
        ("DPUCVDX8G", "Conv", MAP, {"kernel_shape": [8, 8]}, ""),
        # 64 taps x 64 blocks x 4 passes over 16 banks are 16384 of 8192 words; with 32 outputs in parallel 2 passes, 8192
        ("DPUCVDX8G_ISA3_C64B1", "Conv", (1, 1024, 9, 9), {"kernel_shape": [8, 8]}, "16384 words in a memory of 8192"),
        ("DPUCVDX8G_ISA3_C32B1", "Conv", (1, 1024, 9, 9), {"kernel_shape": [8, 8]}, ""),
        ("DPUCV2DX8G", "Conv", MAP, {"kernel_shape": [6, 9]}, "covers 54 taps, allowed 53"),
        ("DPUCAHX8L", "MaxPool", MAP, {"kernel_shape": [5, 7]}, ""),
        ("DPUCAHX8L", "MaxPool", MAP, {"kernel_shape": [5, 6]}, "kernel 5x6 (height x width), allowed 2,3,5,7,8"),
        ("DPUCAHX8L_ISA0_SP", "MaxPool", MAP, {"kernel_shape": [5, 6]}, ""),
        ("DPUCAHX8L_ISA0_SP", "Conv", MAP, {"kernel_shape": [5, 5], "group": 16}, ""),
        ("DPUCAHX8L", "Conv", MAP, {"kernel_shape": [5, 5], "group": 16}, "kernel 5x5 (height x width), allowed 3"),
        ("DPUCAHX8L", "Mul", MAP, {}, "no operator mul"),
        ("DPUCAHX8L", "Conv", (1, 512, 16, 16), {"kernel_shape": [16, 16]}, ""),  # 256 taps of 16 blocks of 32
        ("DPUCAHX8L", "Conv", (1, 513, 16, 16), {"kernel_shape": [16, 16]}, "4352 words in a memory of 4096"),
        ("DPUCAHX8L", "Resize", (1, 16, 20, 20), {"mode": "linear"}, "a linear resize, which needs depthwise"),
        ("DPUCAHX8H_ISA2", "Resize", (1, 16, 20, 20), {"mode": "linear"}, "a linear resize, which needs depthwise"),
        ("DPUCAHX8H", "Resize", (1, 16, 20, 20), {"mode": "linear"}, ""),
        ("DPUCVDX8H", "AveragePool", (1, 16, 128, 128), {"kernel_shape": [128, 128]}, ""),
        ("DPUCVDX8H", "AveragePool", MAP, {"kernel_shape": [3, 2]}, "allowed square ones only"),
        ("DPUCVDX8H_ISA1_F2W4_6PE_aieDWC", "MaxPool", MAP, {"kernel_shape": [9, 9]}, "kernel 9x9"),
        ("DPUCVDX8H_ISA1_F2W2_8PE", "MaxPool", MAP, {"kernel_shape": [4, 4]}, "allowed 1-3,7"),
        ("DPUCVDX8H", "Mul", MAP, {}, ""),
        ("DPUCVDX8H_ISA1_F2W4_6PE_aieDWC", "Mul", MAP, {}, "no operator mul"),
        ("DPUCVDX8H_ISA1_F2W4_6PE_aieMISC", "Conv", MAP, {"kernel_shape": [3, 3], "group": 16}, "no operator depthw"),
        ("DPUCVDX8H", "Conv", (1, 128, 16, 16), {"kernel_shape": [16, 16]}, ""),  # 256 taps of 2 blocks of 64
        ("DPUCVDX8H", "Conv", (1, 129, 16, 16), {"kernel_shape": [16, 16]}, "768 words in a memory of 512"),
        (
            "DPUCVDX8H_ISA1_F2W2_8PE",
            "Conv",
            (1, 65, 16, 16),
            {"kernel_shape": [16, 16]},
            "512 words in a memory of 256",
        ),
    ],
)
def test_limits_of_other_families(target: str, op: str, x: tuple[int, ...], attrs: dict[str, Any], words: str) -> None:
    reason = limits.load(f"dpu:{target}").reason(*one_node(op, x, MAP, LINEAR, **attrs))
    assert words in reason and bool(reason) == bool(words), reason


def test_a_boards_arch_file(tmp_path: Path) -> None:
    """KV260's fingerprint lacks only bit 30 (argmax while saving) of B4096's; the others are made by hand."""
    file = tmp_path / "arch.json"

    def of(**arch: str) -> limits.DpuTarget:
        file.write_text(json.dumps(arch))
        return limits.load(f"dpu:{file}")

    assert of(target="DPUCZDX8G_ISA1_B512") == limits.load("dpu:DPUCZDX8G_ISA1_B512")
    assert of(fingerprint="0x101000056010405").name == "DPUCZDX8G_ISA1_B2304"
    board = of(fingerprint="0x101000016010407")
    assert board.name == "DPUCZDX8G_ISA1_B4096_0101000016010407" and board.arch == {"fingerprint": "0x0101000016010407"}
    assert (board.channel_parallel, board.operators) == (16, TARGET.operators)
    other = of(fingerprint="0x101000066010402").operators  # bits 29 and 30 set, 28 not
    assert "LeakyRelu" in other["depthwise-conv2d"]["activations"] and "LeakyRelu" not in other["conv2d"]["activations"]
    for wrong, words in (
        ({"fingerprint": "0x201000056010407"}, "no DPU here has a fingerprint like 0x0201000056010407"),
        ({"fingerprint": "B4096"}, "expected"),
        ({"target": "B4096"}, "target 'B4096' is not known"),
        ({}, "target None is not known"),
    ):
        with pytest.raises(InputError, match=words):
            of(**wrong)
    with pytest.raises(InputError, match=r"nowhere\.json: cannot be read"):
        limits.load(f"dpu:{tmp_path / 'nowhere.json'}")


def test_every_limit_names_a_source_of_its_file() -> None:
    for file in limits.TARGETS.glob("*.json"):
        family = json.loads(file.read_text())
        assert family["default"] in family["targets"]
        for target in family["targets"].values():
            assert {*target.get("without", []), *target.get("instead", {})} <= set(family["operators"])
        for name, operator in family["operators"].items():
            assert operator["sources"] and set(operator["sources"]) <= set(family["sources"]), (file.name, name)


def test_fingerprints_of_the_vendors_list() -> None:
    """The list that the vendor's inspector prints for an unknown target (Xilinx/Vitis-AI b2b2279, inspector/device_allocator.py); eight of its names."""
    for name, fingerprint in (
        ("DPUCAHX8L_ISA0", 0x30000000000001D),
        ("DPUCAHX8L_ISA0_SP", 0x30000000000101D),
        ("DPUCVDX8H_ISA1_F2W2_8PE", 0x501000000140FEE),
        ("DPUCVDX8H_ISA1_F2W4_4PE", 0x5010000001E082F),
        ("DPUCVDX8H_ISA1_F2W4_6PE_aieDWC", 0x501000000160C2F),
        ("DPUCVDX8H_ISA1_F2W4_6PE_aieMISC", 0x5010000001E082E),
        ("DPUCAHX8H_ISA2_DWC", 0x20200000010002B),
        ("DPUCVDX8G_ISA3_C64B5", 0x603000B56011852),
    ):
        assert limits.load(f"dpu:{name}").fingerprint == fingerprint


def test_fingerprints_are_those_of_compiled_files() -> None:
    """Both of AMD's compiled examples name the target and carry its fingerprint."""
    samples = Path(__file__).resolve().parents[2].parent / "shared" / "xir" / "samples"
    if not samples.is_dir():
        pytest.skip(f"{samples} is not there")
    for file in samples.glob("*.xmodel"):
        for child in read_xmodel(file).by_device("DPU"):
            assert child.get("dpu_fingerprint") == limits.load(child.get("dpu_name")).fingerprint


# ---- activations
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


def test_silu_only_on_request() -> None:
    _, graph = one_node("Conv", MAP, MAP, Activation("Silu"))
    assert adapt.adapted(graph, False)[0].nodes[0].activation.kind == "Silu"
    after, changed = adapt.adapted(graph, True)
    assert after.nodes[0].activation.kind == "HardSwish" and changed == ["n"]
