"""Custom nodes that are malformed, or stand in a branch: every target refuses them by name before anything is made. A tool that fails leaves what was made."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ascend import flow
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import ModelError, NpuforgeError, UnsupportedError, UsageError
from npuforge.compile.onnxruntime import export as onnxruntime_export
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.tensorrt import plugin
from npuforge.hw_kernels import arch

TARGETS: dict[str, Callable[[Options], Any]] = {
    "ascend": lambda options: flow.compile_for_ascend(options, "Ascend310P3"),
    "onnxruntime": onnxruntime_export.export,
    "tensorrt": plugin.export,
}
MODULES: dict[str, Any] = {"onnxruntime": onnxruntime_export, "tensorrt": plugin}


def options(folder: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray] | None = None) -> Options:
    value = helper.make_tensor_value_info
    initializers = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    inputs, outputs = [value("x", TensorProto.FLOAT, [1, 4, 3, 3])], [value("y", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "net.onnx")
    return Options(folder / "net.onnx", arch.load("nf-b1024"), folder / "out")


def own(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, "mine", domain="npuforge", **attributes)


@pytest.mark.parametrize("target", [*TARGETS, "import"])
@pytest.mark.parametrize(
    ("node", "words"),
    [
        (own("Silu", ["x"], ["y"], beta=1.0), "beta"),
        (own("Silu", ["x", "x"], ["y"]), "has 2 inputs, expected 1"),
        (own("Silu", [""], ["y"]), "input 0 is empty, expected a tensor"),
        (own("RotatedIou", ["x", ""], ["y"]), "input 1 is empty, expected a tensor"),
        (own("LeakyReluMask", ["x"], ["y", "m"], alpha="x"), "attribute alpha is 'x', expected a number as 0.1"),
        (own("LeakyReluMask", ["x"], ["y", "m"], alpha=[0.1, 0.2]), "attribute alpha is .*, expected a number"),
        (own("AngleEncode", ["x"], ["y", "z"], axis=1), "has 2 outputs, expected 1 at most"),
        (own("UnalignNhwc16", ["x"], ["y"], channels=40), "UnalignNhwc16 to 40 channels needs"),
    ],
)
def test_malformed_nodes_are_refused_by_name(target: str, node: onnx.NodeProto, words: str, tmp_path: Path) -> None:
    given = options(tmp_path, [node])
    with pytest.raises(ModelError, match=f"node '?mine'?.*{words}"):
        import_onnx(given.model) if target == "import" else TARGETS[target](given)
    assert not given.output.exists()


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_of_dynamic_shape(target: str, tmp_path: Path) -> None:
    """Stay so for libraries that take any; CANN's command line needs sizes."""
    given = options(tmp_path, [own("LeakyReluMask", ["x"], ["y", "m"]), own("AngleEncode", ["m"], ["z"])])
    model = onnx.load(given.model)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, given.model)
    if target == "ascend":
        with pytest.raises(UsageError, match="input 'x' has the dynamic shape batchx4x3x3; give a static one"):
            TARGETS[target](given)
        return
    assert len(TARGETS[target](given).operators) == 2
    shape = onnx.load(tmp_path / "out" / "model.onnx").graph.input[0].type.tensor_type.shape
    assert [d.dim_param or d.dim_value for d in shape.dim] == ["batch", 4, 3, 3]


def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)])


def conditional(condition: str) -> list[onnx.NodeProto]:
    branches = {
        "then_branch": branch("a", own("Silu", ["x"], ["a"])),
        "else_branch": branch("b", helper.make_node("Relu", ["x"], ["b"])),
    }
    return [helper.make_node("If", [condition], ["y"], "choose", **branches)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_custom_node_in_a_branch(target: str, tmp_path: Path) -> None:
    """Refused where the data decide; written out where a constant does."""
    total = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
    ]
    decided = options(tmp_path, total + conditional("positive"), {"zero": np.array(0, np.float32)})
    with pytest.raises(
        UnsupportedError, match=r"node 'choose' \(If\): the custom operator npuforge::Silu stands in its"
    ):
        TARGETS[target](decided)
    constant = options(tmp_path, conditional("yes"), {"yes": np.array(True)})
    made = TARGETS[target](constant)
    assert any("Silu" in name for name in made.operators)
    kept = onnx.load(tmp_path / "out" / "model.onnx").graph.node
    assert [n.op_type for n in kept if n.domain == "npuforge"] == ["Silu"]


