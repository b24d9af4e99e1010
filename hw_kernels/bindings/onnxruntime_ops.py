"""Models with custom operators in ONNX Runtime: each custom node computes by its operator's reference. Needs `npuforge[onnxruntime-extensions]`.

onnxruntime-extensions gives Python operators a fixed number of inputs and no list attributes, so every custom node gets an operator type of its own in
a copy of the model, with the attributes in a closure. What the file says is not changed.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator

_TYPES = {"float32": PyCustomOpDef.dt_float, "int64": PyCustomOpDef.dt_int64, "bool": PyCustomOpDef.dt_bool}
_COUNTER = itertools.count()  # operator types are known to the whole process


def session(
    model: onnx.ModelProto, providers: tuple[str, ...] = ("CPUExecutionProvider",)
) -> onnxruntime.InferenceSession:
    """A session for a model with custom operators of the registry. Every input of a custom node must be float32, int64 or bool.

    Errors: UnsupportedError names a node whose operator nobody registered, or an input whose type ONNX cannot infer.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    types = _tensor_types(copy)
    for node in copy.graph.node:
        if node.domain not in ("", "ai.onnx"):
            _replace(node, types)
    domains = {o.domain for o in copy.opset_import}
    assert "" in domains
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    return onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=list(providers))


def _tensor_types(model: onnx.ModelProto) -> dict[str, str]:
    """numpy dtype names by tensor; custom nodes by their own rule, the others by ONNX's inference step by step."""
    types = {i.name: numpy_helper.to_array(i).dtype.name for i in model.graph.initializer}
    types |= {v.name: _dtype(v.type.tensor_type.elem_type) for v in model.graph.input}
    for node in model.graph.node:
        if node.domain in ("", "ai.onnx"):
            part = helper.make_model(
                helper.make_graph(
                    [node],
                    "part",
                    [
                        helper.make_tensor_value_info(t, helper.np_dtype_to_tensor_dtype(np.dtype(types[t])), None)
                        for t in node.input
                        if t
                    ],
                    [onnx.ValueInfoProto(name=t) for t in node.output],
                ),
                opset_imports=list(model.opset_import),
            )
            inferred = onnx.shape_inference.infer_shapes(part)
            known = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output)}
            types |= {t: _dtype(known[t].type.tensor_type.elem_type) for t in node.output if t}
            continue
        given = [types[t] for t in node.input if t]
        types |= dict(zip(node.output, _operator(node).output_types(_as_node(node), given), strict=False))
    return types


def _dtype(element: int) -> str:
    return np.dtype(helper.tensor_dtype_to_np_dtype(element)).name


def _operator(node: onnx.NodeProto) -> operator.Op:
    name = f"{node.domain}::{node.op_type}"
    found = operator.find(name)
    if found is None:
        raise UnsupportedError(
            f"node '{node.name}': no operator '{name}' is known; register it under the entry point group {operator.ENTRY_POINT_GROUP}"
        )
    return found


def _as_node(node: onnx.NodeProto) -> Node:
    attrs: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        attrs[attribute.name] = value
    return Node(node.name, f"{node.domain}::{node.op_type}", list(node.input), list(node.output), attrs)


def _replace(node: onnx.NodeProto, types: dict[str, str]) -> None:
    """Gives the node an operator type of its own."""
    op, meaning = _operator(node), _as_node(node)
    kinds = [types[t] for t in (*node.input, *node.output)]
    unknown = next((k for k in kinds if k not in _TYPES), None)
    if unknown is not None:
        raise UnsupportedError(
            f"node '{node.name}': type {unknown} is not supported here; expected float32, int64 or bool"
        )
    results = kinds[len(node.input) :]

    def compute(*inputs: np.ndarray) -> Any:
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
        found = [y.astype(k) for y, k in zip(op.reference(meaning, wide), results, strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    own = f"{node.op_type}_{next(_COUNTER)}"
    codes = [_TYPES[k] for k in kinds]
    onnx_op(op_type=f"{node.domain}::{own}", inputs=codes[: len(node.input)], outputs=codes[len(node.input) :])(compute)
    node.op_type = own
    del node.attribute[:]
