"""What the runtime refuses for its element type, the compile refuses: every operator of the CPU partition in every type that ONNX's schema allows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip(
    "npuforge.board_runtime._native", reason="the native module is not built: python setup.py build_ext --inplace"
)
from npuforge.board_runtime import _native
from npuforge.board_runtime.session import Session
from npuforge.compile.host_program import float_graph, host_program
from npuforge.compile.ir.errors import NpuforgeError, UnsupportedError
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.steps.host_types import RUNTIME_TYPES, check_types
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.operator import Case

sys.path.insert(0, str(Path(__file__).parents[1] / "board_runtime"))
from cpu_cases import OpCase, check, run_native, run_onnx

CPU = ["CPUExecutionProvider"]
ONNX_NAMES = {
    "tensor(float)": "float32",
    **{f"tensor({t})": t for t in ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool")},
}


def subjects() -> Iterator[tuple[str, Case]]:
    known = operator.registry()
    for name in _native.cpu_operators():
        for case in known[name].cases if name in known else ():
            yield name, case


def variables(name: str, count: int) -> dict[str, tuple[list[int], set[str]]]:
    """Type variable → the inputs it names, the element types it allows; an operator that ONNX does not have: all inputs of input 0's type, any type."""
    try:
        schema = onnx.defs.get_schema(name, "")
    except onnx.defs.SchemaError:
        return {"first": ([0], set(ONNX_NAMES.values()))}
    allowed = {c.type_param_str: {ONNX_NAMES.get(t, "") for t in c.allowed_type_strs} for c in schema.type_constraints}
    names = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(count)]
    return {v: ([i for i, n in enumerate(names) if n == v], allowed.get(v, set())) for v in dict.fromkeys(names)}


def drawn(name: str, case: Case, own: list[int], dtype: str) -> tuple[list[np.ndarray], list[bool]]:
    """The case's inputs with those at `own` in `dtype`, and which of all are constants. Indices and axes stay what they are; data get no zeros, as some operators
    divide."""
    values = [np.ascontiguousarray(v) for v in operator.case_inputs(case)]
    constant = [(i > 0 or name == "ConstantOfShape") and v.dtype.kind != "f" for i, v in enumerate(values)]
    for i in own:
        if values[i].dtype.name != dtype:
            whole = np.clip(np.round(np.abs(3 * values[i].astype(np.float64))), 1, 100)
            values[i] = (values[i] if values[i].dtype.kind == "i" else whole).astype(dtype)
    return values, constant


def runs(name: str, case: Case, values: list[np.ndarray], constant: list[bool]) -> bool:
    attrs = json.dumps({k: np.asarray(v).tolist() for k, v in case.attrs.items()})
    try:
        _native.run_operator(name, attrs, "null", values, constant, case.outputs)
    except (NpuforgeError, TypeError):
        return False
    return True


def compiles(name: str, case: Case, values: list[np.ndarray], constant: list[bool]) -> bool:
    names = [f"x{i}" for i in range(len(values))]
    node = Node("node", name, names, [f"y{i}" for i in range(case.outputs)], dict(case.attrs), sources=["node"])
    tensors = {n: TensorInfo(n, v.shape, v.dtype.name) for n, v in zip(names, values, strict=True)}
    # Result types are ONNX's own inference's business; here one that the runtime has.
    tensors |= {n: TensorInfo(n, (), "float32") for n in node.outputs}
    constants = {n: v for n, v, c in zip(names, values, constant, strict=True) if c}
    try:
        check_types(
            node, Graph("g", [node], tensors, constants, [n for n in names if n not in constants], node.outputs)
        )
    except UnsupportedError as error:
        assert all(part in str(error) for part in ("node 'node'", name, "tensor 'x", "export the network with"))
        return False
    return True


def test_compile_refuses_what_the_runtime_refuses() -> None:
    wrong, taken, refused = set(), 0, 0
    for name, case in subjects():
        count = len(operator.case_inputs(case))
        for variable, (own, allowed) in variables(name, count).items():
            for dtype in sorted(allowed - {""}):
                values, constant = drawn(name, case, own, dtype)
                compiled, ran = compiles(name, case, values, constant), runs(name, case, values, constant)
                taken, refused = taken + ran, refused + (not ran)
                if compiled != ran:
                    wrong.add(f"{name} {variable} {dtype}: compiles {compiled}, runs {ran}")
    assert not wrong, "\n".join(sorted(wrong))
    assert taken > 500 and refused > 100  # it does try both


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_relu_of_integers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    case = OpCase("Relu", [np.array([[limits.min, -3, -1, 0, 1, 77, limits.max]], dtype)])
    (found,), (expected,) = run_native(case), run_onnx(case)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_relu_of_int64() -> None:
    """ONNX Runtime has none."""
    x = np.array([-(2**63), -1, 0, 5, 2**63 - 1])
    np.testing.assert_array_equal(run_native(OpCase("Relu", [x]))[0], [0, 0, 0, 5, 2**63 - 1])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("a", "b"), [((4, 5), (5, 3)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 1, 4, 5), (3, 5, 2)), ((2, 0), (0, 3))]
)
def test_matmul_of_integers(dtype: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Products beyond the type wrap, as numpy's do."""
    rng, limits = np.random.default_rng(3), np.iinfo(dtype)
    x, y = (rng.integers(limits.min, limits.max, s, dtype) for s in (a, b))
    (found,) = run_native(OpCase("MatMul", [x, y], constant=[False, False]))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.matmul(x, y))
    small = [v % 100 for v in (x, y)]
    check(OpCase("MatMul", small, constant=[False, False]))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_resize_of_integers_to_the_nearest(dtype: str, nearest: str) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(4).integers(limits.min, limits.max, (2, 3, 5, 4), dtype)  # int32: no float32 holds these
    for scales in ([1.0, 1.0, 2.0, 1.5], [1.0, 1.0, 0.6, 2.0], [1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 2.0, 3.0]):
        attrs = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": "asymmetric"}
        check(OpCase("Resize", [x, None, np.array(scales, np.float32)], attrs, constant=[False, False, True]))


def network(dtype: int, *nodes: tuple[str, list[str], str], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, inputs, [output]) for op, inputs, output in nodes],
        "g",
        [helper.make_tensor_value_info("x", dtype, [1, 4, 3, 5])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("dtype", ["int32", "int8"])
@pytest.mark.parametrize("last", ["Relu", "Clip"])
def test_an_activation_behind_integer_arithmetic(dtype: str, last: str) -> None:
    """It is not fused into what the CPU computes in integers."""
    constants = {"c": np.array(3, dtype), "low": np.array(0, dtype), "high": np.array(6, dtype)}
    ends = ["low", "high"] if last == "Clip" else []
    element = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    model = network(element, ("Sub", ["x", "c"], "t"), (last, ["t", *ends], "y"), constants=constants)
    x = np.arange(-30, 30, dtype=dtype).reshape(1, 4, 3, 5)
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=CPU).run(None, {"x": x})[0]
    found = Session(host_program(float_graph(model))).run({"x": x})["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("to", [TensorProto.INT16, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64])
def test_types_that_the_runtime_has_not(to: int) -> None:
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], "narrow", to=to)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", to, [1, 2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    dtype = helper.tensor_dtype_to_np_dtype(to).name
    assert dtype not in RUNTIME_TYPES
    with pytest.raises(
        UnsupportedError, match=rf"node 'narrow' \(Cast\): tensor 'y' is {dtype}; .* export the network with int"
    ):
        host_program(float_graph(model))
