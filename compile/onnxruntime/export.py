"""`npuforge export --to onnxruntime`: a custom-operator library for a network, from the CPU kernels of the operator folders.

Files: `model.onnx`; `npuforge_ops.cpp` and `CMakeLists.txt`; `libnpuforge_ops.so` only where ONNX Runtime's header and a C++ compiler are; `export.json`.
An operator without a kernel of its own that lowers to standard ones (`ConvBnLeakyRelu`) is replaced by those in `model.onnx`.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, numpy_helper

from npuforge.compile.context import Context, Options
from npuforge.compile.ir.errors import NpuforgeError, UnsupportedError, UsageError
from npuforge.compile.ir.foreign_tools import run_tool
from npuforge.compile.ir.graph import Graph, TensorInfo
from npuforge.compile.onnxruntime.source import TYPES, Signature, cmake, source
from npuforge.compile.steps.import_onnx import prepare_export, tensor_shapes
from npuforge.compile.steps.onnx_nodes import make_node
from npuforge.compile.steps.write_files import staging
from npuforge.hw_kernels.bindings.model_types import STANDARD, as_node, find, tensor_types
from npuforge.hw_kernels.levels import declared, folder
from npuforge.hw_kernels.operator import Op, refused_packages

SOURCE, LIBRARY, HEADER = "npuforge_ops.cpp", "libnpuforge_ops.so", "onnxruntime_c_api.h"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", "-Wfatal-errors")
_SYSTEM = ("onnxruntime", "onnxruntime/core/session", "")  # below /usr/include and /usr/local/include
_READ = (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING, AttributeProto.INTS, AttributeProto.FLOATS)


@dataclass
class Export:
    """What was made. `operators`: in the library. `lowered`: node -> operator written as standard ones. `without_kernel`: node -> operator that the
    library lacks. `compiled`: the library was built. `failure`: how the compiler ended."""

    operators: list[str] = field(default_factory=list)
    lowered: dict[str, str] = field(default_factory=dict)
    without_kernel: dict[str, str] = field(default_factory=dict)
    compiled: bool = False
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `export.json` holds it."""
        return dataclasses.asdict(self)


def export(options: Options, headers: Path | None = None) -> Export:
    """Writes the files; builds the library where `headers` (else the system's include folders) has onnxruntime_c_api.h.

    UsageError where `headers` is given and lacks it, UnsupportedError naming a node that cannot be exported.
    """
    ctx, made = Context(options), Export()
    where = find_headers(headers)
    model = prepare_export(options.model, options.shapes, dynamic=True)
    made.lowered = lower(model)
    signatures, made.without_kernel = signatures_of(model)
    made.operators = [f"{s.domain}::{s.type}" for s in signatures]
    ctx.note(refused_packages())
    ctx.note(
        f"node '{node}' ({name}) has no C++ kernel, so the library lacks it"
        for node, name in made.without_kernel.items()
    )
    ctx.note(f"node '{node}' ({name}) is written as standard operators" for node, name in made.lowered.items())
    with staging(options.output, sources=options.sources) as place:
        (place / "model.onnx").write_bytes(model.SerializeToString())
        if signatures:
            (place / SOURCE).write_text(source(signatures), encoding="utf-8")
            (place / "CMakeLists.txt").write_text(cmake("npuforge_ops", SOURCE), encoding="utf-8")
            note, made.failure = _build(place, where)
            ctx.note([note] if note else [])
            made.compiled = (place / LIBRARY).is_file()
        text = json.dumps(made.to_json() | {"notices": ctx.notices}, indent=1)
        (place / "export.json").write_text(text, encoding="utf-8")
    if made.failure:
        raise NpuforgeError(f"{made.failure}; the sources are in {options.output}")
    return made


def lower(model: onnx.ModelProto, kept_as_is: Callable[[onnx.NodeProto], bool] = lambda node: False) -> dict[str, str]:
    """Replaces, in `model`, each custom node whose operator has no kernel but lowers to standard operators, and is not `kept_as_is`; node -> operator."""
    tensors: dict[str, TensorInfo] = {}
    constants = {i.name: i for i in model.graph.initializer}
    constants |= {n.output[0]: n.attribute[0].t for n in model.graph.node if n.op_type == "Constant" and n.attribute}
    lowered: dict[str, str] = {}
    kept: list[onnx.NodeProto] = []
    for node in model.graph.node:
        own = None if node.domain in STANDARD else find(node)
        if own is None or declared(own, "CPU") or not own.lowers_to or kept_as_is(node):
            kept.append(node)
            continue
        known = {t: numpy_helper.to_array(constants[t]) for t in node.input if t in constants}
        if not tensors:
            tensors = {t: TensorInfo(t, shape) for t, shape in tensor_shapes(model).items() if -1 not in shape}
        graph = Graph("export", [], dict(tensors), dict(known), [], [], 0)
        parts = own.lower(as_node(node), graph)
        assert parts is not None, "an operator with `lowers_to` always lowers"
        kept += [make_node(p.op, p.inputs, p.outputs, p.attrs, p.name) for p in parts]
        added = {t: value for t, value in graph.constants.items() if t not in known}
        model.graph.initializer.extend(numpy_helper.from_array(value, t) for t, value in added.items())
        lowered[node.name] = f"{node.domain}::{node.op_type}"
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return lowered


