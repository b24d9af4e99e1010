"""pow2 mode: every scale a power of two, multipliers powers of two, DESIGN section 4's special rules, worked examples."""

import numpy as np
import pytest
from networks import Builder, calibrated, images, small_network, sqnr

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Activation
from npuforge.compile.ir.quantization import ConvParams, EltwiseParams
from npuforge.quant import fix_points, pow2
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor
from npuforge.quant.quantize import quantize


def _is_power_of_two(values: np.ndarray) -> bool:
    return all(v > 0 and v & (v - 1) == 0 for v in values.astype(int).ravel().tolist())


def test_every_tensor_has_one_fix_point_and_zero_point_zero() -> None:
    graph = small_network()
    qgraph = quantize(graph, calibrated(graph, images(graph, 2)), "pow2")
    assert set(qgraph.quant) == {"input", *(n.outputs[0] for n in graph.nodes)}
    for quant in qgraph.quant.values():
        assert quant.fix_point is not None and not quant.zero_point.any() and quant.image_mean is None
        np.testing.assert_array_equal(quant.scale, np.full(len(quant.scale), 2.0**-quant.fix_point))


def test_concat_inputs_share_a_fix_point_that_holds_both() -> None:
    graph = small_network()
    statistics = calibrated(graph, images(graph, 2))
    fixes = fix_points.fix_points(fix_points.Region.of(graph), statistics, "minmax")
    joined = ("deep", "up", "residual", "down", "joined")
    assert len({fixes[t] for t in joined}) == 1
    largest = max(float(np.abs(statistics.tensors[t].high).max()) for t in ("deep", "residual"))
    assert largest * 2.0 ** fixes["joined"] < 127.5 <= largest * 2.0 ** (fixes["joined"] + 1)


def test_convolution_worked_by_hand() -> None:
    b = Builder((1, 2, 1, 1))
    b.conv("c", "input", 1, 1, Activation("LeakyRelu", alpha=0.1))
    b.graph.constants["c.weight"][:] = np.array([0.75, -1.0], np.float32).reshape(1, 2, 1, 1)
    b.graph.constants["c.bias"][:] = 2.5
    params = pow2.convolution(b.graph.nodes[0], b.finish("c"), 4, 3, 0.0)
    # weights go to +-127: -1 needs fix point 6, where both are exact
    assert params.weight.ravel().tolist() == [48, -64]
    # bias: 2.5*2^5 = 80 fits, 2^6 gives 160; unit 4 + 6 = 10: stored as 80 << 5
    assert params.bias.tolist() == [80 << 5]
    # factor 2^(3 - 10): S = 7, with the slope 26/256: Mp = 256, Mn = 26, S = 15
    stage = params.stage
    assert stage.m_pos is not None and stage.m_neg is not None
    assert (stage.m_pos.tolist(), stage.m_neg.tolist(), stage.shift.tolist()) == ([256], [26], [15])


def test_left_shift_is_a_multiplier() -> None:
    positive, negative, shift = pow2.pwl_factors(3, Activation("Relu"), 2, "n")
    assert (positive.tolist(), negative.tolist(), shift) == ([8, 8], [0, 0], 0)
    positive, negative, shift = pow2.pwl_factors(2, Activation("LeakyRelu", alpha=0.1), 1, "n")
    assert (positive.tolist(), negative.tolist(), shift) == ([1024], [104], 8)
    with pytest.raises(QuantisationError, match=r"node n: factor 2\^15 is outside"):
        pow2.pwl_factors(15, Activation("Relu"), 1, "n")
    with pytest.raises(QuantisationError, match=r"node n: factor 2\^7 is outside"):
        pow2.pwl_factors(7, Activation("LeakyRelu", alpha=0.1), 1, "n")


def test_multipliers_are_powers_of_two_on_a_whole_network() -> None:
    graph = small_network()
    qgraph = quantize(graph, calibrated(graph, images(graph, 2)), "pow2")
    for node in graph.nodes:
        params = qgraph.params[node.name]
        if isinstance(params, ConvParams | EltwiseParams):
            stage = params.stage
            assert stage.m_pos is not None and stage.m_neg is not None
            assert _is_power_of_two(stage.m_pos), node.name
            if node.activation.kind == "LeakyRelu":
                np.testing.assert_array_equal(stage.m_neg.astype(int) * 256, stage.m_pos.astype(int) * 26)
        if isinstance(params, ConvParams):
            assert not params.pad_value.any()
            fix_in, bias = qgraph.quant[node.inputs[0]].fix_point, params.bias.astype(np.int64)
            assert fix_in is not None
            # an int8 bias, shifted left
            shift = max(s for s in range(31) if not (bias & ((1 << s) - 1)).any())
            assert (np.abs(bias >> shift) <= 128).all()


@pytest.mark.parametrize("calibrator", ["minmax", "percentile", "mse"])
def test_network_is_close_to_float(calibrator: str) -> None:
    graph = small_network()
    feeds = images(graph, 4)
    qgraph = quantize(graph, calibrated(graph, feeds, histograms=True), "pow2", calibrator)
    expected = np.concatenate([ReferenceExecutor(graph).run(f)["head"] for f in feeds])
    found = np.concatenate([IntegerExecutor(qgraph).run_outputs(f)["head"] for f in feeds])
    assert sqnr(expected, found) > 10.0


def test_fitting_fix_point() -> None:
    assert fix_points.fitting_fix_point(-1.0, 0.99) == 7  # -128, 126.7
    assert fix_points.fitting_fix_point(-1.0, 1.0) == 6
    assert fix_points.fitting_fix_point(-300.0, 100.0) == -2
    assert fix_points.fitting_fix_point(0.0, 0.0) == fix_points.FIX_POINT_MAX
