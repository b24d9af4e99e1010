"""`pow2` mode takes layers whose ranges lie far apart: an output's scale is raised until the factor 2^k fits, and the integers stay right.

Right values: float64 arithmetic on the dequantised operands, exact here (8-bit integers times powers of two), and worked examples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.compile.ir.quantization import QGraph
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor
from npuforge.quant.quantize import quantize

Arrays = dict[str, np.ndarray]
LEAKY = Activation("LeakyRelu", alpha=0.1)


def layer(op: str, feeds: Arrays, activation: Activation | None = None, shape: Any = None, **attrs: Any) -> QGraph:
    """One operator calibrated on `feeds`; names with a dot are constants. Output `y`."""
    constants = {n: v for n, v in feeds.items() if "." in n}
    tensors = {n: TensorInfo(n, v.shape) for n, v in feeds.items()}
    inputs = [n for n in feeds if n not in constants]
    tensors["y"] = TensorInfo("y", shape or np.broadcast_shapes(*(feeds[n].shape for n in inputs)))
    node = Node("y", op, list(feeds), ["y"], attrs, activation or Activation(), ["y"], "NPU")
    return quantised(Graph(op, [node], tensors, constants, inputs, ["y"], 13), {n: feeds[n] for n in inputs})


def quantised(graph: Graph, feeds: Arrays) -> QGraph:
    statistics = calibrate(graph, [feeds], lambda wanted: ReferenceExecutor(graph, wanted).run)
    return quantize(graph, statistics, "pow2")


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(1, 1, 1, -1)


def integers(qgraph: QGraph, feeds: Arrays) -> list[int]:
    """`y` for int8 inputs given as [1, H, W, C]."""
    result: list[int] = IntegerExecutor(qgraph).run(feeds)["y"].ravel().tolist()
    return result


def q(*values: int) -> np.ndarray:
    return np.array(values, np.int8).reshape(1, 1, -1, 1)


def fix(qgraph: QGraph, tensor: str = "y") -> int:
    found = qgraph.quant[tensor].fix_point
    assert found is not None
    return found


def test_a_product_that_is_zero_in_calibration() -> None:
    """1000 needs fix point -3 (steps of 8); with a slope the factor is at most 2^6, so y gets -6 + 6 = 0 (was refused: 2^30)."""
    qgraph = layer("Mul", {"a": row(1000, 0), "b": row(0, 1000)}, LEAKY)
    assert (fix(qgraph, "a"), fix(qgraph, "b"), fix(qgraph)) == (-3, -3, 0)
    # 8*8 = 64; -64*26/256 = -6.5, half up -6; 16*8 = 128 saturates; -16*8*26/256 = -13
    assert integers(qgraph, {"a": q(1, -1, 2, -2), "b": q(1, 1, 1, 1)}) == [64, -6, 127, -13]


def test_a_sum_that_cancels_in_calibration() -> None:
    """1e6 needs fix point -13 (steps of 8192); a factor 2^14 makes steps of 1/2 of them."""
    qgraph = layer("Add", {"a": row(1e6, -1e6), "b": row(-1e6, 1e6)})
    assert (fix(qgraph, "a"), fix(qgraph)) == (-13, 1)
    assert integers(qgraph, {"a": q(5, 5, 5), "b": q(-5, -4, -6)}) == [0, 127, -128]


def test_a_convolution_that_cancels_in_calibration() -> None:
    """Weights 1, -1 at fix point 6 over inputs at -13: unit -7, with a slope y gets -1. No weight is made to saturate."""
    weight = np.array([1, -1], np.float32).reshape(1, 2, 1, 1)
    feeds = {"a": np.full((1, 2, 1, 3), 1e6, np.float32), "y.w": weight, "y.b": np.zeros(1, np.float32)}
    window = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    qgraph = layer("Conv", feeds, LEAKY, (1, 1, 1, 3), **window)
    assert (fix(qgraph, "a"), fix(qgraph)) == (-13, -1)
    assert qgraph.params["y"].weight.ravel().tolist() == [64, -64]  # type: ignore[union-attr]
    x = np.array([[3, 3], [4, 3], [3, 4]], np.int8).reshape(1, 1, 3, 2)
    assert integers(qgraph, {"a": x}) == [0, 127, -128]  # +-8192*127/128 and its 26/256 are beyond 254


def test_an_average_that_cancels_in_calibration() -> None:
    """A mean over 2 values may have 15 bits more than its input: 2^15/2 is a multiplier."""
    qgraph = layer(
        "AveragePool", {"a": row(1e6, -1e6)}, shape=(1, 1, 1, 1), kernel_shape=[1, 2], strides=[1, 1], pads=[0] * 4
    )
    assert (fix(qgraph, "a"), fix(qgraph)) == (-13, 2)
    for pair, expected in (((7, -7), 0), ((7, -6), 127), ((6, -7), -128)):
        assert integers(qgraph, {"a": q(*pair)}) == [expected]


def test_an_enormous_scale() -> None:
    """40000 leaves 16 bits: M = 20000, accumulator in units of 2 input steps; unlike the scale the addend 1e6 fits. Values by hand."""
    qgraph = layer("Affine", {"a": row(1.0, -1.0)}, scale=[40000.0], bias=[1e6])
    assert fix(qgraph, "a") == 6 and fix(qgraph) == -13
    assert integers(qgraph, {"a": q(0, 64, -64)}) == [122, 127, 117]  # 1e6, 1040000, 960000 in steps of 8192


def test_an_enormous_addend_over_a_tiny_input() -> None:
    """Fix point 24 and an addend of 20 bits leave 32 bits together: the multiplier gives way (the input is below 1e-5)."""
    qgraph = layer("Affine", {"a": row(1e-6, -1e-6)}, scale=[3.0], bias=[1e6])
    assert fix(qgraph, "a") == 24 and fix(qgraph) == -13
    assert integers(qgraph, {"a": q(0, 127, -128)}) == [122, 122, 122]


def test_a_slope_just_below_two() -> None:
    """round_half_up(256*1.999) = 512 leaves room for 2^5, not 2^6."""
    qgraph = layer("Mul", {"a": row(1000, 0), "b": row(0, 1000)}, Activation("PRelu", slope=np.array([1.999])))
    assert fix(qgraph) == -1
    assert integers(qgraph, {"a": q(1, -1, -2), "b": q(1, 1, 1)}) == [32, -64, -128]


def test_a_slope_beyond_every_multiplier_is_refused() -> None:
    with pytest.raises(
        QuantisationError, match=r"^node y: slope 128 does not fit, expected below 127.996; quantise with mode fine$"
    ):
        layer("Add", {"a": row(1.0), "b": row(1.0)}, Activation("LeakyRelu", alpha=128.0))


def test_tiny_products_beside_enormous_values() -> None:
    """1e-6*1e-6 joined with 1e11: a factor 2^-78 has no shift, and every product rounds to 0."""
    tensors = {n: TensorInfo(n, (1, 1, 1, 2)) for n in ("a", "b", "c", "m")} | {"y": TensorInfo("y", (1, 2, 1, 2))}
    nodes = [
        Node("m", "Mul", ["a", "b"], ["m"], {}, Activation(), ["m"], "NPU"),
        Node("y", "Concat", ["m", "c"], ["y"], {"axis": 1}, Activation(), ["y"], "NPU"),
    ]
    graph = Graph("joined", nodes, tensors, {}, ["a", "b", "c"], ["y"], 13)
    qgraph = quantised(graph, {"a": row(1e-6, 1e-6), "b": row(1e-6, -1e-6), "c": row(1e11, 0)})
    assert (fix(qgraph, "a"), fix(qgraph)) == (24, -30)
    feeds = {"a": q(127, -128), "b": q(127, 127), "c": q(93, 0)}
    assert integers(qgraph, feeds) == [0, 93, 0, 0]


PLAIN = (Activation(), Activation("Relu"), Activation("Clip", low=-1.0, high=6.0))
SLOPED = (LEAKY, Activation("LeakyRelu", alpha=-0.5), Activation("PRelu", slope=np.array([1.7])))
CURVED = (Activation("Sigmoid"), Activation("Tanh"))


def float_activation(y: np.ndarray, activation: Activation) -> np.ndarray:
    """Plain formulas; slopes as multiples of 1/256."""
    if activation.kind in ("LeakyRelu", "PRelu"):
        slope = activation.alpha if activation.slope is None else activation.slope[0]
        return np.where(y < 0, y * (np.floor(slope * 256 + 0.5) / 256), y)
    if activation.kind == "Sigmoid":
        return 0.5 + 0.5 * np.tanh(y / 2)
    if activation.kind == "Tanh":
        return np.tanh(y)
    low, high = {"none": (-np.inf, np.inf), "Relu": (0.0, np.inf), "Clip": (-1.0, 6.0)}[activation.kind]
    return np.clip(y, low, high)


@given(
    st.sampled_from(["Add", "Sub", "Mul"]),
    st.sampled_from([*PLAIN, *SLOPED, *CURVED]),
    st.tuples(st.floats(-9, 11), st.floats(-9, 11)),
    st.sampled_from(["independent", "cancelling", "disjoint"]),
    st.integers(0, 2**32 - 1),
)
def test_element_wise_over_any_ranges(
    op: str, activation: Activation, decades: tuple[float, float], kind: str, seed: int
) -> None:
    """Whatever calibration saw (also an output of almost nothing): y of all int8 operands is the float64 result, rounded and saturated."""
    random = np.random.default_rng(seed)
    most = 7.5 if activation in SLOPED else 11.0  # beyond, products of one step each leave what fix points hold
    size_a, size_b = (10.0 ** min(d, most, 11.9 - e if op == "Mul" else most) for d, e in (decades, decades[::-1]))
    a, b = random.uniform(-size_a, size_a, 8), random.uniform(-size_b, size_b, 8)
    if kind == "cancelling" and op != "Mul":
        b = a if op == "Sub" else -a
    elif kind == "disjoint":
        a[::2], b[1::2] = 0.0, 0.0
    qgraph = layer(op, {"a": row(*a), "b": row(*b)}, activation)
    qa, qb = random.integers(-128, 128, (2, 200))
    qa[:9], qb[:9] = np.repeat([-1, 0, 1], 3), np.tile([-1, 0, 1], 3)
    found = np.array(integers(qgraph, {"a": q(*qa), "b": q(*qb)}))
    x, y = qa * 2.0 ** -fix(qgraph, "a"), qb * 2.0 ** -fix(qgraph, "b")
    real = {"Add": x + y, "Sub": x - y, "Mul": x * y}[op]
    if activation in CURVED:  # F = 5 at worst: 1/64 of the pre-activation and of the table
        step = 2.0 ** -fix(qgraph)
        expected = np.clip(float_activation(real, activation), -128 * step, 127 * step)
        assert np.abs(found * step - expected).max() <= 0.05
    else:
        limits = (
            float_activation(np.array([-np.inf, np.inf]), activation)
            if activation.kind == "Clip"
            else (-np.inf, np.inf)
        )
        lowest, highest = (np.clip(np.floor(v * 2.0 ** fix(qgraph) + 0.5), -128, 127) for v in limits)
        unlimited = real if activation.kind == "Clip" else float_activation(real, activation)
        expected = np.clip(np.clip(np.floor(unlimited * 2.0 ** fix(qgraph) + 0.5), -128, 127), lowest, highest)
        assert found.tolist() == expected.astype(int).tolist()
