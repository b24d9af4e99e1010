"""NaN, infinities, large values, zeros of both signs and subnormals, at every level: reference == C++ kernel == ONNX Runtime, gradients, int8 borders.

The rules, where they are not plain float arithmetic: maxima (MaxPool, ReduceMax, ReduceMin) ignore NaN; ArgMax and ArgMin pass over it unless it comes
first; TopK puts it last; a suppression never keeps a box whose score is NaN; a tensor that enters the NPU must not hold it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from contract import Subject, run_cpu, run_onnx, standard_model, subjects, wide

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Activation, Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.compile.reference import graph_to_onnx
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.activations import CURVES, apply_activation, curve
from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.levels import declared, is_standard
from npuforge.quant.executor import quantise

VALUES = {
    "nan": np.nan,
    "inf": np.inf,
    "-inf": -np.inf,
    "1e5": 1e5,
    "-1e5": -1e5,
    "0": 0.0,
    "-0": -0.0,
    "subnormal": 1e-40,
    "-subnormal": -1e-40,
}
# ONNX Runtime leaves these open (1.32: maxima ignore NaN or pass it on depending on the shape); ours is the rule above.
OPEN_IN_ONNX_RUNTIME = {(op, "nan") for op in ("TopK", "NonMaxSuppression", "MaxPool", "ReduceMax", "ReduceMin")}
OPEN_IN_ONNX_RUNTIME |= {
    ("CastLike", "nan"),
    ("CastLike", "inf"),
    ("QuantizeLinear", "nan"),
    ("Hardmax", "nan"),
}  # as integers, as a position
# ONNX Runtime multiplies pixels that a sample does not touch by 0.
OPEN_IN_ONNX_RUNTIME |= {(op, label) for op in ("RoiAlign", "DeformConv") for label in ("nan", "inf", "-inf")}
# Its sum over channels slides: what has entered once stays in the rounding, or as NaN.
OPEN_IN_ONNX_RUNTIME |= {("LRN", label) for label in ("nan", "inf", "-inf", "1e5", "-1e5")}


def with_value(subject: Subject, label: str) -> list[Any]:
    """The case's inputs, one element of the first float input being the special value."""
    inputs = [np.array(x) for x in subject.inputs()]
    first = next(x for x in inputs if x.dtype.kind == "f" and x.size)
    first.reshape(-1)[first.size // 2] = VALUES[label]
    return inputs


def takes_floats(subject: Subject) -> bool:
    return any(x.dtype.kind == "f" and x.size for x in subject.inputs())


def agree(found: Any, expected: Any) -> None:
    """Equal types of value, and equal within float32 rounding of the largest finite one."""
    assert found.shape == expected.shape
    with np.errstate(over="ignore"):
        a, b = (np.asarray(v).astype(np.float32).astype(np.float64) for v in (found, expected))
    finite = np.abs(b[np.isfinite(b)])
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * max(1.0, finite.max(initial=0.0)))


CASES = [s for s in subjects() if takes_floats(s)]


