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
from npuforge.compile.xir.reader import read_xmodel

PROGRAM = "vai_c_xir"
_COUNTS = re.compile(r"Total device subgraph number (\d+), (DPU|CPU) subgraph number (\d+)")
_ON_CPU = re.compile(r"\{name = ([^,{}]+), type = ([^{}]+?)\}.*(?:[Aa]ssign(?:ed)?(?: it)? to CPU)")
_TARGET = re.compile(r"Target architecture: (\S+)")


@dataclass
class Compiled:
    """What the vendor's log says. Counts are None where it doesn't. `on_cpu`: operators it gave to the CPU, `name (type)`.

    `ran` is False, with nothing else, where the program is not on the path. `fingerprints`: of the compiled file's DPU subgraphs, hexadecimal.
    """

    command: list[str]
    ran: bool = False
    architecture: str = ""
    subgraphs: int | None = None
    dpu_subgraphs: int | None = None
    cpu_subgraphs: int | None = None
    on_cpu: list[str] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)


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
    into.on_cpu = [f"{name} ({kind})" for name, kind in _ON_CPU.findall(text)]


def compile_fix_form(quantised: Path, target: DpuTarget, folder: Path, name: str) -> Compiled:
    """Writes `arch.json` beside the file and runs the vendor's compiler there: `<name>.xmodel` and `vai_c_xir.log`. NpuforgeError where it fails."""
    arch = folder / "arch.json"
    arch.write_text(json.dumps({"target": target.name}) + "\n", encoding="utf-8")
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
    prints = [subgraph.get("dpu_fingerprint") for subgraph in read_xmodel(made).by_device("DPU")]
    result.fingerprints = [f"0x{value:016x}" for value in prints if isinstance(value, int)]
    return result
