"""Calibrators: from a tensor's statistics to the range of every channel. Each range includes 0."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Activation
from npuforge.hw_kernels.activations import curve
from npuforge.quant.statistics import TensorStatistics

CALIBRATORS = ("minmax", "percentile", "mse")
PERCENTILE = 99.995
_MSE_SHARES = np.concatenate([np.linspace(0.2, 0.6, 9), np.linspace(0.625, 1.0, 16)])


def _histogram_needed(statistics: TensorStatistics, name: str, calibrator: str) -> None:
    if statistics.histogram is None:
        raise QuantisationError(
            f"tensor {name}: calibrator {calibrator} needs histograms; calibrate with histograms=True"
        )


def _percentile(statistics: TensorStatistics, percent: float) -> tuple[np.ndarray, np.ndarray]:
    assert statistics.histogram is not None
    counts, edges = statistics.histogram.counts, statistics.histogram.edges()
    cumulative = counts.cumsum(axis=1)
    outside = cumulative[:, -1:] * (1.0 - percent / 100.0)
    first = np.argmax(cumulative > outside, axis=1)  # first bin kept
    last = np.argmax(cumulative >= cumulative[:, -1:] - outside, axis=1)  # last bin kept
    rows = np.arange(counts.shape[0])
    return np.maximum(edges[rows, first], statistics.low), np.minimum(edges[rows, last + 1], statistics.high)


def _mse(statistics: TensorStatistics) -> tuple[np.ndarray, np.ndarray]:
    """The share of the min-max range with the least mean squared error of a 256-level quantiser."""
    assert statistics.histogram is not None
    counts, centres = statistics.histogram.counts.astype(np.float64), statistics.histogram.centres()
    low, high = np.minimum(statistics.low, 0.0), np.maximum(statistics.high, 0.0)
    best = np.full(len(low), np.inf)
    share = np.ones(len(low))
    for candidate in _MSE_SHARES[::-1]:
        step = np.maximum((high - low) * candidate / 255.0, 1e-30)[:, None]
        bottom = (low * candidate)[:, None]
        rebuilt = np.clip(np.floor((centres - bottom) / step + 0.5), 0, 255) * step + bottom
        error = (counts * (centres - rebuilt) ** 2).sum(axis=1)
        share = np.where(error < best, candidate, share)
        best = np.minimum(best, error)
    return low * share, high * share


def tensor_percentile(statistics: TensorStatistics, name: str) -> tuple[float, float]:
    """The range of all channels together that leaves out `100 - PERCENTILE` percent of the values on either side; 0 included."""
    _histogram_needed(statistics, name, "percentile")
    assert statistics.histogram is not None
    counts, centres = statistics.histogram.counts, statistics.histogram.centres()
    held = counts > 0
    order = np.argsort(centres[held], kind="stable")
    values, cumulative = centres[held][order], counts[held][order].cumsum()
    outside = cumulative[-1] * (1.0 - PERCENTILE / 100.0)
    low = values[int(np.argmax(cumulative > outside))]
    high = values[int(np.argmax(cumulative >= cumulative[-1] - outside))]
    return min(float(low), 0.0), max(float(high), 0.0)


def channel_ranges(statistics: TensorStatistics, name: str, calibrator: str) -> tuple[np.ndarray, np.ndarray]:
    """Low and high of every channel, 0 included, float64 [C]."""
    if calibrator == "minmax":
        low, high = statistics.low, statistics.high
    elif calibrator == "percentile":
        _histogram_needed(statistics, name, calibrator)
        low, high = _percentile(statistics, PERCENTILE)
    elif calibrator == "mse":
        _histogram_needed(statistics, name, calibrator)
        low, high = _mse(statistics)
    else:
        raise QuantisationError(f"calibrator {calibrator} is not known; choose one of {', '.join(CALIBRATORS)}")
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def largest_pre_activation(statistics: TensorStatistics, activation: Activation) -> float:
    """The largest magnitude that a curve's 16-bit pre-activation must hold: of a side whose tail is the pre-activation itself, and the constant tails.

    Where the tail is a constant, saturating the pre-activation (at 16 or more) changes nothing.
    """
    bent = curve(activation)
    low = -float(statistics.low.min()) if bent.low is None else 0.0
    high = float(statistics.high.max()) if bent.high is None else 0.0
    return max(low, high, bent.largest_tail)
