"""The fine quantiser: the formulas of DESIGN section 4 redone with fractions, worked examples, refusals."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from networks import Builder, calibrated, images, pixel_images, preprocessed, small_network, sqnr

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Activation, Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.quantization import AveragePoolParams, ConvParams, EltwiseParams, TensorQuant
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.operator import Case
from npuforge.quant import layers
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor
from npuforge.quant.quantize import image_quant, quantize
from npuforge.quant.stages import channel_scales, zero_points


def half_up(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


def test_scales_and_zero_points_by_hand() -> None:
    # R = 255; channel ranges 255, 255/16, and 0 floored at R/1024. alpha 0.5: s = 1, 1/4, 1/32. z = -128 - min/s
    low, high = np.array([-55.0, 0.0, 0.0]), np.array([200.0, 255.0 / 16, 0.0])
    scale = channel_scales(low, high, 0.5)
    np.testing.assert_allclose(scale, [1.0, 0.25, 1.0 / 32], rtol=1e-12)
    assert zero_points(low, scale).tolist() == [-73, -128, -128]
    assert channel_scales(np.zeros(2), np.zeros(2), 0.75).tolist() == [1.0, 1.0]


def test_convolution_worked_by_hand() -> None:
    b = Builder((1, 2, 1, 1))
    b.conv("c", "input", 1, 1, Activation("LeakyRelu", alpha=0.1))
    b.graph.constants["c.weight"][:] = np.array([2.0, -8.0], np.float32).reshape(1, 2, 1, 1)
    b.graph.constants["c.bias"][:] = 1.0
    x = TensorQuant(np.array([0.5, 0.125]), np.array([-10, 20], np.int32))
    out = layers.Output(np.array([0.1]), np.array([-2.0]))
    params, quant = layers.convolution(b.graph.nodes[0], b.finish("c"), x, out)
    # w*s = 1, -1; s_acc = 1/127; w_q = 127, -127; bias_q = 127 - (127*-10 - 127*20) = 127 + 3810 = 3937
    assert params.weight.ravel().tolist() == [127, -127]
    assert params.bias.tolist() == [3937]
    assert params.pad_value.tolist() == [-10, 20]
    # z = round_half_up(-128 + 20) = -108; m = 10/127 = 0.0787402: 2^18*m = 20641.26, 2^19*m = 41283 > 32767
    stage = params.stage
    assert quant.zero_point.tolist() == [-108] and stage.zero_point.tolist() == [-108]
    assert (stage.shift.tolist(), stage.m_pos.tolist(), stage.m_neg.tolist()) == ([18], [20641], [2064])  # type: ignore[union-attr]
    # q = 30, -20: real x = 20, -5: 1 + 40 + 40 = 81 -> clipped at 127: (127 + 108)*0.1 = 23.5
    # q = 10, 60: real 10, 5: 1 + 20 - 40 = -19 -> *0.1 = -1.9 -> -19 - 108 = -127
    qgraph_input = np.array([[[[30, -20]], [[10, 60]]]], np.int8).reshape(1, 1, 2, 2)
    from npuforge.compile.ir.quantization import QGraph

    qgraph = QGraph(b.graph, "fine", {"input": x, "c": quant}, {"c": params})
    assert operator.get(b.graph.nodes[0]).integer(b.graph.nodes[0], [qgraph_input], qgraph).ravel().tolist() == [
        127,
        -127,
    ]


def test_every_convolution_follows_the_formulas() -> None:
    graph = small_network()
    feeds = images(graph, 3)
    qgraph = quantize(graph, calibrated(graph, feeds), alpha=0.75, algorithms=())
    for node in (n for n in graph.nodes if n.op == "Conv"):
        params, x, y = qgraph.params[node.name], qgraph.quant[node.inputs[0]], qgraph.quant[node.outputs[0]]
        assert isinstance(params, ConvParams)
        weight, bias = (graph.constants[t].astype(np.float64) for t in node.inputs[1:])
        group = node.attrs["group"]
        per_in, per_out = weight.shape[1], weight.shape[0] // group
        for o in range(weight.shape[0]):
            first = (o // per_out) * per_in
            scaled = [
                [Fraction(weight[o, i, ky, kx]) * Fraction(x.scale[first + i]) for i in range(per_in)]
                for ky in range(weight.shape[2])
                for kx in range(weight.shape[3])
            ]
            acc_scale = max(max(abs(v) for row in scaled for v in row) / 127, abs(Fraction(bias[o])) / 2**29)
            expected = np.array([[half_up(v / acc_scale) for v in row] for row in scaled])
            found = params.weight[o].reshape(-1, per_in).astype(int)
            assert (
                np.abs(expected - found).max() <= 1 and (expected != found).mean() < 0.01
            )  # float64 products may tie differently
            zero_sum = sum(
                int(found[t, i]) * int(x.zero_point[first + i]) for t in range(len(found)) for i in range(per_in)
            )
            assert abs(params.bias[o] - (half_up(Fraction(bias[o]) / acc_scale) - zero_sum)) <= 1
            if params.stage.kind == "pwl":
                assert params.stage.m_pos is not None
                factor = acc_scale / Fraction(y.scale[o])
                assert abs(int(params.stage.m_pos[o]) - factor * 2 ** int(params.stage.shift[o])) < 1
                assert int(params.stage.m_pos[o]) >= 2**13  # the largest shift leaves at least 14 significant bits


def test_integer_network_is_close_to_float() -> None:
    graph = small_network()
    feeds = images(graph, 4)
    statistics = calibrated(graph, feeds)
    for alpha in (None, 0.75, 1.0):
        executor = IntegerExecutor(quantize(graph, statistics, alpha=alpha))
        expected = [ReferenceExecutor(graph).run(f)["head"] for f in feeds]
        found = [executor.run_outputs(f)["head"] for f in feeds]
        assert sqnr(np.concatenate(expected), np.concatenate(found)) > 25.0, alpha


def test_per_channel_scales_beat_power_of_two() -> None:
    graph = small_network()
    feeds = images(graph, 4)
    statistics = calibrated(graph, feeds)
    expected = np.concatenate([ReferenceExecutor(graph).run(f)["head"] for f in feeds])
    found = {}
    for mode in ("fine", "pow2"):
        executor = IntegerExecutor(quantize(graph, statistics, mode))
        found[mode] = sqnr(expected, np.concatenate([executor.run_outputs(f)["head"] for f in feeds]))
    assert found["fine"] > found["pow2"] + 3.0 and found["pow2"] > 8.0


def test_moves_carry_scales() -> None:
    graph = small_network()
    qgraph = quantize(graph, calibrated(graph, images(graph, 2)))
    quant = qgraph.quant
    np.testing.assert_array_equal(quant["down"].scale, quant["residual"].scale)
    np.testing.assert_array_equal(quant["up"].zero_point, quant["deep"].zero_point)
    np.testing.assert_array_equal(quant["joined"].scale, np.concatenate([quant["deep"].scale, quant["residual"].scale]))
    # order[c] = focus channel 3*(c % 4) + c // 4, focus channel = input channel (mod 3)
    np.testing.assert_array_equal(quant["order"].scale, quant["input"].scale[np.repeat([0, 1, 2], 4)])


def test_zero_channels_do_not_disturb_the_next_convolution() -> None:
    b = Builder((1, 3, 4, 4))
    b.add("ChannelGather", "padded", ["input"], indices=[0, 1, 2, -1])
    b.conv("c", "padded", 5, 3)
    graph = b.finish("c")
    graph.constants["c.weight"][:, 3] = 1e4  # meets zeros only
    feeds = images(graph, 2)
    executor = IntegerExecutor(quantize(graph, calibrated(graph, feeds)))
    assert sqnr(ReferenceExecutor(graph).run(feeds[0])["c"], executor.run_outputs(feeds[0])["c"]) > 25.0


def _image_network() -> tuple[Graph, Preprocess]:
    graph = small_network()
    return graph, Preprocess(width=12, height=16, mean=[103.53, 116.28, 123.675], std=[57.375, 57.12, 58.395])


def test_image_is_folded_exactly() -> None:
    """The first convolution's accumulator, in real units, is the float convolution of the pixels up to weight rounding only."""
    graph, preprocess = _image_network()
    pixels = pixel_images(graph, 2)
    mean, std = np.array(preprocess.mean)[:, None, None], np.array(preprocess.std)[:, None, None]
    feeds = [{"input": ((p["input"] - mean) / std).astype(np.float32)} for p in pixels]
    qgraph = quantize(graph, calibrated(graph, feeds), preprocess=preprocess, algorithms=())
    quant = qgraph.quant["order"]
    order = np.repeat([0, 1, 2], 4)
    np.testing.assert_array_equal(quant.image_mean, np.array(preprocess.mean)[order])  # type: ignore[arg-type]
    assert qgraph.quant["input"].zero_point.tolist() == [104 - 128, 116 - 128, 124 - 128]
    params = qgraph.params["stem"]
    assert isinstance(params, ConvParams)
    weight = graph.constants["stem.weight"].astype(np.float64).transpose(0, 2, 3, 1) / np.array(preprocess.std)[order]
    acc_scale = np.abs(weight).max(axis=(1, 2, 3)) / 127
    random = np.random.default_rng(0)
    patch = random.integers(0, 256, (3, 3, 12))
    exact = (params.weight * acc_scale[:, None, None, None] * (patch - quant.image_mean)).sum(
        axis=(1, 2, 3)
    ) + graph.constants["stem.bias"]
    acc = (params.weight.astype(np.int64) * (patch - 128)).sum(axis=(1, 2, 3)) + params.bias
    assert np.abs(acc * acc_scale - exact).max() <= 0.5001 * acc_scale.max()
    raw = {"input": pixels[0]["input"].astype(np.uint8).transpose(0, 2, 3, 1)}
    executor = IntegerExecutor(qgraph)
    assert sqnr(ReferenceExecutor(graph).run(feeds[0])["head"], executor.run_outputs(raw)["head"]) > 25.0
    np.testing.assert_array_equal(
        executor.run(raw)["head"], executor.run(feeds[0])["head"]
    )  # preprocessed floats mean the same pixels


