"""A build takes the place of the build that was in its folder: nothing of that one stays beside the new manifest, and nothing else is touched."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from command_line import CommandLine
from onnx import TensorProto, helper

CALIBRATED = ("--calib", "images", "--preprocess", "net.yaml", "-o", "build")
DPU = ("compile", "net.onnx", *CALIBRATED, "--target", "dpu:DPUCZDX8G_ISA1_B1024")
USERS = {"notes.txt": "mine", "custom.py": "mine", "model.om.bak": "mine", "other.xmodel": "mine"}


@pytest.fixture
def build(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder build/ with a build for our NPU and files of the user's; no foreign tool on the path."""
    monkeypatch.setenv("PATH", str(command.folder))
    monkeypatch.setattr("npuforge.compile.onnxruntime.export.find_headers", lambda given: None)
    for name, text in USERS.items():
        (command.folder / "build" / name).write_text(text)
    return command.folder / "build"


def check_users(build: Path) -> None:
    assert {name: (build / name).read_text() for name in USERS} == USERS


def save(file: Path, operator: str) -> None:
    """A network of one custom operator."""
    nodes = [
        helper.make_node(operator, ["x"], ["y"], "custom", domain="com.example" if operator[0] == "C" else "npuforge")
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 8, 8]) for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(nodes[0].domain, 1)]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "net", values[:1], values[1:]), opset_imports=opsets, ir_version=9),
        file,
    )


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_a_dpu_build_over_one_for_our_npu_and_back(command: CommandLine, build: Path) -> None:
    ours = names(build)
    assert command(*DPU).code == 0
    listed = json.loads((build / "manifest.json").read_text())["files"]
    assert names(build) == {*listed, "manifest.json", *USERS} and not {"model.bin", "model.xmodel"} & names(build)
    for made in ("model.xmodel", "vai_c_xir.log", "meta.json", "md5sum.txt"):  # by hand, as the notice says: not listed
        (build / made).write_text("of the first network")
    assert command(*DPU).code == 0
    assert names(build) == {*listed, "manifest.json", *USERS}
    (build / "model.xmodel").write_text("of the second network")
    assert command("compile", "net.onnx", *CALIBRATED).code == 0
    assert names(build) == ours
    assert command("run", "build", "images").code == 0
    check_users(build)


def test_exports_and_cann_files(command: CommandLine, build: Path) -> None:
    save(command.folder / "gelu.onnx", "CustomGELU")
    save(command.folder / "sigmoid.onnx", "ClipSigmoid")
    onnxruntime, compiled = ("--to", "onnxruntime", "-o", "build"), names(build)
    assert "manifest.json" in compiled
    assert command("export", "gelu.onnx", *onnxruntime).code == 0
    assert names(build) == {"model.onnx", "npuforge_ops.cpp", "CMakeLists.txt", "export.json"} | compiled
    (build / "libnpuforge_ops.so").write_text("of the first network")
    assert command("export", "sigmoid.onnx", *onnxruntime).code == 0
    assert "libnpuforge_ops.so" not in names(build)
    first, second = {}, {}
    for file, made in (("gelu", first), ("sigmoid", second)):
        assert command("compile", f"{file}.onnx", "--target", "ascend", "-o", "build").code == 0
        made |= dict.fromkeys(json.loads((build / "ascend.json").read_text())["files"])
        assert set(made) <= names(build) and "model.om" not in names(build)
        (build / "model.om").write_text(f"of {file}")
    assert {"custom_gelu.py", "custom_gelu.ini"} <= first.keys() and not [n for n in second if "gelu" in n]
    assert not first.keys() - second.keys() & names(build) - {"model.onnx"}
    assert command("export", "gelu.onnx", "--to", "tensorrt", "-o", "build").code == 0
    assert "npuforge_ops.cpp" not in names(build)  # of the export before
    assert compiled <= names(build)  # a build of another kind
    assert not {"ascend.json", "atc.sh", "model.om"} & names(build)  # it had a model.onnx of its own
    check_users(build)


def test_what_the_command_reads_stays(command: CommandLine, build: Path) -> None:
    """The network of an export, compiled in its folder."""
    save(command.folder / "gelu.onnx", "CustomGELU")
    assert command("export", "gelu.onnx", "--to", "tensorrt", "-o", "build").code == 0
    before = (build / "model.onnx").read_bytes()
    assert (
        command("compile", "build/model.onnx", "--calib", "images", "-o", "build").code != 0
    )  # no image network: refused, nothing changed
    assert (build / "export.json").is_file()
    assert command("compile", "net.onnx", *CALIBRATED).code == 0
    command.refused(
        1,
        ("would replace a file that this command reads",),
        "export",
        "build/model.onnx",
        "--to",
        "tensorrt",
        "-o",
        "build",
    )
    assert (build / "model.onnx").read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "an app", "files": ["notes.txt"]}',
        '["notes.txt"]',
        "{",
        '{"tool": "npuforge 0.1.0", "files": {"../net.yaml": 1, "images": 2}}',
    ],
)
def test_records_that_are_none(command: CommandLine, build: Path, text: str) -> None:
    """Another program's manifest, a damaged one, one that names files elsewhere: only the manifest itself is replaced."""
    (build / "manifest.json").write_text(text)
    (build / "images").mkdir()
    assert command(*DPU).code == 0
    check_users(build)
    assert (command.folder / "net.yaml").is_file() and (build / "images").is_dir()


def test_a_refused_build_leaves_the_earlier_one(command: CommandLine, build: Path) -> None:
    before = {p.name: p.read_bytes() for p in build.iterdir()}
    assert command(*DPU[:2], "--calib", "nowhere", *DPU[4:]).code != 0
    assert {p.name: p.read_bytes() for p in build.iterdir()} == before
