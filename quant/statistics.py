"""What calibration knows about every tensor: ranges, moments and, when asked for, a histogram of every channel.

Histograms cover [-A, A) with A a power of two per channel; when a value falls outside, A doubles and neighbouring bins merge exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuforge.quant.rounding import InputCovariance

BINS = 2048
WAITING = 4  # arrays counted at once


class Histogram:
    """Counts [C, BINS] over [-2^exponent, 2^exponent) of every channel. Values wait until a few arrays can be counted at once."""

    def __init__(self, channels: int) -> None:
        self._counts = np.zeros((channels, BINS), np.int64)
        self._exponent = np.full(channels, -30, np.int32)
        self._waiting: list[np.ndarray] = []

    @property
    def counts(self) -> np.ndarray:
        """int64 [C, BINS]"""
        self._flush()
        return self._counts

    @property
    def exponent(self) -> np.ndarray:
        """int32 [C]"""
        self._flush()
        return self._exponent

    def update(self, x: np.ndarray) -> None:
        """Add values [C, P] (finite)."""
        self._waiting.append(x.copy())
        if len(self._waiting) == WAITING:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        x = np.concatenate(self._waiting, axis=1)
        self._waiting = []
        _, needed = np.frexp(np.maximum(x.max(axis=1), -x.min(axis=1)))
        for channel in np.nonzero(needed > self._exponent)[0]:
            self._grow(int(channel), int(needed[channel]))
        bins_per_unit = np.ldexp(0.5 * BINS, -self._exponent).astype(x.dtype)
        position = x * bins_per_unit[:, None]  # a power of two: exact
        position += BINS // 2
        index = position.astype(np.int32)  # positive: truncation is floor
        np.clip(index, 0, BINS - 1, out=index)
        index += (np.arange(x.shape[0], dtype=np.int32) * BINS)[:, None]
        self._counts += np.bincount(index.ravel(), minlength=self._counts.size).reshape(self._counts.shape)

    def _grow(self, channel: int, exponent: int) -> None:
        row = self._counts[channel]
        if row.any():
            for _ in range(min(exponent - int(self._exponent[channel]), 12)):
                merged = np.zeros_like(row)
                merged[BINS // 4 : 3 * BINS // 4] = row.reshape(-1, 2).sum(axis=1)
                row = merged
            self._counts[channel] = row
        self._exponent[channel] = exponent

    def edges(self) -> np.ndarray:
        """Bin edges [C, BINS + 1]."""
        return np.linspace(-1.0, 1.0, BINS + 1)[None, :] * np.ldexp(1.0, self.exponent)[:, None]

    def centres(self) -> np.ndarray:
        """Bin centres [C, BINS]."""
        edges = self.edges()
        return 0.5 * (edges[:, 1:] + edges[:, :-1])


@dataclass
class TensorStatistics:
    """Per channel over all calibration images: minimum, maximum, mean, mean of squares; number of values per channel."""

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    count: int = 0
    histogram: Histogram | None = None

    @staticmethod
    def empty(channels: int, histogram: bool) -> TensorStatistics:
        """No values yet."""
        return TensorStatistics(
            np.full(channels, np.inf),
            np.full(channels, -np.inf),
            np.zeros(channels),
            np.zeros(channels),
            0,
            Histogram(channels) if histogram else None,
        )

    def update(self, x: np.ndarray, histogram_values: int) -> None:
        """Add one array [N, C, ...] of finite float values; the histogram takes at most about `histogram_values` of each channel."""
        flat = x.reshape(x.shape[0], x.shape[1], -1) if x.ndim > 1 else x.reshape(1, -1, 1)
        np.minimum(self.low, flat.min(axis=(0, 2)), out=self.low)
        np.maximum(self.high, flat.max(axis=(0, 2)), out=self.high)
        added = flat.shape[0] * flat.shape[2]
        total = self.count + added
        mean = flat.mean(axis=2).mean(axis=0, dtype=np.float64)
        squares = np.einsum("ncp,ncp->nc", flat, flat).sum(axis=0, dtype=np.float64) / added
        self.mean += (mean - self.mean) * (added / total)
        self.square += (squares - self.square) * (added / total)
        self.count = total
        if self.histogram is not None:
            step = max(1, flat.shape[2] // max(1, histogram_values))
            offset = total % step
            self.histogram.update(
                flat[:, :, offset::step].transpose(1, 0, 2).reshape(flat.shape[1], -1).astype(np.float64)
            )


@dataclass
class Statistics:
    """By tensor name; a curve's pre-activation is under `pre_activation(name of the output tensor)`."""

    tensors: dict[str, TensorStatistics] = field(default_factory=dict)
    inputs: dict[str, InputCovariance] = field(default_factory=dict)  # by name of the convolution
    samples: dict[str, list[np.ndarray]] = field(
        default_factory=dict
    )  # the region's entries on the first few images, float
    sample_means: dict[str, np.ndarray] = field(
        default_factory=dict
    )  # sum over those images of every tensor's channel means
    images: int = 0


def pre_activation(tensor: str) -> str:
    """The name of the value before the fused activation of `tensor`, as `compile/reference.py` calls it too."""
    return tensor + "/pre_activation"
