"""Weight rounding, bias correction and the choice of alpha: each does what it claims on data it is given, against nearest rounding."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from networks import Builder, calibrated, images, small_network, sqnr

from npuforge.compile.ir.graph import Activation, Graph, TensorInfo
from npuforge.compile.ir.quantization import ConvParams
from npuforge.quant import balance
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor, dequantise
from npuforge.quant.quantize import ALGORITHMS, quantize
from npuforge.quant.rounding import InputCovariance, residual_variance, round_weights, tap_shares
from npuforge.quant.statistics import Statistics


def _correlated(random: np.random.Generator, count: int, length: int) -> np.ndarray:
    return (
        random.normal(size=(count, 3)) @ random.normal(size=(3, length))
        + 0.1 * random.normal(size=(count, length))
        + 2.0
    )


def _inputs(x: np.ndarray) -> InputCovariance:
    return InputCovariance(x.sum(axis=0)[None], (x.T @ x)[None], len(x))


def test_weight_rounding_lowers_the_output_error_on_correlated_inputs() -> None:
    random = np.random.default_rng(0)
    x, weight = _correlated(random, 2000, 24), random.normal(size=(8, 1, 1, 24))
    acc_scale = np.abs(weight).max(axis=(1, 2, 3)) / 127
    rounded = round_weights(weight, acc_scale, np.ones((8, 24)), _inputs(x))
    nearest = np.round(weight / acc_scale[:, None, None, None])
    assert rounded.dtype == np.int8 and np.abs(rounded.astype(int)).max() <= 127

    def error(w: np.ndarray) -> float:
        d = (w * acc_scale[:, None, None, None] - weight).reshape(8, 24)
        return float(((x - x.mean(axis=0)) @ d.T).var())

    assert error(rounded) < 0.2 * error(nearest)


def test_weight_rounding_is_nearest_on_independent_inputs() -> None:
    random = np.random.default_rng(1)
    inputs = InputCovariance(np.zeros((1, 6)), np.eye(6)[None] * 100, 100)
    weight = random.normal(size=(4, 1, 1, 6))
    acc_scale = np.abs(weight).max(axis=(1, 2, 3)) / 127
    rounded = round_weights(weight, acc_scale, np.ones((4, 6)), inputs)
    np.testing.assert_array_equal(rounded, np.floor(weight / acc_scale[:, None, None, None] + 0.5))


def test_residual_variance_is_that_of_a_regression() -> None:
    """Of two inputs the one with the larger variance is rounded first: the other can compensate what they share."""
    random = np.random.default_rng(2)
    x = random.normal(size=(5000, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])
    residual = residual_variance(_inputs(x))[0]
    a, b = (x - x.mean(axis=0)).T
    damping = 0.01 * (a.var() + b.var()) / 2
    assert residual[1] == pytest.approx(b.var() + damping)
    assert residual[0] == pytest.approx(a.var() + damping - np.mean(a * b) ** 2 / (b.var() + damping))
    assert residual[0] < 0.25 * a.var()


@pytest.mark.parametrize(
    "case", [(3, 1, [1, 1, 1, 1], 1), (3, 2, [0, 1, 1, 0], 1), (3, 1, [2, 2, 2, 2], 2), (1, 1, [0, 0, 0, 0], 1)]
)
def test_covariance_and_tap_shares_are_those_of_the_unfolded_input(case: tuple[int, int, list[int], int]) -> None:
    kernel, stride, pads, dilation = case
    b = Builder((1, 4, 6, 5))
    b.conv("c", "input", 4, kernel, strides=[stride] * 2, pads=pads, dilations=[dilation] * 2, group=2)
    graph, x = b.finish("c"), np.random.default_rng(0).normal(1.0, 1.0, (1, 4, 6, 5)).astype(np.float32)
    node, out = graph.nodes[0], graph.tensors["c"].shape
    inputs = InputCovariance.of(node, graph)
    assert inputs is not None
    inputs.update(node, graph, x, out, positions=10_000)
    padded = np.pad(x[0], ((0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    inside = np.pad(np.ones((6, 5)), ((pads[0], pads[2]), (pads[1], pads[3])))
    rows, shares = [], np.zeros((kernel, kernel))
    for oy in range(out[2]):
        for ox in range(out[3]):
            at = [
                (oy * stride + ky * dilation, ox * stride + kx * dilation)
                for ky in range(kernel)
                for kx in range(kernel)
            ]
            rows.append([[padded[c, y, k] for y, k in at for c in group] for group in ((0, 1), (2, 3))])
            shares += np.array([inside[y, k] for y, k in at]).reshape(kernel, kernel)
    unfolded = np.array(rows)  # [P, G, K]
    assert inputs.count == len(unfolded)
    np.testing.assert_allclose(inputs.mean(), unfolded.mean(axis=0), atol=1e-6)
    for g in range(2):
        np.testing.assert_allclose(
            inputs.covariance()[g], np.cov(unfolded[:, g].T, bias=True).reshape(inputs.covariance()[g].shape), atol=1e-5
        )
    np.testing.assert_allclose(tap_shares(node, graph), shares / len(unfolded))


def test_tap_shares_of_a_transposed_convolution() -> None:
    """Scatter ones: how often each tap of each input pixel lands in the output."""
    b = Builder((1, 1, 4, 3))
    b.graph.constants |= {"w": np.zeros((1, 1, 3, 3), np.float32), "b": np.zeros(1, np.float32)}
    b.graph.tensors |= {n: TensorInfo(n, v.shape) for n, v in b.graph.constants.items()}
    attrs = {
        "kernel_shape": [3, 3],
        "strides": [2, 2],
        "pads": [1, 0, 0, 1],
        "dilations": [1, 1],
        "group": 1,
        "output_padding": [0, 1],
    }
    b.add("ConvTranspose", "t", ["input", "w", "b"], **attrs)
    graph = b.finish("t")
    _, _, out_h, out_w = graph.tensors["t"].shape
    assert (out_h, out_w) == (8, 7)  # (4 - 1)*2 + 3 - 1, (3 - 1)*2 + 3 - 1 + 1
    counts = np.zeros((3, 3))
    for iy, ix, ky, kx in itertools.product(range(4), range(3), range(3), range(3)):
        counts[2 - ky, 2 - kx] += 0 <= iy * 2 - 1 + ky < out_h and 0 <= ix * 2 + kx < out_w
    np.testing.assert_allclose(tap_shares(graph.nodes[0], graph), counts / (out_h * out_w))


def _pre_mean_error(
    graph: Graph, statistics: Statistics, feeds: list[dict[str, np.ndarray]], algorithms: tuple[str, ...]
) -> float:
    """Largest error of a channel's mean at the head, in units of its spread, over the sample images."""
    qgraph = quantize(graph, statistics, alpha=0.75, algorithms=algorithms)
    expected = np.concatenate([ReferenceExecutor(graph).run(f)["head"] for f in feeds])
    found = np.concatenate([dequantise(IntegerExecutor(qgraph).run(f)["head"], qgraph.quant["head"]) for f in feeds])
    shift = (found - expected).mean(axis=(0, 2, 3)) / expected.std(axis=(0, 2, 3))
    return float(np.abs(shift).max())


