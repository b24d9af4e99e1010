"""Element types of the tensors of an ONNX model with custom operators, and its custom nodes in the kit's vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator

STANDARD = ("", "ai.onnx")


def tensor_types(model: onnx.ModelProto) -> dict[str, str]:
    """numpy dtype names by tensor; custom nodes by their own rule, the others by ONNX's inference step by step.

    What an operator that nobody registered gives, and what depends on it, is absent.
    """
    types = {i.name: numpy_helper.to_array(i).dtype.name for i in model.graph.initializer}
    types |= {v.name: dtype_name(v.type.tensor_type.elem_type) for v in model.graph.input}
    for node in model.graph.node:
        if any(t and t not in types for t in node.input):
            continue
        if node.domain in STANDARD:
            types |= _standard_types(node, types, list(model.opset_import))
        elif (own := find(node)) is not None:
            given = [types[t] for t in node.input if t]
            types |= dict(zip(node.output, own.output_types(as_node(node), given), strict=False))
    return types


def _standard_types(
    node: onnx.NodeProto, types: dict[str, str], opsets: list[onnx.OperatorSetIdProto]
) -> dict[str, str]:
    inputs = [helper.make_tensor_value_info(t, _element(types[t]), None) for t in node.input if t]
    outputs = [onnx.ValueInfoProto(name=t) for t in node.output]
    part = helper.make_model(helper.make_graph([node], "part", inputs, outputs), opset_imports=opsets)
    inferred = onnx.shape_inference.infer_shapes(part)
    known = {v.name: v.type.tensor_type.elem_type for v in (*inferred.graph.value_info, *inferred.graph.output)}
    return {t: dtype_name(known[t]) for t in node.output if t and known.get(t)}


def _element(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def dtype_name(element: int) -> str:
    """numpy's name of an ONNX element type."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(element)).name


def find(node: onnx.NodeProto) -> operator.Op | None:
    """The registered operator of a custom node."""
    return operator.find(f"{node.domain}::{node.op_type}")


def operator_of(node: onnx.NodeProto) -> operator.Op:
    """The registered operator of a custom node; UnsupportedError naming the node where there is none."""
    found = find(node)
    if found is None:
        raise UnsupportedError(
            f"node '{node.name}': no operator '{node.domain}::{node.op_type}' is known; register it under the entry point group {operator.ENTRY_POINT_GROUP}"
        )
    return found


def as_node(node: onnx.NodeProto) -> Node:
    """A custom node as the operators take it."""
    attrs: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        attrs[attribute.name] = value
    return Node(node.name, f"{node.domain}::{node.op_type}", list(node.input), list(node.output), attrs)
