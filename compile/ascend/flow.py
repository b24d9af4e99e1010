"""`--target ascend:SOC`: the network as ONNX with its custom domain, CANN's files for each custom operator, the `atc` command line.

Files: `model.onnx`; per operator `<name>.py`, `<name>.ini`, `<name>_plugin.cc`; `atc.sh`; `ascend.json`; `atc.log` and `model.om` only where `atc` is.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from npuforge.compile.ascend import tbe
from npuforge.compile.context import Context, Options
from npuforge.compile.ir.errors import NpuforgeError, UnsupportedError, UsageError
from npuforge.compile.steps.import_onnx import prepare_model
from npuforge.compile.steps.infer import find_operator
from npuforge.compile.steps.onnx_nodes import STANDARD, attributes, operator_name
from npuforge.compile.steps.write_files import staging
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram

PREFIX, DEFAULT_SOC = "ascend", "Ascend310"
PROGRAM = "atc"


@dataclass
class AscendBuild:
    """What was made. `operators`: custom operator -> its files. `without_program`: node -> custom operator that has no NPU-DSL program."""

    soc: str
    command: list[str] = field(default_factory=list)
    operators: dict[str, list[str]] = field(default_factory=dict)
    without_program: dict[str, str] = field(default_factory=dict)
    ran: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `ascend.json` holds it."""
        return dataclasses.asdict(self)


def soc_of(target: str) -> str:
    """`ascend` or `ascend:Ascend310P3` -> what atc calls --soc_version. UsageError for anything else."""
    family, _, soc = target.partition(":")
    if family != PREFIX or (":" in target and not soc.isalnum()):
        raise UsageError(f"--target {target}: expected {PREFIX} or {PREFIX}:SOC, for instance {PREFIX}:Ascend310P3")
    return soc or DEFAULT_SOC


def custom_operators(model: onnx.ModelProto) -> tuple[list[tbe.CustomOperator], dict[str, str]]:
    """The model's custom operators that have an NPU-DSL program, and the nodes of those that have none."""
    found: dict[str, tbe.CustomOperator] = {}
    without: dict[str, str] = {}
    for node in model.graph.node:
        if node.domain in STANDARD:
            continue
        name = operator_name(node.domain, node.op_type)
        operator = find_operator(name)
        program = getattr(operator, "program", None)
        kernel = program.kernel if isinstance(program, KernelProgram) else getattr(operator, "dsl", None)
        if kernel is None:
            without[node.name] = name
            continue
        same = next((o for o in found.values() if o.type == node.op_type and o.domain != node.domain), None)
        if same is not None:
            raise UnsupportedError(
                f"node '{node.name}': {name} and {same.domain}::{same.type} would be one operator to CANN, which knows no "
                "domains; rename one of them"
            )
        entry = found.setdefault(name, tbe.CustomOperator(node.domain, node.op_type, kernel))
        entry.add(node.name, attributes(node))
    return list(found.values()), without


def command_line(model: onnx.ModelProto, soc: str) -> list[str]:
    """`atc` for a model of static shapes, run in the folder of its file."""
    inputs = []
    constants = {i.name for i in model.graph.initializer}
    for value in model.graph.input:
        if value.name not in constants:
            dims = ",".join(str(d.dim_value) for d in value.type.tensor_type.shape.dim)
            inputs.append(f"{value.name}:{dims}")
    words = [PROGRAM, "--framework=5", "--model=model.onnx", "--output=model", f"--soc_version={soc}"]
    return [*words, "--input_format=ND", f"--input_shape={';'.join(inputs)}"]


def compile_for_ascend(options: Options, soc: str) -> AscendBuild:
    """Writes everything; runs `atc` where it is on the path."""
    ctx, build = Context(options), AscendBuild(soc)
    model = prepare_model(options.model, options.shapes)
    operators, build.without_program = custom_operators(model)
    build.command = command_line(model, soc)
    versions = {o.domain: o.version for o in model.opset_import}
    with staging(options.output, sources=options.sources) as folder:
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        for operator in operators:
            texts = {
                f"{operator.file}.py": tbe.source(operator),
                f"{operator.file}.ini": tbe.information(operator),
                f"{operator.file}_plugin.cc": tbe.plugin(operator, versions[operator.domain]),
            }
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
            build.operators[f"{operator.domain}::{operator.type}"] = list(texts)
        line = shlex.join(build.command)
        (folder / "atc.sh").write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        for node, name in build.without_program.items():
            ctx.note([f"node '{node}' ({name}) has no NPU-DSL program, so no TBE source was made (docs/npu-dsl.md)"])
        _run(build, folder)
        if not build.ran:
            ctx.note([f"{PROGRAM} is not on the path and was not run; where CANN is installed, in this folder: {line}"])
        (folder / "ascend.json").write_text(json.dumps(build.to_json() | {"notices": ctx.notices}, indent=1))
    return build


def _run(build: AscendBuild, folder: Path) -> None:
    program = shutil.which(PROGRAM)
    if program is None:
        return
    words = [program, *build.command[1:]]
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    (folder / "atc.log").write_text(done.stdout, encoding="utf-8")
    if done.returncode != 0:
        last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "no output")
        raise NpuforgeError(f"{PROGRAM} ended with {done.returncode}: {last.strip()}")
    build.ran = True
