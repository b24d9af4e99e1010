"""Cases of CPU operators as one-node ONNX models: random shapes and attributes, made by hypothesis or listed. Used by test_cpu_operators.py."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from npuforge.board_runtime import _native
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.host import HostOp

TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}
TYPES |= {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


@dataclass
class OpCase:
    """inputs: arrays (None: omitted); constant: which of them are constants in the model; opset: of the ONNX model."""

    op: str
    inputs: list[np.ndarray | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 17
    constant: list[bool] | None = None

    def constants(self) -> list[bool]:
        """By default every input but the first that is not float32."""
        if self.constant is not None:
            return self.constant
        return [i > 0 and a is not None and a.dtype != np.float32 for i, a in enumerate(self.inputs)]


def run_native(case: OpCase, activation: dict[str, Any] | None = None) -> list[np.ndarray]:
    """The C++ operator."""
    attrs = json.dumps({k: v for k, v in case.attrs.items() if v is not None})
    return list(
        _native.run_operator(case.op, attrs, json.dumps(activation), case.inputs, case.constants(), case.outputs)
    )


def run_onnx(case: OpCase) -> list[np.ndarray]:
    """ONNX Runtime on the same node, everything as graph inputs except what must be constant."""
    constants, inputs, names, feeds = case.constants(), [], [], {}
    initialisers = []
    for i, array in enumerate(case.inputs):
        if array is None:
            names.append("")
            continue
        name = f"x{i}"
        names.append(name)
        if constants[i]:
            initialisers.append(numpy_helper.from_array(array, name))
        else:
            inputs.append(helper.make_tensor_value_info(name, TYPES[array.dtype.name], array.shape))
            feeds[name] = array
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, **{k: v for k, v in case.attrs.items() if v is not None})
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_empty_tensor_value_info(name) for name in outputs], initialisers
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feeds)]


def run_reference(case: OpCase) -> list[np.ndarray]:
    """The float64 meaning in the operator's folder."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(case.inputs)]
    attrs = {k: v for k, v in case.attrs.items() if v is not None}
    node = Node("node", case.op, names, [f"y{i}" for i in range(case.outputs)], attrs)
    wide = [a.astype(np.float64) if a is not None and a.dtype.kind == "f" else a for a in case.inputs]
    found = operator.registry()[case.op].reference(node, wide)
    with np.errstate(over="ignore"):
        return [y.astype(np.float32) if y.dtype.kind == "f" else y for y in found]


def check(case: OpCase, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    """C++ == ONNX Runtime == reference: same types, same shapes, values within float rounding (integers exactly)."""
    expected = run_onnx(case)
    found, meaning = run_native(case), run_reference(case) if isinstance(operator.find(case.op), HostOp) else []
    assert len(found) == len(expected)
    pairs = [*zip(found, expected, strict=True), *zip(meaning, expected, strict=bool(meaning))]
    for got, want in pairs:
        assert got.dtype == want.dtype, (case.op, got.dtype, want.dtype)
        assert got.shape == want.shape, (case.op, got.shape, want.shape)
        if want.dtype == np.float32:
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=f"{case.op} {case.attrs}")
        else:
            np.testing.assert_array_equal(got, want, err_msg=f"{case.op} {case.attrs}")
