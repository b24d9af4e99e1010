"""Checks an .xmodel against XIR 3.5's own operator table (`ops.json`: argument names and counts, attribute names, wire types, list lengths), what its
operators read beside it (`UNDECLARED`, `VALUES`) and its shape rules (`shapes.py`), and its subgraphs against what the vendor's tools and runtime ask of
them (`SUBGRAPH_ATTRS`, `NEEDED`).

`ops.json` holds the 106 built-in definitions as the vendor's library writes them into its files. A type that is not in it is a custom one: its only
argument is `input`, and the attributes `shape` (int32 list) and `data_type` (string) are required.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import Attr, XModel, XOp, XSubgraph
from npuforge.compile.xir.reader import read_xmodel
from npuforge.compile.xir.shapes import refusals

OPS_FILE = Path(__file__).with_name("ops.json")
CUSTOM: dict[str, Any] = {
    "args": {"input": "0..n"},
    "attrs": {"shape": {"type": "int32_vec", "required": True}, "data_type": {"type": "string", "required": True}},
}
_COUNTS = {"1": (1, 1), "0..1": (0, 1), "0..n": (0, None), "1..n": (1, None)}
_DATA_TYPE = re.compile(r"(INT|UINT|XINT|XUINT|FLOAT|BFLOAT|int|uint|xint|xuint|float|bfloat)[1-9][0-9]{0,8}")
_TWO_INPUTS = ("add", "sub", "mul", "div", "min", "max")
SOURCES = ("data", "data-fix", "const", "const-fix", "random_standard_normal")
_POOLED = ("HSIGMOID", "HSWISH")
NONLINEAR = ("", "NONE", "RELU", "PRELU", "LEAKYRELU", "RELU6", *_POOLED)  # what the vendor's operators know
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_SLICE = {name: {"type": "int32"} for name in _MASKS}
UNDECLARED: dict[str, dict[str, Any]] = {  # attributes that operators read though their definition does not have them
    "strided_slice": _SLICE,
    "strided_slice-fix": _SLICE,
    "pixel-shuffle-fix": {"upscale": {"type": "bool", "required": True}},
}
_SCALED = ("NEAREST", "BILINEAR")
_PADDED = ("CONSTANT", "REFLECT", "SYMMETRIC")
VALUES: dict[str, dict[str, tuple[str, ...]]] = {  # attribute -> operator, "" for any that XIR knows -> what it may be
    "pad_mode": {"": ("FLOOR", "CEIL", "SAME", "VALID")},
    "round_mode": {"": ("STD_ROUND", "DPU_ROUND", "PY3_ROUND")},
    "nonlinear": {"": NONLINEAR},
    "mode": {
        **{"resize": (*_SCALED, "TRILINEAR"), "upsample-fix": _SCALED, "downsample-fix": _SCALED},
        **{"pad": _PADDED, "pad-fix": _PADDED},
    },
    "type": {"pool-fix": ("MAX", "AVG"), "eltwise-fix": ("ADD", "MUL"), "depthwise-fix": ("ADD", "MUL")},
}
TENSOR_ATTRS = {  # wire types of what compilers write and runtimes read
    "fix_point": "int32",
    "bit_width": "int32",
    "if_signed": "bool",
    "round_mode": "string",
    "shape_info": "int32_vec",
    "reg_id": "int32",
    "ddr_addr": "int32",
    "location": "int32",
    "stride": "int32_vec",
    "npuforge_scale": "double_vec",
    "npuforge_zero_point": "int32_vec",
    "npuforge_image_mean": "double_vec",
    "npuforge_row_stride": "int32",
    "npuforge_bool": "bool",
    "npuforge_scalar": "bool",
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
    by_op = {op.name: op_problems(op) for op in model.ops}
    for name, line in _axis_problems(model):
        by_op[name].append(line)
    wrong = {name for name, lines in by_op.items() if lines}  # whose attributes the shape rules cannot read
    found = [line for lines in by_op.values() for line in lines]
    found += refusals(model, beside=wrong) + _definition_problems(model)
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
    for name, rule in (definition["attrs"] | UNDECLARED.get(op.type, {})).items():
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


def _axis_problems(model: XModel) -> list[tuple[str, str]]:
    """Axes of built-in operators that their input has not, by the op's name; XIR ends with an exception on them."""
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
                expected = f"expected {-rank} to {rank - 1}" if rank else "expected none"
                found.append((op.name, f"{op.label}: axis {axis}; its input has {rank} axes, {expected}"))
    return found


