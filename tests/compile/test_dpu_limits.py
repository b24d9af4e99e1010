"""What a DPU target takes: limits with their reasons, by family and size; a board's arch.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuforge.compile.dpu import adapt, limits
from npuforge.compile.ir.errors import InputError, UsageError
from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.compile.xir.reader import read_xmodel

TARGET = limits.load("dpu:DPUCZDX8G")


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
        (
            "Affine",
            MAP,
            Activation("LeakyRelu"),
            {"scale": [2.0] * 16, "bias": [0.0] * 16},
            "no operator of a factor and a",
        ),
        (
            "Affine",
            MAP,
            Activation("Sigmoid"),
            {"scale": [1.0] * 16, "bias": [0.0] * 16},
            "no operator Sigmoid by itself",
        ),
        (
            "Affine",
            MAP,
            Activation("Clip", low=0.0),
            {"scale": [1.0] * 16, "bias": [0.0] * 16},
            "no operator Relu by itself",
        ),
        ("Affine", MAP, LINEAR, {"scale": [1.0] * 16, "bias": [1.0] * 16}, "BatchNormalization with constants"),
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
        # blocks of pixels to channels are a convolution over blocks in the file
        ("DPUCV2DX8G", "SpaceToDepth", MAP, {"blocksize": 8}, "kernel 8x8 covers 64 taps, allowed 53"),
        ("DPUCV2DX8G", "SpaceToDepth", MAP, {"blocksize": 7}, ""),
        ("DPUCVDX8G", "SpaceToDepth", (1, 2049, 9, 9), {"blocksize": 6}, "covers 72 taps, allowed 64"),
        ("DPUCVDX8G_ISA3_C64B1", "SpaceToDepth", (1, 1024, 9, 9), {"blocksize": 8}, "16384 words in a memory of 8192"),
        ("DPUCVDX8G_ISA3_C32B1", "SpaceToDepth", (1, 1024, 9, 9), {"blocksize": 8}, ""),
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


def test_silu_only_on_request() -> None:
    _, graph = one_node("Conv", MAP, MAP, Activation("Silu"))
    assert adapt.adapted(graph, False)[0].nodes[0].activation.kind == "Silu"
    after, changed = adapt.adapted(graph, True)
    assert after.nodes[0].activation.kind == "HardSwish" and changed == ["n"]