def _only_tool(folder: Path, monkeypatch: pytest.MonkeyPatch, tool: str, text: str) -> None:
    """A compiler of this text in front of the path, and headers/ with ONNX Runtime's header."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / tool).write_text(text)
    (tools / tool).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}:/bin:/usr/bin")
    (folder / "headers").mkdir()
    (folder / "headers" / "onnxruntime_c_api.h").touch()


@pytest.mark.parametrize(
    ("target", "tool", "kept"), [("onnxruntime", "c++", "npuforge_ops.cpp"), ("tensorrt", "nvcc", "build.sh")]
)
def test_sources_stay_where_a_compiler_fails(
    target: str, tool: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only_tool(tmp_path, monkeypatch, tool, "#!/bin/sh\necho 'fatal error: no header'\nexit 2\n")
    given = options(tmp_path, [own("Silu", ["x"], ["y"])])
    arguments = [given, tmp_path / "headers"] if target == "onnxruntime" else [given]
    with pytest.raises(NpuforgeError, match=r"ended with 2: fatal error: no header; the sources .*are in .*out"):
        MODULES[target].export(*arguments)
    assert (tmp_path / "out" / kept).is_file()
    report = json.loads((tmp_path / "out" / "export.json").read_text())
    assert not report["compiled"] and "ended with 2" in report["failure"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("code", "word"), [(TensorProto.FLOAT16, "float16"), (TensorProto.DOUBLE, "float64")])
@pytest.mark.parametrize("kind", ["Silu", "AngleEncode"])
def test_element_types_that_no_kernel_reads(target: str, code: int, word: str, kind: str, tmp_path: Path) -> None:
    """An element-wise operator and one with a parallel.hpp: their kernels read float32."""
    nodes = [helper.make_node("Cast", ["x"], ["c"], "cast", to=code), own(kind, ["c"], ["y"])]
    given = options(tmp_path, nodes)
    model = onnx.load(given.model)
    model.graph.output[0].type.tensor_type.elem_type = code
    onnx.save(model, given.model)
    if (target, kind, word) == ("ascend", "Silu", "float16"):  # its TBE source reads that
        assert "input0.dtype=float16,float" in (TARGETS[target](given), given.output / "silu.ini")[1].read_text()
        return
    with pytest.raises(UnsupportedError, match=f"'mine'.*{word}"):
        TARGETS[target](given)
    assert not given.output.exists()


@pytest.mark.parametrize(("target", "tool"), [("onnxruntime", "c++"), ("tensorrt", "nvcc"), ("ascend", "atc")])
def test_sources_stay_where_a_compiler_cannot_be_executed(
    target: str, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only_tool(tmp_path, monkeypatch, tool, "#!/no/such/program\n")
    given = options(tmp_path, [own("AngleEncode", ["x"], ["y"])])
    with pytest.raises(
        NpuforgeError,
        match=rf"{re.escape(tool)} \(.*\) cannot be executed .* off the path .*; the sources are in .*out",
    ):
        onnxruntime_export.export(given, tmp_path / "headers") if target == "onnxruntime" else TARGETS[target](given)
    assert (tmp_path / "out" / "model.onnx").is_file() and not list((tmp_path / "out").glob("*.log"))
    report = json.loads((tmp_path / "out" / ("ascend.json" if target == "ascend" else "export.json")).read_text())
    assert not report.get("ran", report.get("compiled")) and "cannot be executed" in report["failure"]
