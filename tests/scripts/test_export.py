"""`npuforge export --to onnxruntime|tensorrt`."""

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


def test_export_to_onnxruntime(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    save(command.folder)
    monkeypatch.setattr("npuforge.compile.onnxruntime.export.find_headers", lambda given: None)
    result = command("export", "custom.onnx", "--to", "onnxruntime", "--shape", "x=1x7", "-o", "out")
    assert result.code == 0, result
    assert "operators: com.example::CustomGELU; library compiled: no" in result.out
    assert "libnpuforge_ops.so was not built: ONNX Runtime's onnxruntime_c_api.h was not found" in result.err
    assert '"CustomGELU"' in (command.folder / "out" / "npuforge_ops.cpp").read_text()


def test_refused(command: CommandLine) -> None:
    command.refused(
        2, ("--to openvino", "onnxruntime, tensorrt"), "export", "net.onnx", "--to", "openvino", "-o", "out"
    )
    export = ("export", "net.onnx", "-o", "out", "--onnxruntime-include", ".", "--to")
    command.refused(2, ("onnxruntime_c_api.h expected in it",), *export, "onnxruntime")
    command.refused(2, ("--onnxruntime-include belongs to --to onnxruntime",), *export, "tensorrt")
    command.refused(1, ("missing.onnx",), "export", "missing.onnx", "--to", "tensorrt", "-o", "out")
    export = ("export", "net.onnx", "-o", "out.tar", "--to")
    for runtime in ("onnxruntime", "tensorrt"):
        command.refused(2, ("-o out.tar: a tar file holds a build", f"a folder with --to {runtime}"), *export, runtime)
