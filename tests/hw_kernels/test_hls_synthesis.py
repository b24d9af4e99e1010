"""The runner for PandA-bambu against stand-ins: one compiles function and testbench with g++ and reports as bambu does, the others refuse, hang or lie.

What bambu itself says of the kernels is not tested here; docs/hls-tools.md says what was run.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuforge.hw_kernels import hls_synthesis
from npuforge.hw_kernels.hls_synthesis import TOPS, Target, main, outcome, run, targets

STAND_IN = """#!{python}
import pathlib, subprocess, sys
if "--version" in sys.argv:
    print("Version: PandA stand-in")
    sys.exit(0)
assert "--std=c++17" in sys.argv
if sys.argv[1] != "top.cpp":
    print("error -> streams are not taken")
    sys.exit(1)
assert "--generate-tb=testbench.cpp" in sys.argv and "--top-fname=npu_kernel" in sys.argv
includes = [a for a in sys.argv if a.startswith("-I")]
flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
subprocess.run(["g++", *flags, *includes, "top.cpp", "testbench.cpp", "-o", "simulation"], check=True)
pathlib.Path("npu_kernel.v").write_text("module npu_kernel; endmodule")
code = subprocess.run(["./simulation"]).returncode
executions = pathlib.Path("testbench.cpp").read_text().count("    npu_kernel(")
print("  Number of states: 3\\n  Number of states: 7")
print("  Number of executions     : %d\\n  Average execution        : 120 cycles" % executions)
sys.exit(code)
"""


@pytest.fixture
def tool(tmp_path: Path) -> str:
    return written(tmp_path / "bambu", STAND_IN.replace("{python}", sys.executable))


def written(file: Path, text: str) -> str:
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


@pytest.fixture(scope="module")
def found() -> dict[str, Target]:
    return {target.name: target for target in targets(2)}


def test_every_kernel_and_every_top_function_is_a_target(found: dict[str, Target]) -> None:
    headers = {p for p in (hls_synthesis.HLS.parent / "ops").glob("*/kernel.hpp")}
    assert {t.source for t in found.values() if t.calls} == headers
    assert {n for n, t in found.items() if not t.calls} == set(TOPS)


@pytest.mark.parametrize("name", ["AngleDecode", "CsrMatMul", "Softmax", "Softmax int8", "Softmax bf16", "RotatedIou"])
def test_function_and_testbench_hold_the_integers(
    name: str, found: dict[str, Target], tool: str, tmp_path: Path
) -> None:
    """And one wrong element is seen."""
    target = next(t for n, t in found.items() if n.removeprefix("npuforge::") == name)
    good = run(target, tool, tmp_path / "good", (300, 1000))
    assert (good.status, good.message) == ("co-simulated", "")
    assert good.figures == {"states": 7, "cycles": 120}
    calls = [(arguments, [e.copy() for e in expected]) for arguments, expected in target.calls]
    calls[-1][1][0].flat[-1] += 1
    bad = run(replace(target, calls=tuple(calls)), tool, tmp_path / "bad", (300, 1000))
    assert (bad.status, bad.message) == ("differs", "exit code 1, 2 executions of 2")


def test_what_counts_as_co_simulated() -> None:
    """A hung simulation can still say "0 errors": only finished executions count."""
    call = ([np.zeros(1, np.int8)], [np.zeros(1, np.int8)])
    target = Target("Kernel", Path("kernel.hpp"), "kernel", ("int8_t*",), (call, call))

    def status(code: int, log: str, verilog: bool = True) -> str:
        return outcome(target, code, log, verilog).status

    assert status(0, "  Number of executions     : 2\n") == "co-simulated"
    assert status(0, "  Number of executions     : 1\n") == "differs"
    assert status(0, "Warning: Returned error code!\n  Number of executions     : 2\n") == "differs"
    assert status(1, "  Number of executions     : 2\n") == "differs"
    assert status(0, "0 errors\n") == "differs"
    assert status(0, "  Number of executions     : 2\n", verilog=False) == "refused"
    assert outcome(target, 1, "x\n  error -> no such thing\n", False).message == "error -> no such thing"
    alone = replace(target, calls=())
    assert outcome(alone, 0, "Number of states: 12", True).status == "synthesised"
    assert outcome(alone, 1, "", True).status == "refused"


def test_the_program(tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.md"
    work = ["--work", str(tmp_path / "work"), "--markdown", str(table)]
    assert main(["--bambu", tool, "--only", "npu_load", *work]) == 0
    assert capsys.readouterr().out == "npu_load: refused error -> streams are not taken\n"
    assert table.read_text().splitlines()[0] == "`Version: PandA stand-in`"
    assert "| npu_load | refused |  |  |  |  | error -> streams are not taken |" in table.read_text()
    assert main(["--bambu", str(tmp_path / "none"), *work]) == 2
    assert "not found; install PandA-bambu" in capsys.readouterr().err
    assert main(["--bambu", tool, "--only", "Nothing", *work]) == 2
    assert "--only Nothing: no such kernel" in capsys.readouterr().err


def test_a_tool_that_hangs_is_stopped(found: dict[str, Target], tmp_path: Path) -> None:
    """With what it started; the log so far stays, and Verilog that was made is not called refused."""
    slow = written(tmp_path / "slow", "#!/bin/sh\necho 'Number of states: 12'\ntouch npu_top.v\nsleep 61.5\n")
    stopped = run(found["npu_top"], slow, tmp_path, (1, 1000))
    assert (stopped.status, stopped.message) == ("unfinished", "Verilog made, stopped after 1 s")
    assert stopped.figures == {"states": 12}
    assert (tmp_path / "npu_top" / "bambu.log").read_text().endswith("Number of states: 12\n")
    for _ in range(100):  # a killed child is gone when init has reaped it
        left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if p.read_bytes() == b"sleep\x0061.5\x00"]
        if not left:
            break
        time.sleep(0.05)
    assert not left
    silent = written(tmp_path / "silent", "#!/bin/sh\nexec sleep 60\n")
    assert run(found["npu_load"], silent, tmp_path, (1, 1000)).message == "stopped after 1 s"
