"""Runs the vendor's `vai_c_xir` where it is on the path, and reads its log. It is not part of this kit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from npuforge.compile.dpu.limits import DpuTarget
from npuforge.compile.ir.errors import NpuforgeError
from npuforge.compile.xir.validate import read_checked

PROGRAM = "vai_c_xir"
_COUNTS = re.compile(r"Total device subgraph number (\d+), (DPU|CPU) subgraph number (\d+)")
_ON_CPU = re.compile(
    r"(?:^.*?\[UNILOG\]\[\w+\] )?(.*?)xir::Op\{name = ([^,{}]+), type = ([^{}]+?)\}(.*[Aa]ssign(?:ed)?(?: it)? to CPU.*)",
    re.MULTILINE,
)
_TARGET = re.compile(r"Target architecture: (\S+)")
_OPERATORS = re.compile(r"Graph name: .*, with op num: (\d+)")


@dataclass
class Compiled:
    """What the vendor's log says. Counts are None where it doesn't. `on_cpu`: operators it gave to the CPU, `name (type)`, and the log's first reason.

    `ran` is False, with nothing else, where the program is not on the path. `fingerprints`, `dpu_names`: of the compiled file's DPU subgraphs;
    `unlike_target`: a line where a fingerprint is not the target's own, else empty.
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
    done = subprocess.run(
        [program, *words[1:]], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    (folder / "vai_c_xir.log").write_text(done.stdout, encoding="utf-8")
    made = folder / f"{name}.xmodel"
    if done.returncode != 0 or not made.is_file():
        last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "no output")
        raise NpuforgeError(f"{PROGRAM} ended with {done.returncode} and gave no {made.name}: {last.strip()}")
    result.ran = True
    read_log(done.stdout, result)
    children = read_checked(made).by_device("DPU")
    prints = [value for child in children if isinstance(value := child.get("dpu_fingerprint"), int)]
    result.fingerprints = [f"0x{value:016x}" for value in prints]
    result.dpu_names = [str(child.get("dpu_name", "")) for child in children]
    other = next((value for value in prints if value != target.fingerprint), None)
    if other is not None:
        result.unlike_target = (
            f"{made.name} carries the fingerprint 0x{other:016x}, {target.name} of the vendor's list has 0x{target.fingerprint:016x}; "
            f"they differ in {differing_fields(other, target.fingerprint)}"
        )
    return result


_FIELDS = (("family", 56, 8), ("ISA version", 48, 8), ("feature code", 0, 48))  # of a fingerprint: lowest bit, width


def differing_fields(first: int, second: int) -> str:
    """In which parts two fingerprints differ: what a board refuses a file for."""
    parts = []
    for name, low, width in _FIELDS:
        a, b = ((value >> low) & ((1 << width) - 1) for value in (first, second))
        if a != b:
            parts.append(f"{name} (0x{a:x} and 0x{b:x})")
    return ", ".join(parts)
