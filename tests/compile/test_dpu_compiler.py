"""What the vendor's compiler says and makes: its log, its absence, its failure, a stand-in for it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from npuforge.compile.dpu import limits, vendor_compiler
from npuforge.compile.ir.errors import NpuforgeError
from npuforge.compile.xir.builder import integers, string
from npuforge.compile.xir.model import XModel, XOp, XSubgraph, XTensor, to_message

TARGET = limits.load("dpu:DPUCZDX8G")
SAMPLE = Path(__file__).parents[3] / "shared" / "xir" / "samples" / "pt_custom_op.xmodel"

LOG = """\
[UNILOG][INFO] Compile mode: dpu
[UNILOG][INFO] Target architecture: DPUCZDX8G_ISA1_B2304_0101000016010405
[UNILOG][WARNING] xir::Op{name = y, type = sigmoid} is not supported by current target. Assign it to CPU.
[UNILOG][INFO] Graph name: net, with op num: 9
[UNILOG][WARNING] xir::Op{name = t, type = transpose} has been assigned to CPU.
[UNILOG][WARNING] DPU prefers xir::Op{name = c, type = conv2d-fix}'s input batch to be 4, but it's 1 now. So it will be assigned to CPU.
[UNILOG][WARNING] xir::Op{name = c, type = conv2d-fix} has been assigned to CPU.
[UNILOG][WARNING] xir::Op{name = p, type = pool-fix}'s input and output is unchanged, so it will be removed.
[UNILOG][INFO] Total device subgraph number 5, CPU subgraph number 2
[UNILOG][INFO] Total device subgraph number 5, DPU subgraph number 1
[UNILOG][INFO] Compile done.
"""


def test_log() -> None:
    result = vendor_compiler.Compiled([])
    vendor_compiler.read_log(LOG, result)
    assert (result.subgraphs, result.dpu_subgraphs, result.cpu_subgraphs) == (5, 1, 2)
    assert result.architecture == "DPUCZDX8G_ISA1_B2304_0101000016010405"
    assert result.on_cpu == {
        "y (sigmoid)": "it is not supported by current target. Assign it to CPU.",
        "t (transpose)": "it has been assigned to CPU.",
        "c (conv2d-fix)": "DPU prefers it's input batch to be 4, but it's 1 now. So it will be assigned to CPU.",
    }
    assert result.operators == 9


def test_log_of_a_later_compiler() -> None:
    """Version 3: every line with glog's own prefix; of several graphs the last one counts."""
    lines = (
        line.replace("[UNILOG]", "I20231023 11:48:43.061691   116 pass.cpp:489] [UNILOG]") for line in LOG.splitlines()
    )
    first, result = vendor_compiler.Compiled([]), vendor_compiler.Compiled([])
    vendor_compiler.read_log(LOG, first)
    vendor_compiler.read_log("\n".join(lines), result)
    assert result == first


def test_without_the_vendors_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = vendor_compiler.compile_fix_form(tmp_path / "q.xmodel", TARGET, tmp_path, "net")
    assert not result.ran and result.dpu_subgraphs is None
    assert result.command == ["vai_c_xir", "-x", "q.xmodel", "-a", "arch.json", "-o", ".", "-n", "net"]
    assert (tmp_path / "arch.json").read_text() == '{"target": "DPUCZDX8G_ISA1_B4096"}\n'


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "vai_c_xir"
    program.write_text("#!/bin/sh\necho no license\nexit 3\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(NpuforgeError, match=r"vai_c_xir ended with 3 and gave no net\.xmodel: no license"):
        vendor_compiler.compile_fix_form(tmp_path / "q.xmodel", TARGET, tmp_path, "net")


def test_a_log_that_is_no_utf8_and_does_not_count_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that the log lacks are those of the file: AMD's own compiled sample has two USER, two DPU and four CPU children."""
    if not SAMPLE.is_file():
        pytest.skip(f"{SAMPLE} is absent")
    program = tmp_path / "vai_c_xir"
    line = "[UNILOG][INFO] Total device subgraph number 8, DPU subgraph number 2"
    program.write_text(f"#!/bin/sh\ncp {SAMPLE} net.xmodel; printf 'caf\\351\\n{line}\\n'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    result = vendor_compiler.compile_fix_form(tmp_path / "q.xmodel", TARGET, tmp_path, "net")
    assert (result.subgraphs, result.dpu_subgraphs, result.cpu_subgraphs) == (8, 2, 4)
    assert (tmp_path / "vai_c_xir.log").read_text(encoding="utf-8") == f"caf\ufffd\n{line}\n"
    assert str(result) == "vai_c_xir: 8 subgraphs, 2 DPU, 4 CPU, fingerprints 0x0901400044000e44"  # of both


def test_a_compiler_that_cannot_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "vai_c_xir"
    program.write_text("#!/no/such/python\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(
        NpuforgeError, match=r"vai_c_xir \(.*vai_c_xir\) cannot be executed \(.*\); mend it, or take it off"
    ):
        vendor_compiler.compile_fix_form(tmp_path / "q.xmodel", TARGET, tmp_path, "net")


def test_a_compiler_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that copies its input and prints the log: what is run, where, and what is read."""
    tensor = XTensor("x", [1, 4, 4, 3], "FLOAT", 32)
    attrs = {"shape": integers(tensor.shape), "data_type": string(tensor.dtype)}
    model = XModel("net", [XOp("x", "data", tensor, [], attrs)], XSubgraph("root"))
    (tmp_path / "q.xmodel").write_bytes(to_message(model).SerializeToString())
    (tmp_path / "log").write_text(LOG)
    program = tmp_path / "vai_c_xir"
    program.write_text('#!/bin/sh\ncp "$2" "$6/$8.xmodel" && cat log\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    result = vendor_compiler.compile_fix_form(tmp_path / "q.xmodel", TARGET, tmp_path, "net")
    assert result.ran and result.dpu_subgraphs == 1 and result.fingerprints == []
    assert (tmp_path / "vai_c_xir.log").read_text() == LOG
