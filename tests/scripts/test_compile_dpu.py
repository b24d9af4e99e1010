"""`npuforge compile --target dpu:...`."""

import json
import tarfile

import pytest
from command_line import CommandLine

from npuforge.compile.xir.reader import read_xmodel

DPU = ("compile", "net.onnx", "--calib", "images", "--preprocess", "net.yaml", "-o", "dpu", "--target")


def test_files_and_what_was_not_run(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(command.folder))
    result = command(*DPU, "dpu:DPUCZDX8G_ISA1_B1024")
    assert result.code == 0, result
    assert "vai_c_xir is not on the path and was not run" in result.err
    made = command.folder / "dpu"
    assert {p.name for p in made.iterdir()} == {
        "quantised.xmodel", "arch.json", "quantised.npz", "dpu.json", "reference.onnx", "summary.json", "manifest.json",
        "sample.npz", "expected.npz",
    }  # fmt: skip
    report = json.loads((made / "dpu.json").read_text())
    assert report["target"] == "DPUCZDX8G_ISA1_B1024" and report["dpu_nodes"] > 0 and not report["compiler"]["ran"]
    assert {"fix", "conv2d"} <= {op.type for op in read_xmodel(made / "quantised.xmodel").ops}


def test_disasm_of_a_folder_or_a_bundle_says_what_to_give(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(command.folder))
    assert command(*DPU, "dpu:DPUCZDX8G_ISA1_B1024").code == 0
    command.refused(2, ("a folder without a model.bin; give one of its files: dpu/quantised.xmodel",), "disasm", "dpu")
    with tarfile.open("build.tar", "w") as archive:
        archive.add("build/model.bin", "model.bin")
    command.refused(
        2, ("build.tar: a tar file", "tar -xf build.tar", "npuforge disasm model.bin"), "disasm", "build.tar"
    )


def test_every_node_on_the_cpu_has_a_notice(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(command.folder))
    result = command(*DPU, "dpu:DPUCZDX8G_ISA1_B1024")
    on_cpu = json.loads((command.folder / "dpu" / "dpu.json").read_text())["cpu"]
    notices = [line for line in result.err.splitlines() if "left to the CPU: " in line]
    assert on_cpu and "the NPU" not in str(on_cpu.values())
    for node, reason in on_cpu.items():
        assert any(f"'{node}'" in line and line.endswith(f"left to the CPU: {reason}") for line in notices), node
    assert len(notices) == len(set(on_cpu.values()))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*DPU, "dpu:B4096"), ("--target dpu:B4096", "dpu:DPUCZDX8G")),
        ((*DPU, "dpu:DPUCZDX8G", "--silu", "no"), ("--silu no", "keep, hardswish")),
        ((*DPU, "npuforge", "--silu", "hardswish"), ("--silu hardswish", "--target")),
        ((*DPU, "dpu:DPUCZDX8G", "--precision", "bf16"), ("--precision bf16", "int8")),
        ((*DPU, "dpu:DPUCZDX8G", "--mode", "fine"), ("--mode fine: a DPU's arithmetic is pow2; leave it out",)),
        ((*DPU, "dpu:DPUCZDX8G", "--arch", "nf-b4096"), ("--arch: for npuforge's own NPU; leave it out",)),
        ((*DPU, "dpu:DPUCZDX8G", "--layers", "--alpha", "0.5"), ("--alpha, --layers: for npuforge's own NPU",)),
        ((*DPU, "ascend", "--mode", "fine"), ("--mode: for npuforge's own NPU; leave it out with --target ascend",)),
        ((*DPU, "npuforge", "--standard"), ("--standard: belongs to --target ascend",)),
        ((*DPU, "ascend", "--arch=nf-b1024", "--recalibrate"), ("--arch, --recalibrate: for npuforge's own NPU",)),
    ],
)
def test_refused(command: CommandLine, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    command.refused(2, words, *arguments)


def test_what_is_not_used_is_said(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(command.folder))
    result = command(*DPU, "ascend")
    assert result.code == 0 and "notice: --calib, --preprocess: not used with --target ascend" in result.err, result
    plain = command("compile", "net.onnx", "--target", "ascend", "-o", "dpu")
    assert plain.code == 0 and "not used" not in plain.err
    assert command(*DPU, "dpu:DPUCZDX8G_ISA1_B1024", "--mode", "pow2").code == 0  # what it is anyway
