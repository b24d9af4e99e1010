"""Puts the kernels through PandA-bambu: `python -m npuforge.hw_kernels.hls_synthesis --work DIR [--only TEXT] [--markdown FILE]`, with `bambu` on the path.

Every kernel of an operator's folder becomes a C function with plain arguments and a testbench that calls it on a few drawn cases and holds each output
against the folder's numpy integers. bambu synthesises the function to Verilog and runs the testbench with Verilator in its place. The two sets of top
functions (hls/npu_top.cpp, hls/npu_overlay.cpp) are synthesised only. The words looked for in bambu's output are those of its sources (2024.10).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from npuforge.compile.ir.errors import NpuforgeError, UsageError
from npuforge.hw_kernels.isa.generate import header_text
from npuforge.hw_kernels.levels import folder
from npuforge.hw_kernels.operator import KernelCase, KernelForm, Op, case_graph, case_inputs, registry

HLS = Path(__file__).parent / "hls"
TOP = "npu_kernel"  # the function that is synthesised
DRAWN = 40  # cases of which the smallest are co-simulated: a cycle of Verilator is dear
MODES = {"int8": "fine", "bf16": "bf16"}
TOPS = {"npu_top": "npu_top.cpp"} | {
    f"npu_{engine}": "npu_overlay.cpp" for engine in ("fetch", "load", "conv", "vector", "store")
}
FIGURES = {
    "states": r"Number of states: (\d+)",
    "flip-flops": r"Total number of flip-flops in function \w+: (\d+)",
    "DSPs": r"Estimated number of DSPs: (\d+)",
    "cycles": r"Average execution +: (\d+) cycles",
}
RETURNED = "Returned error code!"  # how bambu says that main() gave 1; its own exit code stays 0


@dataclass(frozen=True)
class Target:
    """One function to synthesise. calls: what the testbench runs, none for a function that is synthesised only."""

    name: str
    source: Path
    top: str
    arguments: tuple[str, ...] = ()
    calls: tuple[KernelCase, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """status: `refused` (no Verilog), `unfinished` (at the time limit), `synthesised`, `differs` (co-simulation is not the integers, or
    stopped early), `co-simulated`."""

    name: str
    status: str
    message: str = ""
    figures: dict[str, int] = field(default_factory=dict)


def targets(cases: int) -> list[Target]:
    """All kernels, with their `cases` smallest of the drawn cases each, and the top functions."""
    found: list[Target] = []
    for name, op in sorted(registry().items()):
        where = folder(op)
        if where is None:
            continue
        if op.kernel is not None:
            random = np.random.default_rng(6)
            drawn = _smallest([op.kernel.cases(random) for _ in range(DRAWN)], cases)
            found.append(Target(name, where / "kernel.hpp", op.kernel.top, op.kernel.arguments, drawn))
        for level, form in (("int8", op.kernel_int8), ("bf16", op.kernel_bf16)):
            if form is not None:
                drawn = _smallest(_calls(name, op, form, MODES[level]), cases)
                found.append(Target(f"{name} {level}", where / "kernel.hpp", form.top, form.arguments, drawn))
    return found + [Target(top, HLS / file, top) for top, file in TOPS.items()]


def _calls(name: str, op: Op, form: KernelForm, mode: str) -> list[KernelCase]:
    return [
        call for case in op.cases for call in form.run(case_graph(name, case).nodes[0], case_inputs(case), mode).calls
    ]


def _smallest(drawn: Iterable[KernelCase], count: int) -> tuple[KernelCase, ...]:
    """Those with the fewest array elements, of those that write any."""

    def elements(call: KernelCase) -> int:
        return sum(a.size for a in call[0] if isinstance(a, np.ndarray))

    return tuple(sorted((call for call in drawn if all(e.size for e in call[1])), key=elements)[:count])


def _is_output(kind: str) -> bool:
    return kind.endswith("*") and "const" not in kind


def top_text(target: Target) -> str:
    """The kernel as a C function; whether it accepts its sizes is not looked at, the outputs say it."""
    names = [f"a{i}" for i in range(len(target.arguments))]
    parameters = ", ".join(f"{kind} {name}" for kind, name in zip(target.arguments, names, strict=True))
    call = f"npuforge::hls::{target.top}({', '.join(names)})"
    return f'#include "{target.source}"\n\nextern "C" void {TOP}({parameters}) {{ (void){call}; }}\n'


def testbench_text(target: Target) -> str:
    """main() calls the function on every case and gives 1 if any output element is not the expected one."""
    lines = ["#include <stdint.h>", "", f'extern "C" void {TOP}({", ".join(target.arguments)});', ""]
    body = []
    for number, (arguments, expected) in enumerate(target.calls):
        passed, wanted = [], iter(expected)
        for position, (kind, value) in enumerate(zip(target.arguments, arguments, strict=True)):
            if not kind.endswith("*"):
                passed.append(str(int(value)))
                continue
            name, element = f"call{number}_{position}", kind.removeprefix("const ").removesuffix("*")
            largest = max(call[0][position].size for call in target.calls)  # bambu copies the argument's size each call
            lines.append(_array(element, name, value, largest))
            passed.append(name)
            if _is_output(kind):
                lines.append(_array(f"const {element}", f"{name}_wanted", next(wanted)))
                count = max(value.size, 1)
                body.append((number, f"for (int i = 0; i < {count}; ++i) wrong += {name}[i] != {name}_wanted[i];"))
        body.insert(len([n for n, _ in body if n < number]), (number, f"{TOP}({', '.join(passed)});"))
    return "\n".join([*lines, "", "int main() {", "    int wrong = 0;", *(f"    {text}" for _, text in body)]) + (
        "\n    return wrong != 0;\n}\n"
    )


def _array(element: str, name: str, values: np.ndarray, size: int = 0) -> str:
    """An array of at least `size` elements, those behind the values 0."""
    flat = [str(int(v)) for v in np.asarray(values).ravel()] or ["0"]
    return f"static {element} {name}[{max(size, len(flat))}] = {{{', '.join(flat)}}};"


def command(bambu: str, target: Target, place: Path, most_cycles: int, options: Sequence[str]) -> list[str]:
    """What runs in `place`; pointers are given the bytes of their largest array."""
    parts = [bambu, "top.cpp" if target.calls else str(target.source)]
    parts += [f"--top-fname={TOP if target.calls else target.top}", "--std=c++17", f"-I{place}", f"-I{HLS}"]
    if target.calls:
        sizes = {
            f"a{i}": max(call[0][i].nbytes or call[0][i].itemsize for call in target.calls)
            for i, kind in enumerate(target.arguments)
            if kind.endswith("*")
        }
        parts += ["--generate-tb=testbench.cpp", "--simulate", "--simulator=VERILATOR"]
        parts += [f"--max-sim-cycles={most_cycles}"]
        parts += ["--tb-param-size=" + ",".join(f"{name}:{size}" for name, size in sizes.items())] if sizes else []
    return [*parts, *options]


def run(target: Target, bambu: str, work: Path, limits: tuple[int, int], options: Sequence[str] = ()) -> Outcome:
    """Synthesises one target in a folder of its own under `work`, its log beside it. limits: seconds, simulated cycles."""
    place = work / re.sub(r"\W+", "_", target.name)
    place.mkdir(parents=True, exist_ok=True)
    (place / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
    if target.calls:
        (place / "top.cpp").write_text(top_text(target), encoding="utf-8")
        (place / "testbench.cpp").write_text(testbench_text(target), encoding="utf-8")
    parts = command(bambu, target, place, limits[1], options)
    record = place / "bambu.log"
    with record.open("w", encoding="utf-8") as file:
        print(*parts, file=file, flush=True)
        tool = subprocess.Popen(parts, cwd=place, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = tool.wait(timeout=limits[0])
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if tool.poll() is None:
                os.killpg(tool.pid, signal.SIGKILL)  # the compiler and the simulator that it started, too
                tool.wait()
    log = record.read_text(encoding="utf-8", errors="replace")
    if code is None:
        made = "Verilog made, " if any(place.glob("*.v")) else ""
        return Outcome(target.name, "unfinished", f"{made}stopped after {limits[0]} s", figures_of(log))
    return outcome(target, code, log, any(place.glob("*.v")))


def figures_of(log: str) -> dict[str, int]:
    """The figures that a log holds, each the last of its kind."""
    return {what: int(m[-1]) for what, pattern in FIGURES.items() if (m := re.findall(pattern, log))}


def outcome(target: Target, code: int, log: str, verilog: bool) -> Outcome:
    """A run counts as co-simulated only if bambu reports as many finished executions as there are calls, and main() gave 0."""
    figures = figures_of(log)
    errors = [line.strip() for line in log.splitlines() if re.search(r"\berror\b", line, re.IGNORECASE)]
    message = errors[0][:200] if errors else ""
    if not verilog:
        return Outcome(target.name, "refused", message or f"exit code {code}, no Verilog", figures)
    if not target.calls:
        return Outcome(target.name, "synthesised" if code == 0 else "refused", message, figures)
    executions = re.search(r"Number of executions +: (\d+)", log)
    if code != 0 or RETURNED in log or executions is None or int(executions[1]) != len(target.calls):
        finished = executions[1] if executions else "no"
        return Outcome(
            target.name,
            "differs",
            message or f"exit code {code}, {finished} executions of {len(target.calls)}",
            figures,
        )
    return Outcome(target.name, "co-simulated", "", figures)


def page(outcomes: Sequence[Outcome], version: str) -> str:
    """The table of a run, as Markdown."""
    lines = [
        f"`{version}`",
        "",
        f"| kernel | result | {' | '.join(FIGURES)} | message |",
        "| --- " * (len(FIGURES) + 3) + "|",
    ]
    for found in outcomes:
        figures = " | ".join(str(found.figures.get(what, "")) for what in FIGURES)
        lines.append(f"| {found.name} | {found.status} | {figures} | {found.message.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def version_of(bambu: str) -> str:
    """The line of `bambu --version` that names the version."""
    text = subprocess.run([bambu, "--version"], capture_output=True, text=True, errors="replace").stdout
    named = [line.strip() for line in text.splitlines() if re.search(r"version", line, re.IGNORECASE)]
    return named[0] if named else "bambu of unknown version"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where a co-simulation differs from the integers; what is refused is a result, not an error."""
    parser = argparse.ArgumentParser(
        prog="python -m npuforge.hw_kernels.hls_synthesis", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--bambu", default="bambu", help="the tool, by name or path")
    parser.add_argument("--work", type=Path, required=True, help="folder for sources, Verilog and logs")
    parser.add_argument("--only", default="", help="kernels whose name holds this text")
    parser.add_argument("--cases", type=int, default=3, help="cases of each kernel to co-simulate")
    parser.add_argument("--seconds", type=int, default=900, help="time limit of each kernel")
    parser.add_argument("--cycles", type=int, default=1_000_000, help="limit of a simulation")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    parser.add_argument("options", nargs="*", help="options for bambu, after --")
    given = parser.parse_args(arguments)
    try:
        tool = shutil.which(given.bambu)
        if tool is None:
            raise UsageError(f"--bambu {given.bambu}: not found; install PandA-bambu or give its path")
        chosen = [t for t in targets(given.cases) if given.only in t.name]
        if not chosen:
            raise UsageError(f"--only {given.only}: no such kernel; expected part of {', '.join(registry())}")
    except NpuforgeError as error:
        print(error, file=sys.stderr)
        return 2
    outcomes = []
    for target in chosen:
        outcomes.append(run(target, tool, given.work.resolve(), (given.seconds, given.cycles), given.options))
        print(f"{outcomes[-1].name}: {outcomes[-1].status} {outcomes[-1].message}".rstrip(), flush=True)
    table = page(outcomes, version_of(tool))
    if given.markdown is not None:
        given.markdown.write_text(table, encoding="utf-8")
    return int(any(found.status == "differs" for found in outcomes))


if __name__ == "__main__":
    sys.exit(main())