def test_bias_correction_removes_the_mean_error() -> None:
    graph = small_network()
    feeds = images(graph, 6)
    statistics = calibrated(graph, feeds)
    without = _pre_mean_error(graph, statistics, feeds, ())
    corrected = _pre_mean_error(graph, statistics, feeds, ("bias_correction",))
    assert corrected < 0.004 < 0.5 * without


def _outlier_network(seed: int) -> Graph:
    """One large weight per output channel makes the steps of the others coarse: the noise is the weights'."""
    b = Builder((1, 6, 12, 12), seed)
    b.conv("hidden", "input", 16, 3, Activation("Relu"))
    b.conv("head", "hidden", 5, 1)
    for name in ("hidden", "head"):
        b.graph.constants[f"{name}.weight"][:, 0, 0, 0] *= 40.0
    return b.finish("head")


@pytest.mark.parametrize("mode", ["fine", "pow2"])
def test_algorithms_help_and_are_switchable(mode: str) -> None:
    results = {}
    for algorithms in ((), ("weight_rounding",), ALGORITHMS):
        found, expected = [], []
        for seed in range(3):
            graph = _outlier_network(seed)
            feeds = images(graph, 10)
            qgraph = quantize(graph, calibrated(graph, feeds[:6]), mode, alpha=0.75, algorithms=algorithms)
            found += [IntegerExecutor(qgraph).run_outputs(f)["head"] for f in feeds[6:]]
            expected += [ReferenceExecutor(graph).run(f)["head"] for f in feeds[6:]]
        results[algorithms] = sqnr(np.concatenate(expected), np.concatenate(found))
    assert results[ALGORITHMS] > results[()] + 1.0, results
    assert len(set(results.values())) == 3


def test_without_samples_and_covariances_weights_are_nearest() -> None:
    graph = small_network()
    statistics = calibrated(graph, images(graph, 2))
    bare = replace(statistics, inputs={}, samples={}, sample_means={})
    plain, off = quantize(graph, bare, alpha=0.75), quantize(graph, statistics, alpha=0.75, algorithms=())
    for node in graph.nodes:
        a, b = plain.params[node.name], off.params[node.name]
        if isinstance(a, ConvParams) and isinstance(b, ConvParams):
            np.testing.assert_array_equal(a.weight, b.weight)
            np.testing.assert_array_equal(a.bias, b.bias)


def test_alpha_follows_the_consumer() -> None:
    """A depthwise consumer has nothing to lose from unlike scales; a dense one with one dominant weight column has."""
    alphas = {}
    for kind in ("depthwise", "dense"):
        b = Builder((1, 8, 6, 6))
        b.conv("wide", "input", 8, 1, spread=200.0)
        if kind == "depthwise":
            b.conv("last", "wide", 8, 3, group=8)
        else:
            b.conv("last", "wide", 8, 1)
            b.graph.constants["last.weight"][:] /= np.abs(b.graph.constants["last.weight"]).max(axis=0, keepdims=True)
        graph = b.finish("last")
        qgraph = quantize(graph, calibrated(graph, images(graph, 3)))
        alphas[kind] = float(qgraph.notes["wide"].removeprefix("alpha="))
    assert alphas["depthwise"] == max(balance.CANDIDATES) > alphas["dense"]
