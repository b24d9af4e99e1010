"""(x - mean) / sqrt(variance + epsilon) over some axes and its gradient: what batch, layer and group normalisation share. float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def normalise(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """The normalised values, and 1/sqrt(variance + epsilon) with the axes kept. The variance is the population's (divided by the count)."""
    if not x.size:
        return x, np.ones([1 if k in axes else n for k, n in enumerate(x.shape)])
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


def normalise_second(
    gradient: np.ndarray, direction: np.ndarray, normalised: np.ndarray, inverse: np.ndarray, axes: tuple[int, ...]
) -> np.ndarray:
    """d/dx of the sum of `direction` * normalise_gradient(`gradient`). In `gradient` it is normalise_gradient(`direction`), by symmetry."""
    along = (gradient * normalised).mean(axes, keepdims=True)
    across = (direction * normalised).mean(axes, keepdims=True)
    centred = gradient - gradient.mean(axes, keepdims=True) - normalised * along
    scalar = (direction * centred).mean(axes, keepdims=True)  # the sum is inverse times this, times the count
    on_normalised = -inverse * (across * gradient + along * direction)
    return np.asarray(
        -scalar * inverse * inverse * normalised + normalise_gradient(on_normalised, normalised, inverse, axes)
    )


@dataclass(frozen=True)
class Scaled:
    """y = n * scale + bias, n the normalised x: what the three layers share of their second derivatives. All arrays broadcast to x."""

    normalised: np.ndarray
    inverse: np.ndarray
    axes: tuple[int, ...]
    scale: np.ndarray

    def second(
        self, dy: np.ndarray, v_x: np.ndarray, v_scale: np.ndarray, v_bias: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gradients of x, of scale (not yet summed over what it broadcasts to) and of dy, from the directions of dx, dscale and dbias."""
        back = normalise_gradient(v_x, self.normalised, self.inverse, self.axes)
        of_x = normalise_second(dy * self.scale, v_x, self.normalised, self.inverse, self.axes)
        of_x = of_x + normalise_gradient(v_scale * dy, self.normalised, self.inverse, self.axes)
        return of_x, dy * back, self.scale * back + v_scale * self.normalised + v_bias