def test_image_with_another_consumer_is_an_ordinary_tensor() -> None:
    b = Builder((1, 3, 4, 4))
    b.conv("c", "input", 3, 1)
    b.add("Add", "sum", ["c", "input"])
    graph = b.finish("sum")
    feeds = preprocessed(pixel_images(graph, 2), 127.5, 128.0)
    qgraph = quantize(graph, calibrated(graph, feeds), preprocess=Preprocess(mean=[127.5] * 3, std=[128.0] * 3))
    assert qgraph.quant["input"].image_mean is None
    b = Builder((1, 3, 4, 4))
    b.conv("c", "input", 3, 1)
    graph = b.finish("c")
    qgraph = quantize(graph, calibrated(graph, feeds), preprocess=Preprocess(mean=[127.5] * 3, std=[128.0] * 3))
    assert qgraph.quant["input"].image_mean is not None
    assert image_quant(Preprocess(mean=[0.0, 127.5, 300.0])).zero_point.tolist() == [-128, 0, 127]


def test_output_scale_is_raised_until_a_multiplier_exists() -> None:
    b = Builder((1, 1, 1, 1))
    b.conv("c", "input", 1, 1)
    b.graph.constants["c.weight"][:] = 1e6
    out = layers.Output(np.array([1e-3]), np.array([0.0]))
    params, quant = layers.convolution(
        b.graph.nodes[0], b.finish("c"), TensorQuant(np.ones(1), np.zeros(1, np.int32)), out
    )
    acc_scale = 1e6 / 127
    assert quant.scale[0] == pytest.approx(acc_scale / 32767) and params.stage.shift[0] == 0
    assert params.stage.m_pos is not None and params.stage.m_pos[0] == 32767


