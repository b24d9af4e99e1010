"""A DPU build that the vendor's compiler completes later, by hand: reported and run as if it had been there; the compiled file of another network is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import CommandLine, save_model, tiny_model
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.xir.builder import integers
from npuforge.compile.xir.model import Attr, XModel, to_message
from npuforge.compile.xir.reader import read_xmodel

BY_HAND = ["vai_c_xir", "-x", "quantised.xmodel", "-a", "arch.json", "-o", ".", "-n", "model"]
ON_DPU = ("run", "dpu", "images", "--device", "dpu")
OF_ANOTHER = Path(__file__).parents[3] / "shared" / "xir" / "samples" / "pt_custom_op.xmodel"


def build(command: CommandLine, folder: str = "dpu", target: str = "dpu:DPUCZDX8G_ISA1_B1024") -> Path:
    """A build without the vendor's compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(command.folder))
        arguments = ("net.onnx", "--calib", "images", "--preprocess", "net.yaml", "-o", folder, "--target", target)
        result = command("compile", *arguments)
    assert result.code == 0 and "vai_c_xir is not on the path" in result.err
    return command.folder / folder


def page_of(command: CommandLine) -> str:
    assert command("report", "dpu", "-o", "page.html").code == 0
    return (command.folder / "page.html").read_text()


def changed(file: Path, **attrs: Attr) -> XModel:
    model = read_xmodel(file)
    model.attrs |= attrs
    file.write_bytes(to_message(model).SerializeToString())
    return model


def test_report_and_run(command: CommandLine, vendor: Path) -> None:
    folder = build(command)
    assert "vai_c_xir is not on the path and was not run" in page_of(command)
    log = subprocess.run(BY_HAND, cwd=folder, check=True, capture_output=True, text=True).stdout
    (folder / "vai_c_xir.log").write_text(log)
    page = page_of(command)
    assert "vai_c_xir: 3 subgraphs, 1 DPU, 1 CPU, fingerprints 0x0101000056010402" in page
    assert "was not run" not in page
    assert command(*ON_DPU).code == 0
    compared = command("compare", "dpu", "images", "--device", "dpu", "--json")
    assert json.loads(compared.out)["device_equality"]["values_differing"] == 0


def test_a_fingerprint_unlike_the_targets_is_said(command: CommandLine, vendor: Path) -> None:
    subprocess.run(BY_HAND, cwd=build(command, target="dpu:DPUCZDX8G_ISA1_B2304"), check=True, capture_output=True)
    assert "they differ in feature code (0x56010402 and 0x56010405)" in page_of(command)


def test_the_compiled_file_of_another_network(command: CommandLine, vendor: Path) -> None:
    """Other weights, the same names and shapes: the MD5 sum of its source tells."""
    folder = build(command)
    save_model(tiny_model(seed=5), command.folder / "net.onnx")
    other = build(command, "other")
    subprocess.run(BY_HAND, cwd=other, check=True, capture_output=True)
    (other / "model.xmodel").rename(folder / "model.xmodel")
    words = ("model.xmodel: not compiled from the quantised.xmodel beside it: it names the MD5 sum", BY_HAND[0])
    command.refused(1, words, *ON_DPU)
    page = page_of(command)
    assert "it names the MD5 sum" in page and "1 DPU" not in page


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("input", "input 'x' has fix point"),
        ("shape", "has shape"),
        ("outputs", "its outputs are elsewhere"),
        ("own", "for npuforge's own NPU"),
    ],
)
def test_without_a_sum_inputs_and_outputs_tell(command: CommandLine, vendor: Path, what: str, words: str) -> None:
    folder = build(command)
    subprocess.run(BY_HAND, cwd=folder, check=True, capture_output=True)
    file = folder / "model.xmodel"
    model = read_xmodel(file)
    del model.attrs["files_md5sum"]
    entry = next(op for op in model.ops if op.type == "data-fix")
    for op in model.ops:
        if what == "input" and op is entry:
            op.tensor.attrs["fix_point"] = Attr("int32", op.tensor.attrs["fix_point"].value + 1)
        elif what == "shape" and op is entry:
            op.tensor.shape[1] += 1
            op.attrs["shape"] = integers(op.tensor.shape)
    file.write_bytes(to_message(model).SerializeToString())
    if what == "outputs":
        changed(file, return_ops=Attr("string_vec", [entry.name] * len(model.attrs["return_ops"].value)))
        words = f"its outputs are {entry.name}"
    elif what == "own":
        file.write_bytes((command.folder / "build" / "model.xmodel").read_bytes())
    command.refused(1, (words, "not compiled from"), *ON_DPU)
    file.write_bytes(b"")
    command.refused(1, ("model.xmodel",), *ON_DPU)


