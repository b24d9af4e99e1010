"""Calibration statistics against numpy on the stacked tensors; refusals name the tensor."""

import numpy as np
import pytest
from networks import Builder, calibrated, images, small_network

from npuforge.compile.ir.errors import CalibrationError, QuantisationError
from npuforge.compile.ir.graph import Activation
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import ReferenceExecutor
from npuforge.quant.ranges import channel_ranges, tensor_percentile
from npuforge.quant.statistics import BINS, Histogram, TensorStatistics, pre_activation


def test_moments_and_ranges_are_those_of_all_images_together() -> None:
    graph = small_network()
    feeds = images(graph, 3)
    statistics = calibrated(graph, feeds)
    executor = ReferenceExecutor(graph, ["stem", "head", pre_activation("stem")])
    results = [executor.run(f) for f in feeds]
    for tensor in ("stem", "head", pre_activation("stem")):
        stacked = (
            np.concatenate([r[tensor] for r in results]).transpose(1, 0, 2, 3).reshape(results[0][tensor].shape[1], -1)
        )
        known = statistics.tensors[tensor]
        np.testing.assert_array_equal(known.low, stacked.min(axis=1))
        np.testing.assert_array_equal(known.high, stacked.max(axis=1))
        np.testing.assert_allclose(known.mean, stacked.mean(axis=1), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(known.square, (stacked**2).mean(axis=1), rtol=1e-9)
        assert known.count == stacked.shape[1]
    before, after = (results[0][t] for t in (pre_activation("stem"), "stem"))
    np.testing.assert_allclose(after, before / (1 + np.exp(-before)), rtol=1e-12)
    assert statistics.images == 3


def test_progress_counts_images() -> None:
    graph = small_network()
    seen: list[int] = []
    calibrate(graph, images(graph, 3), lambda wanted: ReferenceExecutor(graph, wanted).run, progress=seen.append)
    assert seen == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_by_tensor_name(poison: float) -> None:
    graph = small_network()
    graph.constants["deep.bias"][3] = poison
    with pytest.raises(CalibrationError, match=r"tensor deep.*NaN or infinity on calibration image 0"):
        calibrated(graph, images(graph, 1))


def test_no_images_and_wrong_sizes_are_refused() -> None:
    graph = small_network()
    with pytest.raises(CalibrationError, match="no calibration images"):
        calibrated(graph, [])
    with pytest.raises(
        CalibrationError, match=r"input input expects \[3, 16, 12\] after the batch, found \[3, 12, 16\]"
    ):
        calibrated(graph, [{"input": np.zeros((1, 3, 12, 16), np.float32)}])
    with pytest.raises(CalibrationError, match="input input is missing"):
        calibrated(graph, [{"other": np.zeros((1, 3, 16, 12), np.float32)}])


def test_histogram_grows_and_keeps_every_value() -> None:
    random = np.random.default_rng(0)
    parts = [random.normal(0, scale, (2, 500)) for scale in (0.01, 1.0, 300.0)]
    histogram = Histogram(2)
    for part in parts:
        histogram.update(part)
    values = np.concatenate(parts, axis=1)
    assert histogram.counts.sum(axis=1).tolist() == [1500, 1500]
    edges = histogram.edges()
    for channel in range(2):
        assert edges[channel, 0] <= values[channel].min() and values[channel].max() <= edges[channel, -1]
        # merging is exact: as if all values had been sorted into the final bins at once
        expected, _ = np.histogram(values[channel], bins=edges[channel])
        np.testing.assert_array_equal(histogram.counts[channel], expected)
    assert histogram.counts.shape == (2, BINS)


def _statistics(values: np.ndarray) -> TensorStatistics:
    statistics = TensorStatistics.empty(values.shape[0], True)
    statistics.update(values[None, :, None, :], histogram_values=1 << 30)
    return statistics


def test_percentile_drops_outliers_only() -> None:
    values = np.linspace(-1.0, 2.0, 100_000)[None].repeat(2, 0)
    values[1, 5], values[1, 7] = -60.0, 90.0
    low, high = channel_ranges(_statistics(values), "t", "percentile")
    # 0.005 % of 100000 values = 5 from each side
    assert low[0] == pytest.approx(-1.0, abs=0.01) and high[0] == pytest.approx(2.0, abs=0.01)
    assert low[1] == pytest.approx(-1.0, abs=0.2) and high[1] == pytest.approx(2.0, abs=0.2)  # one bin is 128/1024


def test_percentile_of_a_whole_tensor() -> None:
    """Channels count together: one whole channel of outliers is too much to drop, five values of 200000 are not."""
    values = np.linspace(-1.0, 1.0, 100_000)[None].repeat(2, 0)
    values[1, :5], values[0, :5] = 50.0, -70.0
    low, high = tensor_percentile(_statistics(values), "t")
    assert low == pytest.approx(-1.0, abs=0.2) and high == pytest.approx(1.0, abs=0.2)
    values[1, :50] = 50.0
    assert tensor_percentile(_statistics(values), "t")[1] == pytest.approx(50.0, abs=0.2)


def test_mse_gives_less_error_than_minmax() -> None:
    random = np.random.default_rng(0)
    values = random.normal(0, 1, (1, 200_000))
    values[0, 0] = 40.0
    statistics = _statistics(values)

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        return float(((np.clip(np.round((values - low) / step), 0, 255) * step + low - values) ** 2).sum())

    (low,), (high,) = channel_ranges(statistics, "t", "mse")
    (full_low,), (full_high,) = channel_ranges(statistics, "t", "minmax")
    assert (full_low, full_high) == (values.min(), 40.0)
    assert error(low, high) < error(full_low, full_high)


def test_ranges_include_zero_and_unknown_calibrators_are_refused() -> None:
    statistics = _statistics(np.array([[2.0, 3.0], [-3.0, -2.0]]))
    low, high = channel_ranges(statistics, "t", "minmax")
    assert low.tolist() == [0.0, -3.0] and high.tolist() == [3.0, 0.0]
    with pytest.raises(QuantisationError, match="calibrator entropie is not known"):
        channel_ranges(statistics, "t", "entropie")
    with pytest.raises(QuantisationError, match="tensor t: calibrator mse needs histograms"):
        channel_ranges(TensorStatistics.empty(1, False), "t", "mse")


def test_only_the_quantised_region_is_observed() -> None:
    b = Builder((1, 3, 4, 4))
    b.conv("first", "input", 4, 1, Activation("Relu"))
    b.add("Affine", "decode", ["first"], Activation("Sigmoid"), scale=[1.0] * 4, bias=[0.0] * 4)
    graph = b.finish("decode")
    for node in graph.nodes:
        node.device = ""
    assert set(calibrated(graph, images(graph, 1)).tensors) == {"input", "first"}
