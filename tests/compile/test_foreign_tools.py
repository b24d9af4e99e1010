"""Programs that are no part of the kit: what they print, how they end, that they need not run at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuforge.compile.ir.errors import NpuforgeError
from npuforge.compile.ir.foreign_tools import ToolRun, run_tool


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def test_both_streams_any_bytes(tmp_path: Path) -> None:
    done = run_tool("tool", shell(r"printf 'a\377b\n'; printf 'error: c\n\n' >&2; pwd; cat; exit 3"), tmp_path)
    assert done.log == f"a\ufffdb\nerror: c\n\n{tmp_path}\n" and done.code == 3  # nothing to read: `cat` ends at once
    assert (done.ended, done.last_line, done.first_error) == ("tool ended with 3", str(tmp_path), "error: c")


def test_a_signal_is_named_and_silence_is_said(tmp_path: Path) -> None:
    done = run_tool("tool", shell("kill -KILL $$"), tmp_path)
    assert (done.ended, done.first_error) == ("tool was ended by SIGKILL", "no output")


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        ("0 warnings\nx.cu(3): error: no y\nx.cu(9): error: no z\nfailed\n", "x.cu(3): error: no y"),
        (  # glog's form, as the vendor's libraries end
            "reading\nW20261130 error rate unknown\nF20261130 a.cpp:35] [UNILOG][FATAL][XIR_X] no b\n*** Check failure stack trace: ***\n",
            "F20261130 a.cpp:35] [UNILOG][FATAL][XIR_X] no b",
        ),
        ("[ERROR] no licence\nbye\n", "[ERROR] no licence"),
        ("terrors\nbye\n\n", "bye"),
    ],
)
def test_what_a_tool_complained_of(log: str, complaint: str) -> None:
    assert ToolRun("tool", 1, log).first_error == complaint


@pytest.mark.parametrize("text", ["#!/no/such/interpreter\n", "\x7fELF no program\n", None])
def test_what_cannot_be_executed(text: str | None, tmp_path: Path) -> None:
    program = tmp_path / "tool"
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    with pytest.raises(
        NpuforgeError, match=r"nvcc \(.*/tool\) cannot be executed \([A-Z].*\); mend it, or take it off"
    ):
        run_tool("nvcc", [str(program)], tmp_path)
