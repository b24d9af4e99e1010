"""Models with custom operators in ONNX Runtime: each custom node computes by its operator's reference. Needs `npuforge[onnxruntime-extensions]`.

onnxruntime-extensions gives Python operators a fixed number of inputs and no list attributes, so every custom node gets an operator type of its own in
a copy of the model, with the attributes in a closure. What the file says is not changed.
"""

from __future__ import annotations

import itertools
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op

from npuforge.compile.ir.errors import ModelError, UnsupportedError, UsageError
from npuforge.hw_kernels.bindings.model_types import STANDARD, as_node, operator_of, tensor_types

_TYPES = {"float32": PyCustomOpDef.dt_float, "int64": PyCustomOpDef.dt_int64, "bool": PyCustomOpDef.dt_bool}
_COUNTER = itertools.count()  # operator types are known to the whole process
# onnxruntime-extensions 0.15 keeps them in one list that moves as it grows: a session made before another type came would crash the process.
_ALIVE: weakref.WeakSet[onnxruntime.InferenceSession] = weakref.WeakSet()


def session(
    model: onnx.ModelProto | bytes | str | Path, providers: tuple[str, ...] = ("CPUExecutionProvider",)
) -> onnxruntime.InferenceSession:
    """A session for a model with custom operators of the registry: a path, the bytes of a file, or a `ModelProto` (which stays as it is).

    Weights in files beside the model are read from its folder, of bytes and a ModelProto they must be inside. Every input of a custom node must be
    float32, int64 or bool.

    Errors: ModelError where the file cannot be read or is no ONNX model; UnsupportedError names a node whose operator nobody registered, or an input
    whose type ONNX cannot infer; UsageError for another kind of argument, and while an earlier session with custom operators is still held:
    onnxruntime-extensions cannot add operators behind it.
    """
    copy = _loaded(model)
    custom = any(node.domain not in STANDARD for node in copy.graph.node)
    if custom and _ALIVE:
        raise UsageError(
            "an earlier session with custom operators is still held, and onnxruntime-extensions would crash it; del that session first, "
            "join both networks in one model, or use the C++ operator library (npuforge export --to onnxruntime)"
        )
    types = tensor_types(copy)
    for node in copy.graph.node:
        if node.domain not in STANDARD:
            _replace(node, types)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    made = onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=list(providers))
    if custom:
        _ALIVE.add(made)
    return made


def _loaded(model: onnx.ModelProto | bytes | str | Path) -> onnx.ModelProto:
    """A model of its own, with every weight in it."""
    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    if not isinstance(model, bytes | str | Path):
        raise UsageError(f"expected a path, the bytes of an ONNX file or a ModelProto, found {type(model).__name__}")
    what, be = ("the bytes given", "are") if isinstance(model, bytes) else (f"file {model}", "is")
    try:
        loaded = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(str(model))
    except OSError as error:
        raise ModelError(f"{what} cannot be read: {error.strerror or error}; give the path of an ONNX file") from None
    except Exception as error:  # protobuf's own, of one kind or another
        raise ModelError(
            f"{what} {be} no ONNX model: {' '.join(str(error).split())}; export the network again"
        ) from None
    if not loaded.opset_import:  # empty bytes parse as an empty message
        raise ModelError(f"{what} {be} no ONNX model: it names no operator set; export the network again")
    return loaded


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