def test_overflow_is_refused_by_name() -> None:
    b = Builder((1, 2, 1, 1))
    b.conv("wide", "input", 1, 1)
    b.finish("wide")
    weight, bias = np.full((1, 1, 1, 2), 127, np.int8), np.array([2.0**31 - 2 * 127 * 128])
    layers.check_overflow(b.graph.nodes[0], weight, bias - 1)
    with pytest.raises(QuantisationError, match=r"node wide: output channel 0 can reach 2147483648"):
        layers.check_overflow(b.graph.nodes[0], weight, bias)


def test_large_bias_limits_the_accumulator_scale() -> None:
    b = Builder((1, 1, 1, 1))
    b.conv("c", "input", 2, 1)
    b.graph.constants["c.weight"][:] = np.array([1e-9, 0.0]).reshape(2, 1, 1, 1)
    b.graph.constants["c.bias"][:] = [1.0, 0.0]
    out = layers.Output(np.array([1 / 128, 1.0]), np.zeros(2))
    params, _ = layers.convolution(b.graph.nodes[0], b.finish("c"), TensorQuant(np.ones(1), np.zeros(1, np.int32)), out)
    assert params.bias.tolist() == [2**29, 0]
    assert params.stage.m_pos is not None
    # 1/2^29 per accumulator unit, output step 1/128: m = 2^-22, S = min(47, 22 + 14); a channel of zeros: s_acc = 1, m = 1
    assert (params.stage.shift.tolist(), params.stage.m_pos.tolist()) == ([36, 14], [16384, 16384])