def _definition_problems(model: XModel) -> list[str]:
    """XIR ends its process on a definition with an attribute that has no default value."""
    return [
        f"op_defs: {definition.name!r}: attribute {attr.name!r} has no default value; expected one of its type"
        for definition in model.definitions
        for attr in definition.attrs
        if attr.default_value.WhichOneof("value") is None
    ]


def _choice(values: tuple[str, ...]) -> str:
    if len(values) == 2:
        return " or ".join(values)
    return f"one of {', '.join(v for v in values if v)}" + (", or nothing" if "" in values else "")


def _own_problems(op: XOp) -> Iterator[str]:
    """What our attributes say of a tensor and it is not."""
    tensor, declared = op.tensor, op.attrs.get("npuforge_open_shape")
    if declared is not None:
        fits = declared.kind == "int32_vec" and len(declared.value) == len(tensor.shape)
        if not fits or any(d not in (-1, size) for d, size in zip(declared.value, tensor.shape, strict=True)):
            yield f"npuforge_open_shape {declared.value!r} of a tensor {tensor.shape}; expected its sizes, or -1 where the data decide"
    if "npuforge_scalar" in tensor.attrs and math.prod(tensor.shape) != 1:
        yield f"npuforge_scalar on a tensor {tensor.shape}; expected one element"
    if "npuforge_bool" in tensor.attrs and tensor.dtype != "UINT8":
        yield f"npuforge_bool on a tensor of {tensor.dtype}; expected UINT8"


def _value_problems(where: str, op: XOp) -> list[str]:
    """Rules about values that XIR checks on loading."""
    found = []
    for name in ("data_type",) if "data_type" in op.attrs else ():
        value = op.get(name)
        if isinstance(value, str) and not _DATA_TYPE.fullmatch(value):
            found.append(f"{where}: data_type {value!r}; expected a type and a width such as XINT8 or FLOAT32")
    shape = op.get("shape")
    if isinstance(shape, list) and (op.type in SOURCES or not is_builtin(op.type)):
        if not shape or any(not isinstance(d, int) or d <= 0 for d in shape):
            found.append(f"{where}: shape {shape}; expected at least one dimension, each positive")
        elif op.type in SOURCES and shape != op.tensor.shape:
            found.append(f"{where}: shape {shape} but its tensor has {op.tensor.shape}")
    for name, kind in TENSOR_ATTRS.items():
        attr = op.tensor.attrs.get(name)
        if attr is not None and attr.kind != kind:
            found.append(f"{where}: attribute {name!r} of its tensor is {attr.kind}; expected {kind}")
    found += [f"{where}: {problem}" for problem in _own_problems(op)]
    for name, allowed in VALUES.items():
        values, attr = allowed.get(op.type, allowed.get("")), op.attrs.get(name)
        if values and is_builtin(op.type) and attr is not None and attr.kind == "string" and attr.value not in values:
            found.append(f"{where}: {name} {attr.value!r}; expected {_choice(values)}")
    if op.get("nonlinear") in _POOLED and op.type != "eltwise-fix":
        needed = ["hsigmoid_in", "shift_hsigmoid", "shift_bias", "shift_cut"]
        needed += ["shift_hswish"] if op.get("nonlinear") == "HSWISH" else []
        missing = [n for n in needed if op.get(n, -128) == -128]
        if missing:
            found.append(f"{where}: nonlinear {op.get('nonlinear')!r} needs the attributes {', '.join(missing)}")
    width = op.attrs.get("bit_width")
    if op.type == "float2fix" and width is not None and width.kind == "int32" and width.value < 1:
        found.append(f"{where}: bit_width {width.value}; expected a positive one")
    return found
