"""Checks an .xmodel against XIR 3.5's own operator table (`ops.json`: argument names and counts, attribute names, wire types, list lengths)
and its subgraphs against what the vendor's tools and runtime ask of them (`SUBGRAPH_ATTRS`, `NEEDED`).

`ops.json` holds the 106 built-in definitions as the vendor's library writes them into its files. A type that is not in it is a custom one: its only
argument is `input`, and the attributes `shape` (int32 list) and `data_type` (string) are required.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import Attr, XModel, XOp, XSubgraph
from npuforge.compile.xir.reader import read_xmodel

OPS_FILE = Path(__file__).with_name("ops.json")
CUSTOM: dict[str, Any] = {
    "args": {"input": "0..n"},
    "attrs": {"shape": {"type": "int32_vec", "required": True}, "data_type": {"type": "string", "required": True}},
}
_COUNTS = {"1": (1, 1), "0..1": (0, 1), "0..n": (0, None), "1..n": (1, None)}
_DATA_TYPE = re.compile(r"(INT|UINT|XINT|XUINT|FLOAT|BFLOAT|int|uint|xint|xuint|float|bfloat)[1-9][0-9]*")
_TWO_INPUTS = ("add", "sub", "mul", "div", "min", "max")
_POOLED = ("HSIGMOID", "HSWISH")
NONLINEAR = ("", "NONE", "RELU", "PRELU", "LEAKYRELU", "RELU6", *_POOLED)  # what the vendor's operators know
TENSOR_ATTRS = {  # wire types of what compilers write and runtimes read
    "fix_point": "int32",
    "bit_width": "int32",
    "if_signed": "bool",
    "round_mode": "string",
    "reg_id": "int32",
    "ddr_addr": "int32",
    "location": "int32",
    "stride": "int32_vec",
    "npuforge_scale": "double_vec",
    "npuforge_zero_point": "int32_vec",
    "npuforge_image_mean": "double_vec",
    "npuforge_row_stride": "int32",
}
_TEXTS = "map_string_2_string"
SUBGRAPH_ATTRS = {  # wire types, as the vendor's compiler writes them (XIR takes no other), and ours
    "device": "string",
    "runner": _TEXTS,
    "dpu_name": "string",
    "dpu_fingerprint": "uint64",
    "mc_code": "bytes",
    "mc_code_preload": "bytes",
    "children_topological_sort": "string_vec",
    "reg_id_to_context_type": _TEXTS,
    "reg_id_to_context_type_v2": _TEXTS,
    "reg_id_to_hw_segment": _TEXTS,
    "reg_id_to_parameter_value": "map_string_2_bytes",
    "reg_id_to_size": "map_string_2_int32",
    "workload": "uint64",
    "workload_on_arch": "uint64",
    "debug_mode": "string",
    "if_prefetch": "bool",
    "skip_code_gen": "bool",
    "npuforge_mode": "string",
    "npuforge_partition": "int32",
    "npuforge_instructions": "int32_vec",
}
NEEDED = {"DPU": ("dpu_name", "runner"), "CPU": ("runner",)}  # attributes of a child of the root, by its device


@cache
def operator_table() -> dict[str, Any]:
    """type -> {args: {name: count}, attrs: {name: {type, length?, required | default}}}"""
    table: dict[str, Any] = json.loads(OPS_FILE.read_text())
    return table


def is_builtin(op_type: str) -> bool:
    """Whether XIR knows the type without a plug-in."""
    return op_type in operator_table()


def problems(model: XModel) -> list[str]:
    """Everything that XIR would refuse, one line each, naming the op."""
    found = [line for op in model.ops for line in op_problems(op)]
    found += _axis_problems(model) + _definition_problems(model)
    return found if model.root is None else found + subgraph_problems(model.root)


def check_schema(model: XModel) -> None:
    """FormatError with the first problem and the number of further ones."""
    found = problems(model)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise FormatError(found[0] + more)


def read_checked(path: Path | str) -> XModel:
    """The model in a file that is to be used: structure (`reader.read_xmodel`), every op and subgraph against the tables. FormatError names file and place."""
    model = read_xmodel(path)
    try:
        check_schema(model)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    return model


def subgraph_problems(root: XSubgraph) -> list[str]:
    """What is wrong with the subgraphs of a compiled file: `device` belongs to the children of the root and to nothing below them, where the vendor's
    tools (`xir subgraph`, `xir dump_reg`) take it for one more compiled subgraph."""
    found = []
    for subgraph in root.walk():
        for name, kind in SUBGRAPH_ATTRS.items():
            attr = subgraph.attrs.get(name)
            if attr is not None and attr.kind != kind:
                found.append(f"subgraph {subgraph.name!r}: attribute {name!r} is {attr.kind}; expected {kind}")
    for child in root.children:
        needed = NEEDED.get(str(child.get("device")), ())
        found += [
            f"subgraph {child.name!r}: attribute {name!r} is missing; expected {SUBGRAPH_ATTRS[name]} on the device {child.get('device')}"
            for name in needed
            if name not in child.attrs
        ]
        found += [
            f"subgraph {below.name!r}: attribute 'device' inside of {child.name!r}; expected on children of the root only "
            "(was it written by an older npuforge? compile the network again)"
            for below in child.walk()
            if below is not child and "device" in below.attrs
        ]
    return found


def op_problems(op: XOp) -> list[str]:
    """What is wrong with one op."""
    definition = operator_table().get(op.type, CUSTOM)
    where = op.label
    found = []
    given = dict(op.args)
    for arg in given:
        if arg not in definition["args"]:
            found.append(
                f"{where}: argument {arg!r} is not declared; expected {', '.join(definition['args']) or 'none'}"
            )
    for arg, count in definition["args"].items():
        low, high = _COUNTS[count]
        if arg == "input" and op.type in _TWO_INPUTS:
            low = 2
        number = len(given.get(arg, []))
        if number < low or (high is not None and number > high):
            found.append(f"{where}: argument {arg!r} has {number} producers; expected {count if low < 2 else '2..n'}")
    for name, rule in definition["attrs"].items():
        attr = op.attrs.get(name)
        if attr is None:
            if rule.get("required"):
                found.append(f"{where}: attribute {name!r} is missing; expected {rule['type']}")
        else:
            found += _attr_problems(f"{where}: attribute {name!r}", attr, rule, op.type)
    return found + _value_problems(where, op)


def _attr_problems(where: str, attr: Attr, rule: dict[str, Any], op_type: str) -> list[str]:
    allowed = [rule["type"]]
    if op_type == "resize" and rule["type"] == "float_vec":
        allowed.append("int32_vec")  # the shape code takes both
    if attr.kind not in allowed:
        return [f"{where} is {attr.kind}; expected {rule['type']}"]
    if rule.get("length") and len(attr.value) != rule["length"]:
        return [f"{where} has {len(attr.value)} values; expected {rule['length']}"]
    return []


def _axis_problems(model: XModel) -> list[str]:
    """Axes of built-in operators that their input has not; XIR ends with an exception on them."""
    ranks = {op.name: len(op.tensor.shape) for op in model.ops}
    found = []
    for op in model.ops:
        rule, value = operator_table().get(op.type, CUSTOM)["attrs"].get("axis"), op.get("axis")
        source = next(iter(dict(op.args).get("input", ())), None)
        if rule is None or value is None or source is None or op.attrs["axis"].kind != rule["type"]:
            continue
        rank = ranks[source] + (op.type == "stack")
        for axis in value if isinstance(value, list) else [value]:
            if not -rank <= axis < rank:
                found.append(f"{op.label}: axis {axis}; its input has {rank} axes, expected {-rank} to {rank - 1}")
    return found


def _definition_problems(model: XModel) -> list[str]:
    """XIR ends its process on a definition with an attribute that has no default value."""
    return [
        f"op_defs: {definition.name!r}: attribute {attr.name!r} has no default value; expected one of its type"
        for definition in model.definitions
        for attr in definition.attrs
        if attr.default_value.WhichOneof("value") is None
    ]


def _value_problems(where: str, op: XOp) -> list[str]:
    """Rules about values that XIR checks on loading."""
    found = []
    for name in ("data_type",) if "data_type" in op.attrs else ():
        value = op.get(name)
        if isinstance(value, str) and not _DATA_TYPE.fullmatch(value):
            found.append(f"{where}: data_type {value!r}; expected a type and a width such as XINT8 or FLOAT32")
    shape = op.get("shape")
    if op.type in ("data", "data-fix", "const", "const-fix") and isinstance(shape, list):
        if not shape or any(not isinstance(d, int) or d <= 0 for d in shape):
            found.append(f"{where}: shape {shape}; every dimension must be positive")
        elif shape != op.tensor.shape:
            found.append(f"{where}: shape {shape} but its tensor has {op.tensor.shape}")
    for name, kind in TENSOR_ATTRS.items():
        attr = op.tensor.attrs.get(name)
        if attr is not None and attr.kind != kind:
            found.append(f"{where}: attribute {name!r} of its tensor is {attr.kind}; expected {kind}")
    nonlinear = op.attrs.get("nonlinear")
    if (
        op.type in operator_table()
        and nonlinear is not None
        and nonlinear.kind == "string"
        and nonlinear.value not in NONLINEAR
    ):
        found.append(f"{where}: nonlinear {nonlinear.value!r}; expected one of {', '.join(NONLINEAR[1:])}, or nothing")
    if op.get("nonlinear") in _POOLED and op.type != "eltwise-fix":
        needed = ["hsigmoid_in", "shift_hsigmoid", "shift_bias", "shift_cut"]
        needed += ["shift_hswish"] if op.get("nonlinear") == "HSWISH" else []
        missing = [n for n in needed if op.get(n, -128) == -128]
        if missing:
            found.append(f"{where}: nonlinear {op.get('nonlinear')!r} needs the attributes {', '.join(missing)}")
    if op.type == "pool-fix" and op.get("type") not in ("MAX", "AVG"):
        found.append(f"{where}: type {op.get('type')!r}; expected MAX or AVG")
    return found
