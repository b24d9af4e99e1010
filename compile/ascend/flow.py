"""`--target ascend:SOC`: the network as ONNX with its custom domain, CANN's files for each custom operator, the `atc` command line.

Files: `model.onnx`; per operator `<name>.py` (TBE source from its NPU-DSL program, over tiles: tbe.py, over arrays: tbe_arrays.py), `.ini`, `_plugin.cc`,
prototypes; nodes that a program refuses are computed by the AI CPU (aicpu.py), or written as standard operators where these compose them; `atc.sh`;
`ascend.json`; `atc.log` and `model.om` only where `atc` is.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from npuforge.compile.ascend import aicpu, tbe, tbe_arrays
from npuforge.compile.ascend.array_prototype import prototype
from npuforge.compile.ascend.complete import write_out
from npuforge.compile.context import Context, Options
from npuforge.compile.ir.errors import InstructionError, NpuforgeError, UnsupportedError, UsageError
from npuforge.compile.ir.foreign_tools import run_tool
from npuforge.compile.onnxruntime.export import lower, signatures_of
from npuforge.compile.steps.import_onnx import prepare_export, tensor_shapes
from npuforge.compile.steps.infer import find_operator
from npuforge.compile.steps.onnx_nodes import STANDARD, attributes, operator_name
from npuforge.compile.steps.write_files import staging
from npuforge.hw_kernels.bindings.model_types import tensor_types
from npuforge.hw_kernels.dsl.array import ArrayKernel
from npuforge.hw_kernels.dsl.kernel import Kernel
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram
from npuforge.hw_kernels.operator import Op

PREFIX, DEFAULT_SOC = "ascend", "Ascend310"
Shapes = dict[str, tuple[int, ...]]  # by tensor, as `tensor_shapes` gives them
PROGRAM, LOG, OFFLINE_MODEL = "atc", "atc.log", "model.om"


@dataclass
class AscendBuild:
    """What was made. `operators`: custom operator -> its files. `on_ai_cpu`: those of them that the AI CPU computes -> why. `lowered`: node -> operator
    written as standard ones. `without_source`: node -> custom operator that has neither an NPU-DSL program nor a C++ kernel. `ran`: whether atc was executed;
    `failure`: what it ended with, or why it could not be."""

    soc: str
    command: list[str] = field(default_factory=list)
    operators: dict[str, list[str]] = field(default_factory=dict)
    on_ai_cpu: dict[str, str] = field(default_factory=dict)
    lowered: dict[str, str] = field(default_factory=dict)
    without_source: dict[str, str] = field(default_factory=dict)
    ran: bool = False
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `ascend.json` holds it."""
        return dataclasses.asdict(self)


def soc_of(target: str) -> str:
    """`ascend` or `ascend:Ascend310P3` -> what atc calls --soc_version. UsageError for anything else."""
    family, _, soc = target.partition(":")
    if family != PREFIX or (":" in target and not soc.isalnum()):
        raise UsageError(f"--target {target}: expected {PREFIX} or {PREFIX}:SOC, for instance {PREFIX}:Ascend310P3")
    return soc or DEFAULT_SOC


def program_of(operator: Op) -> Kernel | ArrayKernel | None:
    """The operator's NPU-DSL program."""
    return operator.program.kernel if isinstance(operator.program, KernelProgram) else operator.dsl


def refusal_over_tiles(node: onnx.NodeProto, shapes: Shapes, types: dict[str, str]) -> str:
    """Why a program over tiles cannot take a node, given what is known of the model's tensors; empty where it can."""
    for tensor in node.input:
        if types.get(tensor, "float32") not in tbe.DTYPES:
            return f"input {tensor} is {types[tensor]}; expected {' or '.join(tbe.DTYPES)}"
        if -1 in shapes.get(tensor, ()):
            return f"the shape of its input {tensor} is not known"
    return ""


def custom_operators(
    model: onnx.ModelProto, shapes: Shapes, types: dict[str, str]
) -> tuple[list[tbe.CustomOperator], dict[str, str], dict[str, str]]:
    """The model's custom operators that have an NPU-DSL program over tiles, the nodes of the others, and why such a program cannot take an operator's nodes.
    `shapes`, `types`: by tensor, as far as they are known."""
    found: dict[str, tbe.CustomOperator] = {}
    others: dict[str, str] = {}
    reasons: dict[str, str] = {}
    nodes = [n for n in model.graph.node if n.domain not in STANDARD]
    for node in nodes:
        name = operator_name(node.domain, node.op_type)
        operator = find_operator(name)
        kernel = None if operator is None else program_of(operator)
        if not isinstance(kernel, Kernel):
            others[node.name] = name
            continue
        if len(node.input) != kernel.inputs:
            raise UnsupportedError(
                f"node '{node.name}': {name} has {len(node.input)} inputs, its program {kernel.name} takes {kernel.inputs}; export the network again"
            )
        if refusal := refusal_over_tiles(node, shapes, types):
            reasons.setdefault(name, f"node '{node.name}': {refusal}")
        entry = found.setdefault(name, tbe.CustomOperator(node.domain, node.op_type, kernel))
        entry.add(node.name, attributes(node))
    refused = {n.name: name for n in nodes if (name := operator_name(n.domain, n.op_type)) in reasons}
    return [o for name, o in found.items() if name not in reasons], others | refused, reasons


