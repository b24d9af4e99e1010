"""(x - mean) / sqrt(variance + epsilon) over some axes and its gradient: what batch, layer and group normalisation share. float64."""

from __future__ import annotations

import numpy as np


def normalise(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """The normalised values, and 1/sqrt(variance + epsilon) with the axes kept. The variance is the population's (divided by the count)."""
    centred = x - x.mean(axes, keepdims=True)
    inverse = 1.0 / np.sqrt((centred * centred).mean(axes, keepdims=True) + epsilon)
    return centred * inverse, inverse


def normalise_gradient(
    gradient: np.ndarray, normalised: np.ndarray, inverse: np.ndarray, axes: tuple[int, ...]
) -> np.ndarray:
    """dx = (g - mean(g) - n * mean(g * n)) / std: the mean's and the variance's terms included."""
    mean = gradient.mean(axes, keepdims=True)
    along = (gradient * normalised).mean(axes, keepdims=True)
    return np.asarray((gradient - mean - normalised * along) * inverse)