@pytest.mark.parametrize("label", VALUES)
@pytest.mark.parametrize("subject", CASES, ids=str)
def test_levels_agree_on_special_values(subject: Subject, label: str) -> None:
    graph, inputs = subject.graph(), with_value(subject, label)
    node = graph.nodes[0]
    with np.errstate(all="ignore"):
        expected = subject.op.reference(node, wide(inputs))
    if declared(subject.op, "CPU"):
        for found, value in zip(run_cpu(node, inputs), expected, strict=True):
            agree(found, value)
    if not is_standard(subject.op) or (subject.name, label) in OPEN_IN_ONNX_RUNTIME:
        return
    graph.constants = dict(zip(graph.constants, inputs[len(graph.inputs) :], strict=True))
    if node.activation.kind != "none" or node.op in ("Affine", "ChannelGather", "Resize"):
        model = graph_to_onnx(dataclasses.replace(graph, opset=18))
    else:
        model = standard_model(graph, subject.op.reference(node, wide(subject.inputs())))
    for found, value in zip(run_onnx(model, dict(zip(node.inputs, inputs, strict=True))), expected, strict=True):
        agree(found, value)


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_stay_finite_at_large_values_and_pass_nan_on(name: str) -> None:
    formula = FORMULAS[name]
    large = np.array([1e5, -1e5, 0.0, -0.0, 1e-310, -1e-310, 745.0, -745.0])
    with np.errstate(all="ignore"):
        if name in ("Log", "Sqrt", "Reciprocal"):
            large = large[large > 0]
        if name == "Exp":
            large = large[large <= 700]
        for order, function in enumerate((formula.value, formula.slope, formula.curvature)):
            if name == "Reciprocal" or (name in ("Log", "Sqrt") and order):
                large = large[large > 1e-100]
            assert np.isfinite(function(np, large, {})).all(), (name, order)
        of_nan = formula.value(np, np.array([np.nan]), {})[0]
        assert (
            of_nan == 0.0 if name in ("ThresholdedRelu", "Shrink") else np.isnan(of_nan)
        )  # ONNX: comparisons are false


