"""Readable listing of an .xmodel: subgraphs with their attributes, ops with arguments and tensors, the instructions of our NPU subgraphs. Any XIR file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from npuforge.compile.ir.errors import FormatError, InstructionError
from npuforge.compile.xir.model import Attr, Attrs, XModel, XOp, XSubgraph, XTensor
from npuforge.hw_kernels.isa.codec import disassemble_one, split
from npuforge.hw_kernels.isa.instructions import INSTRUCTION_BYTES

LONGEST = 12  # elements of a list that are shown


def attr_value(attr: Attr) -> Any:
    """As plain values; bytes become their number, long lists their first elements and the length."""
    value = attr.value
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    if isinstance(value, dict):
        return {key: attr_value(Attr("", item)) for key, item in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        shown = [attr_value(Attr("", item)) for item in value[:LONGEST]]
        return shown if len(value) <= LONGEST else [*shown, f"… {len(value)} in all"]
    return value


def _attrs(attrs: Attrs) -> dict[str, Any]:
    return {name: attr_value(attr) for name, attr in attrs.items()}


def _text(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def tensor_object(tensor: XTensor) -> dict[str, Any]:
    """Name, shape, type, attributes."""
    return {"name": tensor.name, "shape": tensor.shape, "dtype": tensor.dtype, "attributes": _attrs(tensor.attrs)}


def op_object(op: XOp) -> dict[str, Any]:
    """Name, type, arguments (names of producers), tensor, attributes."""
    return {
        "name": op.name,
        "type": op.type,
        "inputs": dict(op.args),
        "tensor": tensor_object(op.tensor),
        "attributes": _attrs(op.attrs),
    }


def border(model: XModel, subgraph: XSubgraph) -> tuple[list[str], list[str]]:
    """Names of the tensors that come from outside of a subgraph, and of those that leave it: read outside, or by nobody. Sorted."""
    inside = {name for leaf in subgraph.leaves() for name in leaf.ops}
    tensors = {op.name: op.tensor.name for op in model.ops}
    readers: dict[str, set[str]] = {}
    for op in model.ops:
        for producer in op.inputs():
            readers.setdefault(producer, set()).add(op.name)
    comes = {producer for producer, users in readers.items() if producer not in inside and users & inside}
    leaves = {name for name in inside if not readers.get(name) or readers[name] - inside}
    return sorted(tensors[name] for name in comes), sorted(tensors[name] for name in leaves)


def instructions(subgraph: XSubgraph) -> list[str]:
    """`mc_code` of a subgraph that npuforge compiled, one line each; empty for any other. FormatError where it is no code of ours."""
    code, span = subgraph.get("mc_code"), subgraph.get("npuforge_instructions")
    if span is None or not isinstance(code, bytes):
        return []
    if not isinstance(span, list):
        raise FormatError(
            f"subgraph {subgraph.name!r}: npuforge_instructions is {span!r}; expected the first and the number of them"
        )
    if len(span) != 2 or len(code) != span[1] * INSTRUCTION_BYTES:
        raise FormatError(
            f"subgraph {subgraph.name!r}: {len(code)} bytes of mc_code; npuforge_instructions {list(span)} needs "
            f"{(span[1] if len(span) == 2 else 0) * INSTRUCTION_BYTES}"
        )
    lines = []
    for index, data in enumerate(split(code), start=span[0]):
        try:
            lines.append(disassemble_one(data, index))
        except InstructionError as error:
            raise FormatError(f"subgraph {subgraph.name!r}: instruction {index}: {error}") from None
    return lines


def subgraph_object(model: XModel, subgraph: XSubgraph, with_ops: bool) -> dict[str, Any]:
    """Name, attributes, tensors at the border, and its children or (`with_ops`) ops; instructions where it has some."""
    comes, leaves = border(model, subgraph)
    found: dict[str, Any] = {
        "name": subgraph.name,
        "attributes": _attrs(subgraph.attrs),
        "inputs": comes,
        "outputs": leaves,
    }
    if subgraph.children:
        found["children"] = [subgraph_object(model, child, with_ops) for child in subgraph.children]
    elif with_ops:
        ops = {op.name: op for op in model.ops}
        found["ops"] = [op_object(ops[name]) for name in subgraph.ops]
    if with_ops and (lines := instructions(subgraph)):
        found["instructions"] = lines
    return found


def model_object(model: XModel, with_ops: bool = True) -> dict[str, Any]:
    """The whole file as plain values."""
    root = model.root
    return {
        "name": model.name,
        "attributes": _attrs(model.attrs),
        "ops": len(model.ops),
        "subgraphs": [] if root is None else [subgraph_object(model, root, with_ops)],
    }


def _op_line(op: dict[str, Any]) -> str:
    inputs = ", ".join(f"{arg}: {' '.join(producers)}" for arg, producers in op["inputs"].items())
    tensor = op["tensor"]
    hidden = ("shape", "data_type", "data", "device")
    attributes = {name: value for name, value in op["attributes"].items() if name not in hidden}
    shape = "x".join(map(str, tensor["shape"]))
    notes = [_text(attributes), _text({k: v for k, v in tensor["attributes"].items() if k != "round_mode"})]
    return f"{op['type']} {op['name']}({inputs}) -> {tensor['name']} {tensor['dtype']} {shape}" + "".join(
        f" [{note}]" for note in notes if note
    )


def _subgraph_lines(subgraph: dict[str, Any], depth: int) -> Iterator[str]:
    pad = "  " * depth
    device = subgraph["attributes"].get("device", "")
    yield f"{pad}subgraph {subgraph['name']} {device}".rstrip()
    for name, value in subgraph["attributes"].items():
        if name != "device":
            yield f"{pad}  .{name} = {value!r}"
    for side in ("inputs", "outputs"):
        if subgraph[side]:
            yield f"{pad}  {side}: {', '.join(subgraph[side])}"
    for op in subgraph.get("ops", []):
        yield f"{pad}  {_op_line(op)}"
    for child in subgraph.get("children", []):
        yield from _subgraph_lines(child, depth + 1)
    for line in subgraph.get("instructions", []):
        yield f"{pad}  {line}"


def model_lines(model: XModel, with_ops: bool = True) -> list[str]:
    """The listing; without `with_ops` the subgraphs alone."""
    found = model_object(model, with_ops)
    lines = [f"graph {found['name']}: {found['ops']} ops"]
    lines += [f"  .{name} = {value!r}" for name, value in found["attributes"].items()]
    for subgraph in found["subgraphs"]:
        lines += _subgraph_lines(subgraph, 0)
    return lines