def hard_swish(command: CommandLine) -> None:
    """net.onnx as convolution, HardSwish, convolution: the DPU's HardSwish is not ours."""
    random = np.random.default_rng(8)
    weights = {"v": random.normal(size=(16, 3, 3, 3)) / 5, "w": random.normal(size=(7, 16, 1, 1)) / 4}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], "first", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("HardSwish", ["a"], ["b"], "swish"),
        helper.make_node("Conv", ["b", "w"], ["y"], "second", kernel_shape=[1, 1]),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])]
    values.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    constants = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save_model(model, command.folder / "net.onnx")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho no license; exit 3", "vai_c_xir ended with 3 and gave no model.xmodel: no license"),
        ("#!/bin/sh\necho fine", "vai_c_xir ended with 0 and gave no model.xmodel: fine"),
        ("#!/bin/sh\necho garbage > model.xmodel", "dpu/model.xmodel: "),
        ("#!/bin/sh\ncp quantised.xmodel model.xmodel", "dpu/model.xmodel: has no subgraphs, so it is not compiled"),
        (
            f"#!/bin/sh\ncp {OF_ANOTHER} model.xmodel",
            "dpu/model.xmodel: not compiled from the quantised.xmodel beside it",
        ),
        ("#!/no/such/program", "tools/vai_c_xir) cannot be executed (No such file or directory)"),
    ],
)
def test_a_compiler_that_fails_leaves_the_rest(command: CommandLine, vendor: Path, script: str, words: str) -> None:
    """Its log as well; the build can be completed by hand, also over an earlier one."""
    if str(OF_ANOTHER) in script and not OF_ANOTHER.is_file():
        pytest.skip(f"{OF_ANOTHER} is absent")
    good = (vendor / "vai_c_xir").read_text()
    arguments = (
        "compile",
        "net.onnx",
        "--calib",
        "images",
        "--preprocess",
        "net.yaml",
        "-o",
        "dpu",
        "--target",
        "dpu:DPUCZDX8G_ISA1_B1024",
    )
    assert command(*arguments).code == 0
    (vendor / "vai_c_xir").write_text(f"{script}\n")
    failed, ran = command(*arguments), script.startswith("#!/bin/sh")
    assert failed.code == 1 and words in failed.error_line, failed
    assert ("vai_c_xir.log among them" in failed.error_line) == ran
    assert ".npuforge-" not in failed.error_line and "is not on the path" not in failed.err
    folder = command.folder / "dpu"
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert {p.name for p in folder.iterdir()} == {*listed, "manifest.json", *(["vai_c_xir.log"] if ran else [])}
    recorded = json.loads((folder / "dpu.json").read_text())["compiler"]
    assert recorded["ran"] == ran and words in recorded["failure"]
    assert "quantised.xmodel" in listed and not {"model.xmodel", "vai_c_xir.log"} & listed.keys()
    assert words in page_of(command)
    command.refused(1, ("model.xmodel: no such file", "make it with: vai_c_xir"), *ON_DPU)
    (vendor / "vai_c_xir").write_text(good)
    with (folder / "vai_c_xir.log").open("w") as log:
        subprocess.run(BY_HAND, cwd=folder, check=True, stdout=log)
    assert command(*ON_DPU).code == 0 and "3 subgraphs, 1 DPU" in page_of(command)


@pytest.mark.parametrize("approximated", [False, True])
def test_the_builds_own_sample(command: CommandLine, vendor: Path, approximated: bool) -> None:
    if approximated:
        hard_swish(command)
    folder = build(command)
    subprocess.run(BY_HAND, cwd=folder, check=True, capture_output=True)
    entry = json.loads((folder / "manifest.json").read_text())["sample"]
    assert entry["comparison"] == ("cosine" if approximated else "values") and entry["origin"] == "a.png"
    checked = command("run", "dpu", "--check", "--device", "dpu", "--json")
    assert checked.code == 0, checked
    (found,) = json.loads(checked.out)["outputs"]
    assert found["right"] and found["values"] == 7 * (16 * 16 if approximated else 8 * 8)
    assert found["cosine"] > 0.999 and (found["differing"] > 0 if approximated else found["largest"] < 1e-4)
    file = folder / "model.xmodel"
    model = read_xmodel(file)
    weights = next(op for op in model.ops if op.type == "const" and op.tensor.shape[0] == 7)
    values = np.frombuffer(weights.get("data"), "<f4")
    weights.attrs["data"] = Attr(weights.attrs["data"].kind, np.roll(values, 1).tobytes())
    file.write_bytes(to_message(model).SerializeToString())
    words = ("output 'y' of the sample on dpu: expected what expected.npz of the build holds",)
    command.refused(1, words, "run", "dpu", "--check", "--device", "dpu")


def test_where_no_sample_can_be_compiling_again_is_no_advice(command: CommandLine, vendor: Path) -> None:
    """An output of integers only; the notice at compile and the error of --check say what is the case."""
    nodes = [helper.make_node("ArgMax", ["y"], ["best"], "best", axis=1)]
    model = tiny_model()
    del model.graph.output[:]
    model.graph.node.extend(nodes)
    model.graph.output.append(helper.make_tensor_value_info("best", TensorProto.INT64, None))
    onnx.save(model, command.folder / "net.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(command.folder))
        arguments = ("net.onnx", "--calib", "images", "-o", "dpu", "--target", "dpu:DPUCZDX8G_ISA1_B1024")
        result = command("compile", *arguments)
    assert (
        result.code == 0
        and "no output holds real numbers and has a size that does not depend on the data" in result.err
    )
    page = json.loads((command.folder / "dpu" / "manifest.json").read_text())
    assert page["sample"] == {} and not {"sample.npz", "expected.npz"} & page["files"].keys()
    own = command.folder / "build" / "manifest.json"
    own.write_text(json.dumps(json.loads(own.read_text()) | {"sample": {}}))
    found = command("run", "build", "--check")
    assert found.code == 1 and "compile again" not in found.error_line and "npuforge compare" in found.error_line
