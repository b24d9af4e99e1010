"""Activations that a DPU has not: the operator stays on the DPU, the activation alone goes to the CPU. Right values are ONNX Runtime's, within what 8 bits leave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from command_line import CommandLine, make_model, node

from npuforge.board_runtime.devices import open_session
from npuforge.compile.xir.reader import read_xmodel

SHAPE = (1, 3, 12, 20)
COMPILE = ("compile", "net.onnx", "--calib", "samples", "-o", "dpu", "--target")


def network() -> onnx.ModelProto:
    """Five convolutions, one of them depthwise and one in 2 groups, and a sum: SiLU, PRelu, Sigmoid, Abs, SiLU of the groups, SiLU of the sum."""
    random = np.random.default_rng(12)
    constants = {"slopes": np.linspace(0.1, 0.4, 8).reshape(8, 1, 1)}

    def conv(name: str, source: str, inputs: int = 8, group: int = 1) -> onnx.NodeProto:
        shape = (8, inputs // group, 3, 3)
        constants[f"{name}_w"] = random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        return node("Conv", [source, f"{name}_w"], [name], name, kernel_shape=[3, 3], pads=[1] * 4, group=group)

    def silu(source: str, target: str) -> list[onnx.NodeProto]:
        gate = f"{target}_gate"
        return [node("Sigmoid", [source], [gate], gate), node("Mul", [source, gate], [target], target)]

    nodes = [
        conv("c1", "x", 3),
        *silu("c1", "a1"),
        conv("c2", "a1"),
        node("PRelu", ["c2", "slopes"], ["a2"], "a2"),
        conv("c3", "a2", group=8),
        node("Sigmoid", ["c3"], ["a3"], "a3"),
        conv("c4", "a3"),
        node("Abs", ["c4"], ["a4"], "a4"),
        conv("c5", "a4", group=2),
        *silu("c5", "a5"),
        node("Add", ["a5", "a2"], ["sum"], "sum"),
        *silu("sum", "a6"),
        conv("y", "a6"),
    ]
    values = {name: value.astype(np.float32) for name, value in constants.items()}
    return make_model(nodes, values, SHAPE)


@pytest.fixture
def given(command: CommandLine, vendor: Path) -> onnx.ModelProto:
    """The network in the folder, with four samples."""
    model, random = network(), np.random.default_rng(4)
    onnx.save(model, command.folder / "net.onnx")
    (command.folder / "samples").mkdir()
    for number in range(4):
        np.savez(command.folder / "samples" / f"{number}.npz", x=random.normal(size=SHAPE).astype(np.float32))
    return model


def test_the_operator_stays_on_the_dpu(command: CommandLine, given: onnx.ModelProto) -> None:
    compiled = command(*COMPILE, "dpu:DPUCZDX8G")
    assert compiled.code == 0, compiled
    kinds = [op.type for op in read_xmodel(command.folder / "dpu" / "quantised.xmodel").ops]
    assert (kinds.count("conv2d"), kinds.count("depthwise-conv2d"), kinds.count("add")) == (4, 1, 1)
    assert kinds.count("onnx::Conv") == 1  # in groups: whole on the CPU, with its SiLU
    assert (kinds.count("sigmoid"), kinds.count("mul"), kinds.count("leaky-relu")) == (3, 2, 1)  # XIR's own on the CPU
    assert [kind for kind in kinds if "::" in kind] == ["onnx::Affine", "onnx::Conv"]  # PRelu, and the groups
    on_cpu = json.loads((command.folder / "dpu" / "dpu.json").read_text())["cpu"]
    assert set(on_cpu) == {"c1/Silu", "c2/PRelu", "c3/Sigmoid", "c4/leaky-relu", "c5", "sum/Silu"}
    assert "'c1/Silu', 'sum/Silu' are left to the CPU" in compiled.err
    assert "no operator Silu by itself; --silu hardswish replaces it" in compiled.err

    x = np.random.default_rng(9).normal(size=SHAPE).astype(np.float32)
    expected = onnxruntime.InferenceSession(given.SerializeToString()).run(["y"], {"x": x})[0].ravel()
    found = open_session(command.folder / "dpu", "dpu").run({"x": x})["y"].ravel()
    assert expected @ found / np.linalg.norm(expected) / np.linalg.norm(found) > 0.995
    checked = command("run", "dpu", "--check", "--device", "dpu")
    assert checked.code == 0, checked


def test_hard_swish_on_request(command: CommandLine, given: onnx.ModelProto) -> None:
    """Where the DPU computes it; the convolution in groups keeps its SiLU on the CPU."""
    assert command(*COMPILE, "dpu:DPUCZDX8G", "--silu", "hardswish").code == 0
    report = json.loads((command.folder / "dpu" / "dpu.json").read_text())
    assert set(report["cpu"]) == {"c2/PRelu", "c3/Sigmoid", "c4/leaky-relu", "c5"}
    assert report["changed"] == ["c1", "sum"]


def test_a_dpu_without_hard_swish(command: CommandLine, given: onnx.ModelProto) -> None:
    """Nothing is replaced, and nothing promised."""
    compiled = command(*COMPILE, "dpu:DPUCAHX8H", "--silu", "hardswish")
    assert compiled.code == 0, compiled
    report = json.loads((command.folder / "dpu" / "dpu.json").read_text())
    assert report["changed"] == [] and "--silu hardswish" not in compiled.err
    assert command("run", "dpu", "--check", "--device", "dpu").code == 0
