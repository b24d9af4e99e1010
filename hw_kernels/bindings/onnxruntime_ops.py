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
from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.hw_kernels.bindings.model_types import STANDARD, as_node, operator_of, tensor_types

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
    types = tensor_types(copy)
    for node in copy.graph.node:
        if node.domain not in STANDARD:
            _replace(node, types)
    domains = {o.domain for o in copy.opset_import}
    assert "" in domains
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    return onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=list(providers))


def _replace(node: onnx.NodeProto, types: dict[str, str]) -> None:
    """Gives the node an operator type of its own."""
    op, meaning = operator_of(node), as_node(node)
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
