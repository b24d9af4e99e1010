"""`infer` and `reference` of every NPU operator on its cases against ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.formulas import SILU_POLYNOMIAL
from npuforge.hw_kernels.operator import Case

NPU_OPERATORS = (
    *(
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "AveragePool",
        "Add",
        "Sub",
        "Mul",
        "Affine",
        "Resize",
        "Concat",
        "ChannelGather",
    ),
    "SpaceToDepth",
)
CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name in NPU_OPERATORS
    for number, case in enumerate(operator.registry()[name].cases)
]


def activation_nodes(activation: Activation, source: str, target: str) -> list[onnx.NodeProto]:
    kind = activation.kind
    if kind == "none":
        return [helper.make_node("Identity", [source], [target])]
    if kind == "Clip":
        return [helper.make_node("Clip", [source, "clip_low", "clip_high"], [target])]
    if kind == "Silu":
        return [helper.make_node("Sigmoid", [source], ["gate"]), helper.make_node("Mul", [source, "gate"], [target])]
    if kind in ("LeakyRelu", "Elu"):
        return [helper.make_node(kind, [source], [target], alpha=activation.alpha)]
    if kind == "SiluPolynomial":
        return polynomial_nodes(source, target)
    return [helper.make_node(kind, [source], [target])]


def polynomial_nodes(x: str, target: str) -> list[onnx.NodeProto]:
    """x/2 + c0 + c2 x^2 + c4 x^4 on [-8, 8), 0 below, x above (tests/hw_kernels/test_own_operators.py computes the coefficients anew)."""
    numbers = {"half": 0.5, "nothing": 0.0, "low": -8.0, "high": 8.0} | dict(
        zip(("c0", "c2", "c4"), SILU_POLYNOMIAL, strict=True)
    )
    return [
        *(helper.make_node("Constant", [], [name], value_float=value) for name, value in numbers.items()),
        helper.make_node("Mul", [x, x], ["square"]),
        helper.make_node("Mul", ["square", "c4"], ["fourth"]),
        helper.make_node("Add", ["fourth", "c2"], ["inner"]),
        helper.make_node("Mul", ["inner", "square"], ["even"]),
        helper.make_node("Mul", [x, "half"], ["odd"]),
        helper.make_node("Sum", ["even", "odd", "c0"], ["polynomial"]),
        helper.make_node("Less", [x, "low"], ["below"]),
        helper.make_node("Less", [x, "high"], ["inside"]),
        helper.make_node("Where", ["inside", "polynomial", x], ["upper"]),
        helper.make_node("Where", ["below", "nothing", "upper"], [target]),
    ]


def onnx_nodes(node: Node, graph: Graph, constants: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    attrs, x = dict(node.attrs), node.inputs[0]
    if node.op == "Affine":
        constants["scale"], constants["shift"] = (
            np.array(attrs[k], np.float32).reshape(1, -1, 1, 1) for k in ("scale", "bias")
        )
        return [
            helper.make_node("Mul", [x, "scale"], ["scaled"]),
            helper.make_node("Add", ["scaled", "shift"], ["linear"]),
        ]
    if node.op == "ChannelGather":  # a zero channel is appended; index -1 then names it
        shape = graph.tensors[x].shape
        constants["zero"] = np.zeros((shape[0], 1, *shape[2:]), np.float32)
        constants["indices"] = np.array(attrs["indices"], np.int64)
        nodes = [helper.make_node("Concat", [x, "zero"], ["extended"], axis=1)]
        return [*nodes, helper.make_node("Gather", ["extended", "indices"], ["linear"], axis=1)]
    if node.op == "Resize":
        constants["sizes"] = np.array([*graph.tensors[x].shape[:2], *attrs.pop("sizes")], np.int64)
        attrs.pop("scales")
        return [helper.make_node("Resize", [x, "", "", "sizes"], ["linear"], **attrs)]
    return [helper.make_node(node.op, node.inputs, ["linear"], **attrs)]


def run_onnx(graph: Graph, feeds: dict[str, np.ndarray]) -> np.ndarray:
    node = graph.nodes[0]
    constants = dict(graph.constants)
    nodes = onnx_nodes(node, graph, constants) + activation_nodes(node.activation, "linear", "y")
    if node.activation.kind == "Clip":
        constants["clip_low"], constants["clip_high"] = (
            np.float32(node.activation.low),
            np.float32(node.activation.high),
        )
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "case",
            [helper.make_tensor_value_info(t, TensorProto.FLOAT, graph.tensors[t].shape) for t in graph.inputs],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 19)],
        ir_version=9,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], feeds)[0])


@pytest.mark.parametrize(("name", "case"), CASES)
def test_reference_is_onnx_runtime(name: str, case: Case) -> None:
    graph = operator.case_graph(name, case, seed=5)
    random = np.random.default_rng(7)
    feeds = {t: random.normal(0.0, 1.5, graph.tensors[t].shape).astype(np.float32) for t in graph.inputs}
    node = graph.nodes[0]
    op = operator.get(node)
    inputs = [graph.constants[t] if t in graph.constants else feeds[t].astype(np.float64) for t in node.inputs]
    result = op.reference(node, inputs)[0]
    expected = run_onnx(graph, feeds)
    assert result.dtype == np.float64
    assert graph.tensors["y"].shape == expected.shape == result.shape
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_cases_meet_the_constraints(name: str, case: Case) -> None:
    graph = operator.case_graph(name, case)
    assert operator.registry()[name].failed_constraint(graph.nodes[0], graph) is None


def test_constraint_message_is_its_docstring() -> None:
    graph = operator.case_graph("Concat", Case([(1, 2, 3, 3), (1, 2, 3, 3)], {"axis": 1}))
    graph.nodes[0].attrs["axis"] = 2
    assert operator.registry()["Concat"].failed_constraint(graph.nodes[0], graph) == "the axis is the channel axis"


def test_unknown_operator_is_named() -> None:
    from npuforge.compile.ir.errors import UnsupportedError

    with pytest.raises(UnsupportedError, match=r"node n1: operator Frobnicate is not known"):
        operator.get(Node("n1", "Frobnicate", [], []))


@pytest.mark.parametrize("mode", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("kind", ["linear", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("sizes", [[7, 3], [10, 12], [5, 1], [2, 9]])
def test_resize_coordinates(mode: str, kind: str, sizes: list[int]) -> None:
    attrs = {"mode": "linear"} if kind == "linear" else {"mode": "nearest", "nearest_mode": kind}
    attrs |= {"coordinate_transformation_mode": mode, "sizes": sizes, "scales": [sizes[0] / 5, sizes[1] / 6]}  # type: ignore[dict-item]
    graph = operator.case_graph("Resize", Case([(1, 2, 5, 6)], attrs))
    x = np.random.default_rng(1).normal(size=(1, 2, 5, 6)).astype(np.float32)
    result = operator.registry()["Resize"].reference(graph.nodes[0], [x])[0]
    np.testing.assert_allclose(result, run_onnx(graph, {"x0": x}), atol=1e-5)
