"""The contract of every operator: registry x cases x levels. A new operator folder is tested by this file without being named in it.

Levels: float (inferred shape, ONNX Runtime for standard operators), CPU (C++ kernel), gradient and second gradient (central differences), int8 in
`fine` and `pow2` (stated bound; DSL program on csim and sim, bit for bit), ONNX round trip. What an operator does not have it gives a
reason for. bf16: `test_operator_contract_bf16.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from contract import Subject, check_gradient, check_second_gradient, run_cpu, run_onnx, standard_model, subjects, wide
from ladder import Quantised, climb, compile_graph
from onnx import helper, numpy_helper

from npuforge.compile.graph_to_onnx import graph_to_onnx
from npuforge.compile.ir.graph import Activation, Graph, Partition
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.quantization import ConvParams, OutputStage, QGraph
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.levels import LEVELS, declared, folder, is_standard, reason, through
from npuforge.hw_kernels.operator import Op
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import ReferenceExecutor, dequantise, quantise
from npuforge.quant.quantize import quantize

EVERY = subjects()


def having(level: str) -> list[Subject]:
    return [s for s in EVERY if declared(s.op, level)]


def each(cases: list[Subject]) -> Any:
    return pytest.mark.parametrize("subject", cases, ids=str)


# ---- what is declared
@pytest.mark.parametrize("name", sorted(operator.registry()))
def test_operator_declares_every_level_or_a_reason(name: str) -> None:
    op = operator.registry()[name]
    assert type(op).__doc__ and op.cases, "an operator has a formula and test cases"
    for level in LEVELS:
        assert declared(op, level) or through(op, level) or reason(op, level), f"{name}: neither {level} nor a reason"


# ---- float
@each(EVERY)
def test_inferred_shape_is_the_references(subject: Subject) -> None:
    graph, inputs = subject.graph(), subject.inputs()
    with np.errstate(all="raise", under="ignore"):
        outputs = subject.op.reference(graph.nodes[0], wide(inputs))
    assert len(outputs) == len(graph.outputs)
    for name, value in zip(graph.outputs, outputs, strict=True):
        assert value.dtype.kind != "f" or (value.dtype == np.float64 and np.isfinite(value).all())
        if not subject.op.shape_from_values:
            assert value.shape == graph.tensors[name].shape


@each(subjects(is_standard))
def test_reference_is_onnx_runtimes(subject: Subject) -> None:
    graph, inputs = subject.graph(), subject.inputs()
    node = graph.nodes[0]
    canonical = node.activation.kind != "none" or node.op in ("Affine", "ChannelGather", "Resize")
    result = subject.op.reference(node, wide(inputs))
    model = graph_to_onnx(dataclasses.replace(graph, opset=18)) if canonical else standard_model(graph, result)
    expected = run_onnx(model, dict(zip(node.inputs, inputs, strict=True)))
    for found, value in zip(result, expected, strict=True):
        assert found.shape == value.shape
        assert found.dtype.kind == value.dtype.kind
        np.testing.assert_allclose(found, value, rtol=2e-5, atol=2e-5)


@each(having("CPU"))
def test_cpu_kernel_is_the_reference(subject: Subject) -> None:
    graph, inputs = subject.graph(), subject.inputs()
    expected = subject.op.reference(graph.nodes[0], wide(inputs))
    for found, value in zip(run_cpu(graph.nodes[0], inputs), expected, strict=True):
        assert found.shape == value.shape
        np.testing.assert_allclose(found, value, rtol=2e-5, atol=2e-5)


# ---- gradients
@each(having("gradient"))
def test_gradient_is_the_central_difference(subject: Subject) -> None:
    assert check_gradient(subject.op, subject.graph().nodes[0], subject.inputs()) > 0


@each(having("second gradient"))
def test_second_gradient_is_the_central_difference(subject: Subject) -> None:
    check_second_gradient(subject.op, subject.graph().nodes[0], subject.inputs())


# ---- int8
def quantised(subject: Subject, mode: str) -> Quantised:
    graph = subject.graph()
    graph.nodes[0].device = "NPU"
    graph.partitions = [Partition("NPU", ["node"], list(graph.inputs), list(graph.outputs))]
    feeds = [dict(zip(graph.inputs, subject.inputs(seed), strict=False)) for seed in (11, 12)]
    statistics = calibrate(graph, feeds, lambda wanted: ReferenceExecutor(graph, wanted).run)
    return Quantised(quantize(graph, statistics, mode), Preprocess())


def stage_of(qgraph: QGraph) -> OutputStage | None:
    return getattr(qgraph.params["node"], "stage", None)


def weight_error(qgraph: QGraph, x: np.ndarray, graph: Graph) -> np.ndarray:
    """Sum of half a step of every weight times what it is multiplied with, [N, H, W, O]; half a step of the bias on top. DESIGN section 4: in `fine`
    a step is max|w s_x| / 127 of the output channel, in `pow2` a power of two below max|w| * 2 / 127 for all channels, the bias having 8 bits."""
    node, fine = graph.nodes[0], qgraph.mode == "fine"
    weight, bias = (np.abs(graph.constants[t]).astype(np.float64) for t in node.inputs[1:3])
    scale, group = qgraph.quant["x0"].scale, int(node.attrs.get("group", 1))
    # Input channel of every weight in ONNX's layout, and the weights grouped by output channel.
    if node.op == "ConvTranspose":
        steps = scale[:, None, None, None]
        scaled = (weight * steps).reshape(group, -1, *weight.shape[1:])
        largest = np.broadcast_to(scaled.max(axis=(1, 3, 4), keepdims=True), scaled.shape).reshape(weight.shape)
    else:
        steps = np.repeat(scale.reshape(group, -1), len(bias) // group, axis=0)[:, :, None, None]
        largest = np.broadcast_to((weight * steps).max(axis=(1, 2, 3), keepdims=True), weight.shape)
    step = largest / 127 if fine else np.full_like(weight, 2 * largest.max() / 127)
    half_bias = np.zeros(len(bias)) if fine else np.full(len(bias), bias.max() / 127)
    plain = dataclasses.replace(node, activation=Activation())
    bound = operator.get(node).reference(plain, [np.abs(x), step / 2 / steps, half_bias])[0]
    return np.moveaxis(bound, 1, -1)


STEEPEST = 1.13  # of the fused activations: CustomGELU's largest slope


def stated_bound(subject: Subject, qgraph: QGraph, x: np.ndarray, graph: Graph) -> Any:
    """Largest error per output value, real units."""
    bound = subject.op.error_steps * qgraph.quant["y"].scale + 1e-6
    if isinstance(qgraph.params["node"], ConvParams):
        bound = bound + STEEPEST * weight_error(qgraph, x, graph)
    if graph.nodes[0].op == "AveragePool" and qgraph.mode == "pow2":
        # A DPU's division: 7/64 in place of 1/9 is 1/64 off, every other window here less than 1/128 (N/2^M, M to 7 bits beyond the area).
        share = 1 / 64 if list(graph.nodes[0].attrs["kernel_shape"]) == [3, 3] else 1 / 128
        bound = bound + share * np.moveaxis(subject.op.reference(graph.nodes[0], [np.abs(x)])[0], 1, -1)
    stage = stage_of(qgraph)
    if stage is not None and stage.table is not None:
        bound = bound + 2.0 * 2.0**-stage.fraction_bits + 1e-3
    return bound


def bound_share(subject: Subject, mode: str) -> float:
    """The largest error of the integer semantics as a share of the stated bound: 1 or less is within."""
    integer = quantised(subject, mode)
    qgraph, graph = integer.qgraph, integer.qgraph.graph
    given = dict(zip(graph.inputs, subject.inputs(11), strict=False))
    stored = {n: quantise(v, qgraph.quant[n]) for n, v in given.items()}
    rebuilt = {n: dequantise(v, qgraph.quant[n]).astype(np.float64) for n, v in stored.items()}
    node, quant = graph.nodes[0], qgraph.quant["y"]
    values = [rebuilt[t] if t in rebuilt else graph.constants[t].astype(np.float64) for t in node.inputs]
    expected = np.moveaxis(subject.op.reference(node, values)[0], 1, -1)
    found = np.moveaxis(dequantise(integer.integers(stored)["y"], quant).astype(np.float64), 1, -1)
    low, high = ((edge - quant.zero_point) * quant.scale for edge in (-128, 127))
    error = np.abs(found - np.clip(expected, low, high))
    return float((error / stated_bound(subject, qgraph, rebuilt["x0"], graph)).max())


@pytest.mark.parametrize("mode", ["fine", "pow2"])
@each(having("int8"))
def test_integer_error_is_within_the_stated_bound(subject: Subject, mode: str) -> None:
    share = bound_share(subject, mode)
    assert share <= 1.0, (
        f"{subject}: the largest error is {share:.3g} times the stated bound (error_steps = {subject.op.error_steps}); mend the integer semantics, "
        "or state in error_steps what their steps cost"
    )


@pytest.mark.parametrize("mode", ["fine", "pow2"])
@each([s for s in having("int8") if s.number == 0 and folder(s.op)])
def test_the_bound_can_be_broken(subject: Subject, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits that are off by a twentieth of the range anywhere are seen."""
    right = type(subject.op).integer

    def wrong(self: Op, node: Any, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        result = right(self, node, inputs, qgraph).copy()
        result[0, 0, 0, 0] += 12 if result[0, 0, 0, 0] < 0 else -12
        return result

    monkeypatch.setattr(type(subject.op), "integer", wrong)
    assert bound_share(subject, mode) > 1.0


@pytest.mark.parametrize(
    "name", ["Conv", "ConvTranspose", "MaxPool", "Softmax", "BatchNormalization", "Mul", "Sigmoid"]
)
def test_a_wrong_gradient_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(name, 0)
    right = type(subject.op).gradient

    def wrong(self: Op, *arguments: Any) -> Any:
        first, *rest = right(self, *arguments)
        assert first is not None
        return [first * 1.0001, *rest]

    monkeypatch.setattr(type(subject.op), "gradient", wrong)
    with pytest.raises(AssertionError):
        check_gradient(subject.op, subject.graph().nodes[0], subject.inputs())


@pytest.mark.parametrize(
    "name", ["Conv", "Affine", "MaxPool", "ReduceProd", "ReduceL2", "LpNormalization", "npuforge::ConvBnLeakyRelu"]
)
@pytest.mark.parametrize("of", ["inputs", "output gradients"])
def test_a_wrong_second_gradient_is_seen(name: str, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(name, 3 if name == "ReduceProd" else 0)  # products of many normal values are next to nothing
    right = type(subject.op).second_gradient

    def wrong(self: Op, *arguments: Any) -> Any:
        (first, *rest), (dy, *others) = right(self, *arguments)
        assert first is not None and dy is not None
        off = 1e-4 * (1 + np.arange(first.size).reshape(first.shape) % 7)
        return ([first + off, *rest], [dy, *others]) if of == "inputs" else ([first, *rest], [dy * 1.0001, *others])

    monkeypatch.setattr(type(subject.op), "second_gradient", wrong)
    with pytest.raises(AssertionError):
        check_second_gradient(subject.op, subject.graph().nodes[0], subject.inputs())


@pytest.mark.parametrize("mode", ["fine", "pow2"])
@each([s for s in having("DSL") if declared(s.op, "int8")])
def test_program_gives_the_integer_bits(subject: Subject, mode: str) -> None:
    """Lowered by the code generator; HLS C simulation and simulator against the numpy semantics. Both refuse an instruction that is not legal."""
    integer = quantised(subject, mode)
    binary = compile_graph(integer, "nf-b1024" if mode == "fine" else "nf-b4096")
    for seed in (11, 21):
        random = np.random.default_rng(seed)
        feeds = {}
        for name, value in zip(integer.qgraph.graph.inputs, subject.inputs(seed), strict=False):
            n, channels, h, w = value.shape
            noise = random.integers(-128, 128, (n, h, w, channels)).astype(np.int8)
            feeds[name] = quantise(value, integer.qgraph.quant[name]) if seed == 11 else noise
        assert climb(integer, binary, feeds, threads=(1,)) == []


# ---- ONNX
def _element(graph: Graph, tensor: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(graph.tensors[tensor].dtype)))


def custom_model(graph: Graph) -> onnx.ModelProto:
    node = graph.nodes[0]
    domain, op_type = node.op.split("::")
    attrs = {k: (numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v) for k, v in node.attrs.items()}
    return helper.make_model(
        helper.make_graph(
            [helper.make_node(op_type, node.inputs, node.outputs, name="node", domain=domain, **attrs)],
            "case",
            [helper.make_tensor_value_info(t, _element(graph, t), graph.tensors[t].shape) for t in graph.inputs],
            [helper.make_tensor_value_info(t, _element(graph, t), None) for t in graph.outputs],
            [numpy_helper.from_array(v, n) for n, v in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)],
        ir_version=9,
    )


def has_values(subject: Subject) -> bool:
    """The importer takes no network input without elements; such lists come up inside a network only."""
    return all(0 not in shape for shape in subject.case.x)


@each([s for s in subjects(lambda op: not is_standard(op) and not op.lowers_to) if has_values(s)])
def test_import_keeps_domain_attributes_and_shapes(subject: Subject) -> None:
    graph = subject.graph()
    found = import_onnx(custom_model(graph)).graph
    (node,) = [n for n in found.nodes if n.op == subject.name]
    assert len(found.nodes) == 1 and node.inputs == graph.nodes[0].inputs and node.outputs == graph.nodes[0].outputs
    for key, value in graph.nodes[0].attrs.items():
        np.testing.assert_allclose(node.attrs[key], value, rtol=1e-6)
    dynamic = subject.op.infer(node, [graph.tensors[t].shape for t in node.inputs])
    for name, shape in zip(graph.outputs, dynamic, strict=True):
        assert found.tensors[name].shape == shape
        assert found.tensors[name].dtype == graph.tensors[name].dtype


@each(subjects(lambda op: bool(op.lowers_to)))
def test_import_lowers_to_operators_that_compute_the_same(subject: Subject) -> None:
    graph, inputs = subject.graph(), subject.inputs()
    node = graph.nodes[0]
    found = import_onnx(custom_model(graph)).graph
    assert {n.op for n in found.nodes} <= set(subject.op.lowers_to)
    assert found.outputs == graph.outputs and all(n.sources == ["node"] for n in found.nodes)
    feeds = {t: v for t, v in zip(node.inputs, inputs, strict=True) if t in graph.inputs}
    (expected,) = subject.op.reference(node, wide(inputs))
    np.testing.assert_allclose(ReferenceExecutor(found).run(feeds)["y"], expected, rtol=1e-6, atol=1e-6)
