"""Operators that the kit does not have but ONNX defines by other operators (`Attention`, `RotaryEmbedding`, …) are written out by that definition.

The float reference still runs the file as it is. A definition with control flow in it is left alone, as are the quantised operators, which have
steps of their own.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import inliner

from npuforge.compile.steps.infer import find_operator
from npuforge.compile.steps.onnx_nodes import STANDARD
from npuforge.compile.steps.partition import cpu_operators

_OWN_STEPS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_DOMAIN = "npuforge.definitions"
_DEPTH = 8  # definitions within definitions
Origins = dict[str, str]  # name of a node that was written out -> name of the node in the file


def expand_functions(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Origins]:
    """The model with such nodes replaced, as long as there are any; every node has a unique name before and after."""
    origins: Origins = {}
    for _ in range(_DEPTH):
        called, replaced = _call_functions(model)
        if not replaced:
            break
        expanded = inliner.inline_local_functions(called)
        _name_nodes(model, expanded, replaced, origins)
        model = expanded
    return model, origins


def _call_functions(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[onnx.NodeProto]]:
    """A copy in which each such node calls a local function of its own (definitions depend on attributes and types), and the nodes replaced."""
    version = next((o.version for o in model.opset_import if o.domain in STANDARD), 0)
    called = onnx.ModelProto()
    called.CopyFrom(model)
    replaced, types = [], None
    for node in called.graph.node:
        schema = _defined(node, version)
        if schema is None:
            continue
        types = types or _types(model)
        body = _definition(schema, node, types, version)
        if body is None:
            continue
        original = onnx.NodeProto()
        original.CopyFrom(node)
        replaced.append(original)
        body.domain, body.name = _DOMAIN, f"{node.op_type}_{len(replaced)}"
        called.functions.append(body)
        node.domain, node.op_type = body.domain, body.name
    if replaced:
        called.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return called, replaced


def _defined(node: onnx.NodeProto, version: int) -> Any:  # onnx's stubs know too little of its OpSchema
    """The schema of a standard operator that the kit lacks and that ONNX defines by others, else None."""
    op = node.op_type
    if node.domain not in STANDARD or op in cpu_operators() or op in _OWN_STEPS or find_operator(op) is not None:
        return None
    try:
        schema: Any = onnx.defs.get_schema(op, version, "")
    except onnx.defs.SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _definition(schema: Any, node: onnx.NodeProto, types: dict[str, bytes], version: int) -> onnx.FunctionProto | None:
    """The function body for this node, None where there is none without control flow."""
    body = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        given = [types.get(name, b"") for name in node.input]
        body.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), given)
        )
    else:
        body.ParseFromString(schema.get_function_with_opset_version(version))
    has_control_flow = any(a.HasField("g") for n in body.node for a in n.attribute)
    return None if has_control_flow or not body.node else body


def _types(model: onnx.ModelProto) -> dict[str, bytes]:
    """Serialised types by tensor name, as far as ONNX can infer them."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v.type.SerializeToString() for v in (*graph.value_info, *graph.input, *graph.output)}
    for tensor in graph.initializer:
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims).SerializeToString()
    return types


def _name_nodes(
    before: onnx.ModelProto, after: onnx.ModelProto, replaced: list[onnx.NodeProto], origins: Origins
) -> None:
    """Names of the new nodes. Each replaced node stands where it stood, up to the node that writes the last of its outputs."""
    taken = {n.name for n in before.graph.node}
    kept = taken - {n.name for n in replaced}
    waiting = list(replaced)
    missing = {t for t in waiting[0].output if t}
    for node in after.graph.node:
        if node.name in kept:
            continue
        source = waiting[0].name
        count, name = 1, f"{source}/{node.op_type}"
        while name in taken:
            count += 1
            name = f"{source}/{node.op_type}_{count}"
        taken.add(name)
        node.name = name
        origins[name] = origins.get(source, source)
        missing -= set(node.output)
        if not missing and len(waiting) > 1:
            waiting.pop(0)
            missing = {t for t in waiting[0].output if t}