# First derivatives at inf, -inf, 1e5 and -1e5, by hand: the limits; NaN where PyTorch's own operator multiplies inf by 0.
UNDEFINED = (np.nan, np.nan)
SLOPES: dict[str, tuple[float, float, float, float]] = {
    **dict.fromkeys(("Erf", "Tanh", "Sigmoid", "ClipSigmoid", "HardSigmoid"), (0.0, 0.0, 0.0, 0.0)),
    **dict.fromkeys(
        ("Relu", "Elu", "Celu", "HardSwish", "Softplus", "SiluPolynomial", "CustomGELU", "ThresholdedRelu"),
        (1.0, 0.0, 1.0, 0.0),
    ),
    **dict.fromkeys(("Silu", "Swish", "Gelu", "Mish"), (*UNDEFINED, 1.0, 0.0)),
    "Identity": (1.0, 1.0, 1.0, 1.0),
    "Shrink": (1.0, 1.0, 1.0, 1.0),
    "Neg": (-1.0, -1.0, -1.0, -1.0),
    "Abs": (1.0, -1.0, 1.0, -1.0),
    "Exp": (np.inf, 0.0, np.inf, 0.0),
    "Log": (0.0, 0.0, 1e-5, -1e-5),
    "Sqrt": (0.0, np.nan, 0.5 / np.sqrt(1e5), np.nan),
    "Reciprocal": (0.0, 0.0, -1e-10, -1e-10),
    "Softsign": (0.0, 0.0, 1.0 / 100001.0**2, 1.0 / 100001.0**2),
    "LeakyRelu": (1.0, 0.01, 1.0, 0.01),
    "Selu": (1.05070102214813232, 0.0, 1.05070102214813232, 0.0),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_slopes_at_infinities_are_limits_and_nan_stays_nan(name: str) -> None:
    formula, x = FORMULAS[name], np.array([np.inf, -np.inf, 1e5, -1e5])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(formula.slope(np, x, {}), SLOPES[name], rtol=1e-12, atol=1e-30)
        for derivative in (formula.slope, formula.curvature):
            assert np.isnan(derivative(np, np.array([np.nan]), {})).all()


@pytest.mark.parametrize("kind", CURVES)
def test_curves_reach_their_tails(kind: str) -> None:
    """What a table assumes beyond [-8, 8): a constant, or the input itself."""
    activation = Activation(kind, alpha=0.2, beta=0.5)
    for x, tail in ((-1e5, curve(activation).low), (1e5, curve(activation).high)):
        found = float(apply_activation(np.array([x]), activation)[0])
        assert found == pytest.approx(x if tail is None else tail, abs=1e-12)


def test_what_enters_the_npu() -> None:
    """Infinities are the ends of int8, NaN is refused; the C++ border says the same (tests/board_runtime)."""
    quant = TensorQuant(np.array([0.5]), np.array([3], np.int32))
    x = np.array([np.inf, -np.inf, 1e30, -1e30, 0.0, -0.0, 1e-310]).reshape(1, 1, 1, -1)
    assert quantise(x, quant).ravel().tolist() == [127, -128, 127, -128, 3, 3, 3]
    with pytest.raises(QuantisationError, match="contains NaN"):
        quantise(np.full((1, 1, 1, 1), np.nan), quant)


@pytest.mark.parametrize("name", ["npuforge::RotatedNms", "NonMaxSuppression"])
def test_a_nan_score_is_never_kept(name: str) -> None:
    scores = np.array([[0.9, np.nan, 0.8]], np.float32)
    if name == "NonMaxSuppression":
        boxes = np.array([[[0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10]]], np.float32)
        limits = [np.array(9), np.array(0.5, np.float32), np.array(0.1, np.float32)]
        arrays: list[Any] = [boxes, scores[None], *limits]
    else:
        arrays = [np.array([[0, 0, 1, 1, 0], [5, 5, 1, 1, 0], [9, 9, 1, 1, 0]], np.float32), scores]
    node = Node("node", name, [f"x{i}" for i in range(len(arrays))], ["y"], {})
    for found in (operator.get(node).reference(node, wide(arrays))[0], run_cpu(node, arrays)[0]):
        assert found[:, -1].tolist() == [0, 2]


WINDOW = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1]}
SHAPED: list[tuple[str, dict[str, Any], list[tuple[int, ...]]]] = [
    ("Conv", WINDOW, [(2, 1, 1, 1)]),
    ("ConvTranspose", WINDOW, [(1, 2, 1, 1)]),
    ("MaxPool", WINDOW, []),
    ("AveragePool", WINDOW, []),
    ("Softmax", {"axis": 1}, []),
    ("LogSoftmax", {"axis": 1}, []),
    ("LpNormalization", {"axis": 1}, []),
    ("LayerNormalization", {"axis": 1}, []),
    ("Add", {}, [(1,)]),
    ("Mul", {}, [(1,)]),
    ("PRelu", {}, [(1,)]),
    ("npuforge::AlignNhwc16", {}, []),
    ("npuforge::AngleEncode", {"axis": 1}, []),
    ("npuforge::LeakyReluMask", {}, []),
    ("GroupNormalization", {"num_groups": 1}, [(1,), (1,)]),
    *((name, {}, []) for name, op in sorted(operator.registry().items()) if isinstance(op, Unary)),
]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 1, 1, 1), (2, 1, 3, 1), (1, 1, 1, 5)], ids=str)
@pytest.mark.parametrize(("name", "attrs", "others"), SHAPED, ids=[s[0] for s in SHAPED])
def test_one_channel_one_pixel_and_batches(
    name: str, attrs: dict[str, Any], others: list[tuple[int, ...]], shape: tuple[int, ...]
) -> None:
    random = np.random.default_rng(2)
    if name == "LayerNormalization":
        others = [shape[1:]] * 2
    arrays = [random.uniform(0.1, 2.0, s).astype(np.float32) for s in (shape, *others)]
    node = Node("node", name, [f"x{i}" for i in range(len(arrays))], ["y"], dict(attrs))
    op = operator.get(node)
    (expected,) = op.reference(node, wide(arrays))
    assert expected.shape == op.infer(node, [a.shape for a in arrays])[0] and expected.shape[0] == shape[0]
    agree(run_cpu(node, arrays)[0], expected)
    if declared(op, "gradient"):
        gradients = op.gradient(node, wide(arrays), [np.ones_like(expected)])
        for x, gradient in zip(arrays, gradients, strict=True):
            assert gradient is not None and gradient.shape == x.shape and np.isfinite(gradient).all()