def signatures_of(
    model: onnx.ModelProto, names: Collection[str] | None = None
) -> tuple[list[Signature], dict[str, str]]:
    """Of every custom operator (of those called `names`) with a kernel, from all its nodes; the nodes of those that have none."""
    types = tensor_types(model)
    found: dict[str, Signature] = {}
    without: dict[str, str] = {}
    local = {(f.domain, f.name) for f in model.functions}
    for node in model.graph.node:
        if node.domain in STANDARD or (node.domain, node.op_type) in local:
            continue
        own, name = find(node), f"{node.domain}::{node.op_type}"
        if names is not None and name not in names:
            continue
        if own is None or not declared(own, "CPU"):
            without[node.name] = name
            continue
        _merge(found, name, node, own, types)
    return list(found.values()), without


def _merge(found: dict[str, Signature], name: str, node: onnx.NodeProto, own: Op, types: dict[str, str]) -> None:
    """Takes a node into its operator's signature."""
    where = folder(own)
    assert where is not None, "an operator with a cpu.hpp has a folder"
    required = next((i for i, t in enumerate(node.input) if not t), len(node.input))
    signature = found.setdefault(name, Signature(node.domain, node.op_type, where, [], required, [], []))
    signature.required = min(signature.required, required)
    for side, tensors in (("input", node.input), ("output", node.output)):
        known = signature.inputs if side == "input" else signature.outputs
        for i, tensor in enumerate(tensors):
            dtype = types.get(tensor, "unknown") if tensor else (known[i] if i < len(known) else "float32")
            if dtype not in TYPES:
                raise UnsupportedError(
                    f"node '{node.name}' ({name}): {side} {i} expected as {', '.join(TYPES)}, found {dtype}"
                )
            if i == len(known):
                known.append(dtype)
            elif known[i] != dtype:
                raise UnsupportedError(
                    f"node '{node.name}' ({name}): {side} {i} is {dtype}, in another node {known[i]}; one library has one type for it, "
                    "so export the two parts of the network separately"
                )
    for attribute in node.attribute:
        if attribute.type not in _READ:
            raise UnsupportedError(
                f"node '{node.name}' ({name}): attribute '{attribute.name}' expected as a number, a text or a list of numbers, "
                f"found {AttributeProto.AttributeType.Name(attribute.type)}"
            )
        if attribute.name not in signature.attributes:
            signature.attributes.append(attribute.name)


def find_headers(given: Path | None) -> Path | None:
    """The folder with ONNX Runtime's C header; UsageError where `given` has none."""
    if given is not None:
        if not (given / HEADER).is_file():
            raise UsageError(f"--onnxruntime-include {given}: {HEADER} expected in it, found none")
        return given.resolve()
    places = [Path(root) / below for root in ("/usr/local/include", "/usr/include") for below in _SYSTEM]
    return next((p for p in places if (p / HEADER).is_file()), None)


def _build(place: Path, headers: Path | None) -> tuple[str, str]:
    """Compiles the library where that is possible; what a notice says of it, and how the compiler failed."""
    by_hand = f"cmake -B build -DONNXRUNTIME_INCLUDE_DIR=DIR && cmake --build build in the folder makes {LIBRARY}"
    if headers is None:
        return (
            f"{LIBRARY} was not built: ONNX Runtime's {HEADER} was not found, give its folder with --onnxruntime-include; {by_hand}",
            "",
        )
    compiler = next((p for p in map(shutil.which, COMPILERS) if p), None)
    if compiler is None:
        return f"{LIBRARY} was not built: no C++ compiler ({', '.join(COMPILERS)}) is on the path; {by_hand}", ""
    words = [compiler, *FLAGS, "-isystem", str(headers), SOURCE, "-o", LIBRARY]
    try:
        done = run_tool(compiler, words, place)
    except NpuforgeError as error:
        return "", str(error)
    if done.code:
        return "", f"{done.ended}: {done.first_error}"
    return f"{LIBRARY} was built with {compiler} and the headers in {headers}", ""
