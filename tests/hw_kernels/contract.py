"""What the contract test asks of an operator: its cases as arrays, ONNX Runtime's word on a standard operator, central differences."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.operator import Case, Op

OPSETS = (26, 24, 23, 22, 21, 20, 18, 17, 13, 12, 11, 10, 9, 7)


@dataclass(frozen=True)
class Subject:
    """One operator on one case."""

    name: str
    number: int

    @property
    def op(self) -> Op:
        return operator.registry()[self.name]

    @property
    def case(self) -> Case:
        return self.op.cases[self.number]

    def graph(self, seed: int = 5) -> Graph:
        return operator.case_graph(self.name, self.case, seed)

    def inputs(self, seed: int = 5) -> list[Any]:
        return operator.case_inputs(self.case, seed)

    def __str__(self) -> str:
        return f"{self.name.replace('::', '.')}-{self.number}"


def subjects(wanted: Callable[[Op], bool] = lambda op: True) -> list[Subject]:
    """Every operator that is `wanted`, on every case."""
    return [Subject(n, i) for n, op in sorted(operator.registry().items()) if wanted(op) for i in range(len(op.cases))]


def wide(inputs: list[Any]) -> list[Any]:
    """Floats as float64."""
    return [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]


def _element(y: np.ndarray) -> int:
    return int(TensorProto.FLOAT if y.dtype.kind == "f" else helper.np_dtype_to_tensor_dtype(y.dtype))


def standard_model(graph: Graph, results: list[np.ndarray]) -> onnx.ModelProto:
    """The one node as an ONNX model of the newest operator set that accepts it and ONNX Runtime has; every float input is a graph input.

    Outputs have the types and ranks of `results`; ONNX's strict inference refuses wrong ones.
    """
    node = graph.nodes[0]
    values = [graph.tensors[t] for t in node.inputs]
    types = [helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype)) for v in values]
    # What the kernels read at load must be constant: integer lists, limits.
    fixed = [t in graph.constants and graph.constants[t].dtype.kind != "f" for t in node.inputs]
    attrs = {k: (numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v) for k, v in node.attrs.items()}
    attrs.pop("ceil_pads", None)
    proto = helper.make_node(node.op, node.inputs, node.outputs, **attrs)
    errors = []
    without: onnx.ModelProto | None = None  # valid, but ONNX Runtime has no such operator
    for opset in OPSETS:
        model = helper.make_model(
            helper.make_graph(
                [proto],
                "case",
                [
                    helper.make_tensor_value_info(v.name, t, v.shape)
                    for v, t, f in zip(values, types, fixed, strict=True)
                    if not f
                ],
                [
                    helper.make_tensor_value_info(o, _element(y), [None] * y.ndim)
                    for o, y in zip(node.outputs, results, strict=True)
                ],
                [numpy_helper.from_array(graph.constants[t], t) for t, f in zip(node.inputs, fixed, strict=True) if f],
            ),
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=8,
        )
        try:
            model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
            onnx.checker.check_model(model)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            errors.append(f"{opset}: {str(error).splitlines()[0]}")
            continue
        try:
            _session(model)
        except NotImplemented:
            without = without or model
            continue
        return model
    if without is not None:
        return without
    raise AssertionError(f"no operator set accepts {node.op} {node.attrs}: {errors}")


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_onnx(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[np.ndarray]:
    """ONNX Runtime's outputs; those of ONNX's reference implementation where ONNX Runtime lacks the operator."""
    wanted = {k: v for k, v in feeds.items() if k in {i.name for i in model.graph.input}}
    try:
        return [np.asarray(a) for a in _session(model).run(None, wanted)]
    except NotImplemented:
        return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, wanted)]


def run_cpu(node: Node, inputs: list[Any]) -> list[np.ndarray]:
    """The C++ kernel of the CPU partition, the fused activation included."""
    from npuforge.board_runtime import _native

    activation = node.activation
    record: dict[str, Any] | None = None
    if activation.kind != "none":
        slope = None if activation.slope is None else np.asarray(activation.slope).tolist()
        record = {k: getattr(activation, k) for k in ("kind", "alpha", "beta")} | {"slope": slope}
        record |= {k: v for k in ("low", "high") if np.isfinite(v := getattr(activation, k))}
    attrs = {k: (v.ravel()[0].item() if isinstance(v, np.ndarray) else v) for k, v in node.attrs.items()}
    arrays = [np.ascontiguousarray(x) for x in inputs]
    constant = [(i > 0 and x.dtype.kind != "f") or node.op == "ConstantOfShape" for i, x in enumerate(arrays)]
    return list(
        _native.run_operator(node.op, json.dumps(attrs), json.dumps(record), arrays, constant, len(node.outputs))
    )


STEP = 1e-6


def differences(f: Callable[[np.ndarray], float], x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Central differences of a scalar function of `x` at the flat indices `places`; the function sees `x` itself changed."""
    flat = x.reshape(-1)
    found = []
    for i in places:
        kept = flat[i]
        flat[i] = kept + STEP
        upper = f(x)
        flat[i] = kept - STEP
        lower = f(x)
        flat[i] = kept
        found.append((upper - lower) / (2 * STEP))
    return np.asarray(found)


def chosen(random: np.random.Generator, size: int, most: int = 24) -> np.ndarray:
    """All flat indices of a small array, a sample of a large one."""
    return np.arange(size) if size <= most else random.choice(size, most, replace=False)


def check_gradient(op: Op, node: Node, inputs: list[Any], seed: int = 3) -> int:
    """`gradient` against central differences of the sum of random weights times the outputs; how many inputs have a gradient."""
    random = np.random.default_rng(seed)
    inputs = [np.array(x) for x in wide(inputs)]
    outputs = op.reference(node, inputs)
    weights = [random.normal(size=y.shape) for y in outputs]
    gradients = op.gradient(node, inputs, weights)
    assert len(gradients) == len(inputs)
    count = 0
    for x, gradient in zip(inputs, gradients, strict=True):
        if gradient is None:
            continue
        count += 1
        assert gradient.shape == x.shape and gradient.dtype == np.float64, (gradient.shape, gradient.dtype)
        places = chosen(random, x.size)

        def value(_: np.ndarray) -> float:
            return sum(float((w * y).sum()) for w, y in zip(weights, op.reference(node, inputs), strict=True))

        expected = differences(value, x, places)
        np.testing.assert_allclose(gradient.reshape(-1)[places], expected, rtol=1e-5, atol=2e-6)
    return count


def check_second_gradient(op: Op, node: Node, inputs: list[Any], seed: int = 4) -> None:
    """`second_gradient` against central differences of `gradient`."""
    random = np.random.default_rng(seed)
    inputs = [np.array(x) for x in wide(inputs)]
    dys = [random.normal(size=y.shape) for y in op.reference(node, inputs)]
    directions = [None if g is None else random.normal(size=g.shape) for g in op.gradient(node, inputs, dys)]
    of_inputs, of_dys = op.second_gradient(node, inputs, dys, directions)

    def value(_: np.ndarray) -> float:
        found = op.gradient(node, inputs, dys)
        return sum(
            float((v * g).sum()) for v, g in zip(directions, found, strict=True) if v is not None and g is not None
        )

    for x, gradient in [*zip(inputs, of_inputs, strict=True), *zip(dys, of_dys, strict=True)]:
        if gradient is None:
            continue
        assert gradient.shape == x.shape
        places = chosen(random, x.size)
        expected = differences(value, x, places)
        np.testing.assert_allclose(gradient.reshape(-1)[places], expected, rtol=1e-5, atol=2e-6)
