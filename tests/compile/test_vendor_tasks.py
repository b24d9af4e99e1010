"""What the vendor's CPU tasks compute right, and what is therefore written otherwise.

The tasks are imitated from their description (runs of neighbouring elements, matrix number modulo batches) and held against numpy; on the
real ones such nodes run in tests/e2e/test_vendor_tasks.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.xir import cpu_ops
from npuforge.compile.xir.builder import Builder
from npuforge.compile.xir.model import XModel
from npuforge.compile.xir.shapes import shape_problems
from npuforge.compile.xir.vendor_tasks import OURS, TASKS, is_right

PAGE = Path(__file__).parents[2] / "docs" / "xmodel.md"
SHAPE = (1, 8, 6, 5)
RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def axes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def written(
    op: str, second: np.ndarray | None, attrs: dict[str, object], first: bool = False, kind: str = "float32"
) -> str:
    """The type of the op that a node on a tensor of SHAPE becomes. `first`: the constant is its first operand."""
    names = ["x"] if second is None else ["k", "x"] if first else ["x", "k"]
    constants = {} if second is None else {"k": second}
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), SHAPE)]
    outputs = [f"y{i}" for i in range(2 if op == "Split" else 1)]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, "n", **attrs)],
        "one",
        inputs,
        [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    infos = {v.name: v.type.tensor_type for v in (*model.graph.input, *model.graph.output)}
    tensors = {
        n: TensorInfo(
            n, tuple(d.dim_value for d in t.shape.dim), np.dtype(helper.tensor_dtype_to_np_dtype(t.elem_type)).name
        )
        for n, t in infos.items()
    }
    node = Node("n", op, names, outputs, attrs)
    host = cpu_ops.HostNode(node, Graph("one", [node], tensors, constants, ["x"], outputs), Builder(), [], {"x": "x"})
    data = {"shape": cpu_ops.integers(SHAPE), "data_type": cpu_ops.string("FLOAT32")}
    host.builder.op("x", "data", host_tensor(tensors["x"]), {}, data, "USER", [])
    cpu_ops.emit(host, {})
    assert shape_problems(XModel("one", host.builder.ops, None, {})) == []
    return next(o.type for o in host.builder.ops if o.name == "n")


def host_tensor(info: TensorInfo) -> cpu_ops.XTensor:
    kind, width = cpu_ops.dtype_of(info.dtype)
    return cpu_ops.XTensor(info.name, list(info.shape), kind, width)


@pytest.mark.parametrize(
    ("op", "second", "attrs", "expected"),
    [
        ("ReduceSum", axes(3), {}, "reduction_sum"),
        ("ReduceSum", axes(-1, 2), {}, "reduction_sum"),
        ("ReduceSum", axes(0, 1, 2, 3), {}, "reduction_sum"),
        ("ReduceSum", axes(1), {}, "onnx::ReduceSum"),
        ("ReduceSum", axes(1, 3), {}, "onnx::ReduceSum"),
        ("ReduceSum", axes(3), {"keepdims": 0}, "onnx::ReduceSum"),
        ("ReduceMax", None, {"axes": [2, 3]}, "reduction_max"),
        ("ReduceMax", None, {"axes": [1, 2]}, "onnx::ReduceMax"),
        ("ReduceMax", None, {"axes": [3], "keepdims": 0}, "onnx::ReduceMax"),
        ("ReduceMin", None, {"axes": [3]}, "onnx::ReduceMin"),
        ("ReduceMean", None, {"axes": [1], "keepdims": 0}, "reduction_mean"),
        ("ReduceProd", None, {"axes": [1, 3]}, "reduction_product"),
        ("Softmax", None, {"axis": -1}, "onnx::Softmax"),
        ("Softmax", None, {"axis": 1}, "onnx::Softmax"),
        ("Tanh", None, {}, "onnx::Tanh"),
        ("Sigmoid", None, {}, "sigmoid"),
        ("MatMul", floats(5, 7), {}, "matmul"),
        ("MatMul", floats(8, 5, 7), {}, "matmul"),
        ("MatMul", floats(1, 1, 5, 7), {}, "matmul"),
        ("MatMul", floats(3, 1, 5, 7), {}, "onnx::MatMul"),
        ("MatMul", floats(2, 1, 8, 5, 7), {}, "onnx::MatMul"),
        ("Split", None, {"axis": 1}, "strided_slice"),
    ],
)
def test_what_a_node_becomes(op: str, second: np.ndarray | None, attrs: dict[str, object], expected: str) -> None:
    assert written(op, second, attrs) == expected


def test_a_first_operand_of_lower_rank_and_integers() -> None:
    assert written("MatMul", floats(4, 6), {}, first=True) == "onnx::MatMul"
    assert written("MatMul", floats(1, 8, 4, 6), {}, first=True) == "matmul"
    assert written("Sub", floats(5), {}, first=True) == "sub"
    assert written("Split", None, {"axis": 1}, kind="int64") == "onnx::Split"
    assert written("Transpose", None, {"perm": [0, 2, 3, 1]}, kind="int64") == "onnx::Transpose"


def test_every_type_that_is_written_was_looked_at() -> None:
    types = {*cpu_ops._UNARY.values(), *cpu_ops._BINARY.values(), *cpu_ops._REDUCTION.values()}
    types |= {"reshape", "leaky-relu", "hard-sigmoid", "relu6", "transpose", "concat", "softmax", "strided_slice"}
    assert types | {"matmul", "cast", "identity"} == OURS | set(TASKS) and not OURS & set(TASKS)


def test_the_page_says_it() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    for op_type, task in TASKS.items():
        assert any(f"`{op_type}`" in row and f"| {task.where} | {task.otherwise}".rstrip() in row for row in rows), (
            op_type
        )
    assert any(all(f"`{op_type}`" in row for op_type in OURS) for row in rows)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
@settings(max_examples=200, deadline=None)
def test_reductions(shape: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    chosen, keep = sorted(chosen), data.draw(st.booleans())
    x = np.random.default_rng(1).integers(-50, 50, shape)
    expected = x.sum(tuple(chosen), keepdims=keep)
    if is_right("reduction_sum", {"axis": chosen, "keep_dims": keep}, [shape], expected.shape):
        run = int(np.prod([shape[a] for a in chosen]))
        assert chosen == list(range(chosen[0], chosen[-1] + 1)) and keep  # it ends the process otherwise
        np.testing.assert_array_equal(x.reshape(-1, run).sum(1), expected.ravel())
    else:
        assert not keep or chosen != list(range(len(shape) - len(chosen), len(shape)))


dims = st.lists(st.integers(1, 3), max_size=3)


@given(dims, dims)
@settings(max_examples=300, deadline=None)
def test_matrix_products(first: list[int], second: list[int]) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(-9, 9, (*first, 2, 4)), rng.integers(-9, 9, (*second, 4, 3))
    try:
        expected = np.matmul(a, b)
    except ValueError:
        return
    own_a, own_b = a.reshape(-1, 2, 4), b.reshape(-1, 4, 3)
    count = int(np.prod(expected.shape[:-2]))
    found = np.stack([own_a[i % len(own_a)] @ own_b[i % len(own_b)] for i in range(count)])
    right = np.array_equal(found, expected.reshape(found.shape)) and a.ndim == expected.ndim
    assert is_right("matmul", {}, [a.shape, b.shape], expected.shape) == right
