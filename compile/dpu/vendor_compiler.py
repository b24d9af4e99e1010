"""Runs the vendor's `vai_c_xir` where it is on the path, and reads its log. It is not part of this kit."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from npuforge.compile.dpu.belonging import check_belongs
from npuforge.compile.dpu.limits import DpuTarget
from npuforge.compile.ir.errors import FormatError, NpuforgeError
from npuforge.compile.ir.foreign_tools import run_tool
from npuforge.compile.ir.words import counted
from npuforge.compile.xir.model import XModel
from npuforge.compile.xir.validate import read_checked

PROGRAM, LOG = "vai_c_xir", "vai_c_xir.log"
NOT_RUN = f"{PROGRAM} is not on the path and was not run"  # begins the notice
_COUNTS = re.compile(r"Total device subgraph number (\d+), (DPU|CPU) subgraph number (\d+)")
_ON_CPU = re.compile(
    r"(?:^.*?\[UNILOG\]\[\w+\] )?(.*?)xir::Op\{name = ([^,{}]+), type = ([^{}]+?)\}(.*[Aa]ssign(?:ed)?(?: it)? to CPU.*)",
    re.MULTILINE,
)
_TARGET = re.compile(r"Target architecture: (\S+)")
_OPERATORS = re.compile(r"Graph name: .*, with op num: (\d+)")


@dataclass
class Compiled:
    """What the vendor's log says. Counts of subgraphs that it doesn't say are the compiled file's own. `on_cpu`: operators that it gave to the CPU,
    `name (type)`, and the log's first reason.

    `ran`: whether the program was executed; with nothing else, where it is not on the path. `fingerprints`, `dpu_names`: of the compiled file's DPU subgraphs;
    `unlike_target`: a line where a fingerprint is not the target's own, else empty. `failure`: how it ended where it gave no file that is one.
    """

    command: list[str]
    ran: bool = False
    architecture: str = ""
    subgraphs: int | None = None
    dpu_subgraphs: int | None = None
    cpu_subgraphs: int | None = None
    operators: int | None = None
    on_cpu: dict[str, str] = field(default_factory=dict)
    fingerprints: list[str] = field(default_factory=list)
    dpu_names: list[str] = field(default_factory=list)
    unlike_target: str = ""
    failure: str = ""

    def __str__(self) -> str:
        """One line for terminal and report."""
        if not self.ran or self.failure:
            return self.failure or f"{PROGRAM} was not run"
        prints = f", fingerprints {', '.join(dict.fromkeys(self.fingerprints))}" if self.fingerprints else ""
        return f"{PROGRAM}: {counted(self.subgraphs or 0, 'subgraph')}, {self.dpu_subgraphs} DPU, {self.cpu_subgraphs} CPU{prints}"


def read_log(text: str, into: Compiled) -> None:
    """Enters what the log of `vai_c_xir` says."""
    for total, device, count in _COUNTS.findall(text):
        into.subgraphs = int(total)
        if device == "DPU":
            into.dpu_subgraphs = int(count)
        else:
            into.cpu_subgraphs = int(count)
    found = _TARGET.findall(text)
    into.architecture = found[-1] if found else ""
    operators = _OPERATORS.findall(text)
    into.operators = int(operators[-1]) if operators else None
    for before, name, kind, after in _ON_CPU.findall(text):  # a reason and "has been assigned" may both be there
        into.on_cpu.setdefault(f"{name} ({kind})", " ".join(f"{before}it{after}".split()))


def compile_fix_form(quantised: Path, target: DpuTarget, folder: Path, name: str) -> Compiled:
    """Writes `arch.json` beside the file and runs the vendor's compiler there: `<name>.xmodel` and `vai_c_xir.log`. NpuforgeError where it fails."""
    arch = folder / "arch.json"
    arch.write_text(json.dumps(target.arch) + "\n", encoding="utf-8")
    words = [PROGRAM, "-x", quantised.name, "-a", arch.name, "-o", ".", "-n", name]
    result = Compiled(words)
    program = shutil.which(PROGRAM)
    if program is None:
        return result
    done = run_tool(PROGRAM, [program, *words[1:]], folder)
    (folder / LOG).write_text(done.log, encoding="utf-8")
    made = folder / f"{name}.xmodel"
    if done.code != 0 or not made.is_file():
        raise NpuforgeError(f"{done.ended} and gave no {made.name}: {done.first_error}")
    _read_results(made, done.log, target.fingerprint, target.name, result)
    return result


def check_compiled(made: Path) -> None:
    """FormatError where the file is not compiled, or of another network than the build that it lies in."""
    model = read_checked(made)
    if model.root is None or not model.root.children:
        raise FormatError(f"{made}: has no subgraphs, so it is not compiled; run {PROGRAM} again")
    check_belongs(model, made)


def completed(recorded: Compiled, folder: Path, fingerprint: int, target: str) -> Compiled:
    """What was recorded of a build in `folder`; of one without the vendor's compiler, what the `model.xmodel` and the log that were put there since say.

    `fingerprint`, `target`: the manifest's. FormatError where the file is not of this build.
    """
    made = folder / "model.xmodel"
    if (recorded.ran and not recorded.failure) or not made.is_file():
        return recorded
    check_compiled(made)
    log, result = folder / LOG, Compiled(recorded.command)
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    _read_results(made, text, fingerprint, target, result)
    return result


def _read_results(made: Path, log: str, fingerprint: int, target: str, result: Compiled) -> None:
    """Enters what the compiled file and the log say."""
    result.ran = True
    read_log(log, result)
    model = read_checked(made)
    children = model.by_device("DPU")
    _count(model, result)
    prints = [value for child in children if isinstance(value := child.get("dpu_fingerprint"), int)]
    result.fingerprints = [f"0x{value:016x}" for value in prints]
    result.dpu_names = [str(child.get("dpu_name", "")) for child in children]
    other = next((value for value in prints if value != fingerprint), None)
    if other is not None:
        result.unlike_target = (
            f"{made.name} carries the fingerprint 0x{other:016x}, {target} of the vendor's list has 0x{fingerprint:016x}; "
            f"they differ in {differing_fields(other, fingerprint)}"
        )


def _count(model: XModel, result: Compiled) -> None:
    """Enters the subgraphs of the compiled file that the log did not count: children of the root, those on USER in the total as in the log."""
    if result.subgraphs is None:
        result.subgraphs = len(model.root.children) if model.root else 0
    if result.dpu_subgraphs is None:
        result.dpu_subgraphs = len(model.by_device("DPU"))
    if result.cpu_subgraphs is None:
        result.cpu_subgraphs = len(model.by_device("CPU"))


_FIELDS = (("family", 56, 8), ("ISA version", 48, 8), ("feature code", 0, 48))  # of a fingerprint: lowest bit, width


def differing_fields(first: int, second: int) -> str:
    """In which parts two fingerprints differ: what a board refuses a file for."""
    parts = []
    for name, low, width in _FIELDS:
        a, b = ((value >> low) & ((1 << width) - 1) for value in (first, second))
        if a != b:
            parts.append(f"{name} (0x{a:x} and 0x{b:x})")
    return ", ".join(parts)