def array_operators(
    model: onnx.ModelProto, names: list[str], reasons: dict[str, str], shapes: Shapes, types: dict[str, str]
) -> tuple[list[tbe_arrays.ArrayOperator], dict[str, str]]:
    """Those of the custom operators `names` whose array program takes every node of the network; why each of the others has no source, `reasons` of a program
    over tiles among them."""
    found, reasons = [], dict(reasons)
    for name in (n for n in names if n not in reasons):
        nodes = [n for n in model.graph.node if operator_name(n.domain, n.op_type) == name]
        operator = find_operator(name)
        kernel = None if operator is None else program_of(operator)
        if not isinstance(kernel, ArrayKernel):
            reasons[name] = "it has no NPU-DSL program"
            continue
        first = nodes[0]
        made = tbe_arrays.ArrayOperator(first.domain, first.op_type, kernel, [], [], aicpu.attribute_kinds(nodes))
        try:
            for node in nodes:
                made.add_node(node, attributes(node), shapes, types)
        except InstructionError as refusal:
            reasons[name] = f"node '{node.name}': {refusal}"
        else:
            found.append(made)
    return found, reasons


def command_line(model: onnx.ModelProto, soc: str) -> list[str]:
    """`atc` for a model of static shapes, run in the folder of its file."""
    inputs = []
    constants = {i.name for i in model.graph.initializer}
    for value in model.graph.input:
        if value.name not in constants:
            if ";" in value.name:  # a colon may be: the last one of a pair is atc's
                raise UnsupportedError(
                    f"input '{value.name}': {PROGRAM} cannot be told the shape of an input with ; in its name; rename it"
                )
            dims = ",".join(str(d.dim_value) for d in value.type.tensor_type.shape.dim)
            inputs.append(f"{value.name}:{dims}")
    words = [PROGRAM, "--framework=5", "--model=model.onnx", "--output=model", f"--soc_version={soc}"]
    return [*words, "--input_format=ND", f"--input_shape={';'.join(inputs)}"]