def test_fused_limits() -> None:
    b = Builder((1, 1, 1, 1))
    b.conv("c", "input", 1, 1, Activation("Clip", low=0.0, high=6.0))
    out = layers.Output(np.array([0.05]), np.array([-1.0]))  # z = -108
    params, _ = layers.convolution(b.graph.nodes[0], b.finish("c"), TensorQuant(np.ones(1), np.zeros(1, np.int32)), out)
    stage = params.stage
    assert stage.low is not None and stage.high is not None and stage.m_neg is not None
    assert (stage.low.tolist(), stage.high.tolist(), stage.m_neg.tolist()) == ([-108], [12], [0])


def test_average_pool_multipliers() -> None:
    case = Case(
        [(1, 2, 3, 3)], {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1], "ceil_pads": [0, 0, 1, 1]}
    )
    graph = operator.case_graph("AveragePool", case)
    x = TensorQuant(np.array([0.5, 1.0]), np.array([3, -4], np.int32))
    params, _ = layers.average_pool(graph.nodes[0], graph, x, layers.Output(np.array([0.5, 0.25]), np.zeros(2)))
    assert isinstance(params, AveragePoolParams) and not params.single
    # m(1) = 1, 4; the largest, 4, sets S = 12 (4*2^12 = 16384); windows have 4, 2, 2, 1 taps; 3 does not occur
    assert params.shift == 12
    assert params.multiplier.tolist() == [[4096, 16384], [2048, 8192], [0, 0], [1024, 4096]]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Affine", "AveragePool", "ConvTranspose"])
@pytest.mark.parametrize("mode", ["fine", "pow2"])
def test_integer_error_of_single_operators(op: str, mode: str) -> None:
    """Every case stays within the rounding of its inputs, weights and output: a coarse bound in output steps, on calibrated inputs."""
    for number, case in enumerate(operator.registry()[op].cases):
        graph = operator.case_graph(op, case, seed=number)
        graph.nodes[0].device = "NPU"
        random = np.random.default_rng(number)
        feeds = [
            {t: random.normal(0, 1, graph.tensors[t].shape).astype(np.float32) for t in graph.inputs} for _ in range(3)
        ]
        qgraph = quantize(graph, calibrated(graph, feeds), mode)
        executor = IntegerExecutor(qgraph)
        for f in feeds:
            expected, found = ReferenceExecutor(graph).run(f)["y"], executor.run_outputs(f)["y"]
            assert sqnr(expected, found) > (30.0 if mode == "fine" else 22.0), case


def test_squeeze_excite_gate_of_one_channel() -> None:
    graph = operator.case_graph("Mul", Case([(1, 6, 3, 3), (1, 1, 3, 3)]))
    graph.nodes[0].device = "NPU"
    random = np.random.default_rng(0)
    feeds = [
        {
            "x0": random.normal(size=(1, 6, 3, 3)).astype(np.float32),
            "x1": random.uniform(0, 1, (1, 1, 3, 3)).astype(np.float32),
        }
    ]
    qgraph = quantize(graph, calibrated(graph, feeds), alpha=1.0)
    params = qgraph.params["node"]
    assert isinstance(params, EltwiseParams) and params.z_b.shape == (6,) and len(set(params.z_b.tolist())) == 1
    assert sqnr(ReferenceExecutor(graph).run(feeds[0])["y"], IntegerExecutor(qgraph).run_outputs(feeds[0])["y"]) > 35.0


def test_refusals() -> None:
    graph = small_network()
    statistics = calibrated(graph, images(graph, 1))
    with pytest.raises(QuantisationError, match="mode coarse is not known; choose one of fine, pow2"):
        quantize(graph, statistics, "coarse")
    del statistics.tensors["deep"]
    with pytest.raises(QuantisationError, match="node deep: no calibration statistics of tensor deep"):
        quantize(graph, statistics)
    graph.constants["stem.weight"][0] = np.nan
    with pytest.raises(QuantisationError, match="node stem: weights or bias hold NaN"):
        quantize(graph, calibrated(small_network(), images(graph, 1)))
