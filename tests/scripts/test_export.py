"""`npuforge export --to tensorrt`."""

import json
from pathlib import Path

import onnx
import pytest
from command_line import CommandLine
from onnx import TensorProto, helper


def save(folder: Path) -> None:
    nodes = [helper.make_node("CustomGELU", ["x"], ["y"], "gelu", domain="com.example")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, "c"]) for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "custom.onnx")


def test_export(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    save(command.folder)
    monkeypatch.setenv("PATH", str(command.folder))
    result = command("export", "custom.onnx", "--to", "tensorrt", "--shape", "x=1x7", "-o", "out", "--json")
    assert result.code == 0, result
    assert json.loads(result.out)["operators"] == ["CustomGELU"]
    assert "were not compiled: nvcc is not on the path" in result.err
    assert (command.folder / "out" / "npuforge_kernels.cu").read_text().count("kernel_CustomGELU") == 2


def test_refused(command: CommandLine) -> None:
    command.refused(2, ("--to openvino", "tensorrt"), "export", "net.onnx", "--to", "openvino", "-o", "out")
    command.refused(1, ("missing.onnx",), "export", "missing.onnx", "--to", "tensorrt", "-o", "out")