def lower_compositions(model: onnx.ModelProto, all_of_them: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Writes, in `model`, nodes of operators that standard ones compose as those: which their programs refuse, or all; node -> operator, node -> refusal."""
    composed = {}
    for node in (n for n in model.graph.node if n.domain not in STANDARD):
        own = find_operator(operator_name(node.domain, node.op_type))
        if own is not None and own.lowers_to:
            composed[node.name] = program_of(own)
    refused: dict[str, str] = {}
    if composed and not all_of_them:
        shapes, types = tensor_shapes(model), tensor_types(model)
        for node in (n for n in model.graph.node if n.name in composed):
            program = composed[node.name]
            if isinstance(program, Kernel) and (reason := refusal_over_tiles(node, shapes, types)):
                refused[node.name] = reason
            elif isinstance(program, ArrayKernel):
                alone = tbe_arrays.ArrayOperator(node.domain, node.op_type, program, [], [])
                try:
                    alone.add_node(node, attributes(node), shapes, types)
                except InstructionError as refusal:
                    refused[node.name] = str(refusal)
    without = {name for name, program in composed.items() if program is None}
    written = composed.keys() if all_of_them else without | refused.keys()
    return lower(model, kept_as_is=lambda node: node.name not in written), refused


def compile_for_ascend(options: Options, soc: str, standard: bool = False) -> AscendBuild:
    """Writes everything; runs `atc` where it is on the path. NpuforgeError where that fails: all other files are in place then. `standard`: operators that
    standard ones compose are written as those, even with a program of their own."""
    ctx, build = Context(options), AscendBuild(soc)
    model = prepare_export(options.model, options.shapes)
    write_out(model)
    build.lowered, refused = lower_compositions(model, standard)
    shapes, types = tensor_shapes(model), tensor_types(model)
    operators, others, of_tiles = custom_operators(model, shapes, types)
    of_arrays, reasons = array_operators(model, list(dict.fromkeys(others.values())), of_tiles, shapes, types)
    signatures, _ = signatures_of(model, set(reasons))
    on_ai_cpu = aicpu.operators_of(model, signatures)
    named = [(o.domain, o.type) for o in operators] + [(made.domain, made.type) for made in of_arrays]
    _refuse_same_type(named + [(o.signature.domain, o.type) for o in on_ai_cpu])
    build.on_ai_cpu = {name: reasons[name] for name in (f"{o.signature.domain}::{o.type}" for o in on_ai_cpu)}
    nowhere = reasons.keys() - build.on_ai_cpu.keys()
    build.without_source = {node: name for node, name in others.items() if name in nowhere}
    build.command = command_line(model, soc)
    versions = {o.domain: o.version for o in model.opset_import}
    with staging(options.output, sources=options.sources) as folder:
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        texts: dict[str, str] = {}
        with_source = [
            (o.domain, o.type, o.file, tbe.source(o), tbe.information(o), tbe.prototype(o)) for o in operators
        ]
        with_source += [
            (o.domain, o.type, o.file, tbe_arrays.source(o), tbe_arrays.information(o), prototype(o)) for o in of_arrays
        ]
        for domain, kind, file, source, information, proto in with_source:
            own = {
                f"{file}.py": source,
                f"{file}.ini": information,
                f"{file}_plugin.cc": tbe.parser_plugin(domain, kind, versions[domain], "TVM"),
                f"{file}_proto.cc": proto,
            }
            texts |= own
            build.operators[f"{domain}::{kind}"] = list(own)
        if on_ai_cpu:
            texts |= aicpu.files(on_ai_cpu, versions)
        for name, entry in zip(build.on_ai_cpu, on_ai_cpu, strict=True):
            common = [aicpu.HEADER, aicpu.KERNELS, aicpu.PROTO]
            build.operators[name] = [*common, f"{entry.file}.ini", f"{entry.file}_plugin.cc"]
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        line = shlex.join(build.command)
        (folder / "atc.sh").write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (folder / "atc.sh").chmod(0o755)
        ctx.note(
            f"node '{node}' ({name}) is written as standard operators{f': {refused[node]}' if node in refused else ''}"
            for node, name in build.lowered.items()
        )
        ctx.note(
            f"{name}: the AI CPU computes it, with {aicpu.KERNELS}: {reason}"
            for name, reason in build.on_ai_cpu.items()
        )
        for node, name in build.without_source.items():
            ctx.note(
                [
                    f"node '{node}' ({name}) has no source, and no C++ kernel for the AI CPU: {reasons[name]} (docs/npu-dsl.md)"
                ]
            )
        build.failure = _run(build, folder)
        if not build.ran and not build.failure:
            ctx.note([f"{PROGRAM} is not on the path and was not run; where CANN is installed, in this folder: {line}"])
        (folder / "ascend.json").write_text(json.dumps(build.to_json() | {"notices": ctx.notices}, indent=1))
    if build.failure:
        first = "; atc knows the custom operators once their files are built and installed" if build.operators else ""
        log = f" and {LOG}" if build.ran else ""
        raise NpuforgeError(f"{build.failure}; the sources{log} are in {options.output}{first}, then run atc.sh there")
    return build


def _refuse_same_type(operators: list[tuple[str, str]]) -> None:
    """UnsupportedError where two domains have an operator of one type, or two types files of one name."""
    owners: dict[str, str] = {}
    files: dict[str, str] = {}
    for domain, kind in operators:
        other = files.setdefault(tbe.file_name(kind), kind)
        if other != kind:
            raise UnsupportedError(
                f"{kind} and {other} would both have the files {tbe.file_name(kind)}.*; rename one of them"
            )
        if owners.setdefault(kind, domain) != domain:
            raise UnsupportedError(
                f"{domain}::{kind} and {owners[kind]}::{kind} would be one operator to CANN, which knows no domains; rename one of them"
            )


def _run(build: AscendBuild, folder: Path) -> str:
    """Runs atc where it is; how it failed, empty where it did not."""
    program = shutil.which(PROGRAM)
    if program is None:
        return ""
    try:
        done = run_tool(PROGRAM, [program, *build.command[1:]], folder)
    except NpuforgeError as error:
        return str(error)
    build.ran = True
    (folder / LOG).write_text(done.log, encoding="utf-8")
    if done.code != 0:
        return f"{done.ended}: {done.first_error}"
    if not (folder / OFFLINE_MODEL).is_file():
        return f"{done.ended} and wrote no {OFFLINE_MODEL}: {done.last_line}"
    return ""
