"""bfloat16 in an ONNX model as float32, which holds every value exactly: ONNX Runtime has hardly any kernels for bfloat16, so that a float reference in it
would not exist. (The kit's own graph computes such a network in float32 anyway.)"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

_NARROW, _WIDE = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT


def widen_bfloat16(model: onnx.ModelProto) -> None:
    """In place: initialisers, constants, types of inputs, outputs and values, targets of casts; subgraphs too."""
    for graph in _graphs(model.graph):
        for tensor in graph.initializer:
            _widen(tensor)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == _NARROW:
                value.type.tensor_type.elem_type = _WIDE
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    _widen(attribute.t)
                elif attribute.name in ("to", "dtype") and attribute.i == _NARROW:
                    attribute.i = _WIDE


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == _NARROW:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
