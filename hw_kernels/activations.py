"""The functions fused behind a compute node, declared once: float64 meaning, and for curves the tails of their table.

Piecewise-linear kinds are `none`, `Relu`, `Clip`, `LeakyRelu`, `PRelu`; every other kind is a curve (DESIGN section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.graph import Activation
from npuforge.compile.ir.quantization import Tail
from npuforge.hw_kernels.arithmetic import round_half_up, sat16
from npuforge.hw_kernels.formulas import FORMULAS

CURVE_EDGE = 8.0  # a table covers [-8, 8)


@dataclass(frozen=True)
class Curve:
    """A function evaluated by table. `low`, `high`: the tail outside [-8, 8), None for the pre-activation itself, else a real constant."""

    function: Callable[[np.ndarray], np.ndarray]
    low: float | None
    high: float | None

    @property
    def largest_tail(self) -> float:
        """Magnitude of the larger constant tail, which the table's 16 bits must hold."""
        return max(abs(value or 0.0) for value in (self.low, self.high))

    def tails(self, fraction_bits: int) -> tuple[Tail, Tail]:
        """Low and high tail in units of 2^-F."""
        one = float(1 << fraction_bits)
        low, high = (
            Tail(True) if value is None else Tail(False, int(sat16(round_half_up(value * one))))
            for value in (self.low, self.high)
        )
        return low, high


# name: low tail, high tail (None: the pre-activation itself; "-alpha": an attribute's)
_TAILS: dict[str, tuple[float | str | None, float | None]] = {
    "Silu": (0.0, None),
    "SiluPolynomial": (0.0, None),
    "Gelu": (0.0, None),
    "CustomGELU": (0.0, None),
    "Mish": (0.0, None),
    "HardSwish": (0.0, None),
    "Softplus": (0.0, None),
    "Elu": ("-alpha", None),
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Erf": (-1.0, 1.0),
    "ClipSigmoid": (0.1, 0.9),
}
CURVES = tuple(_TAILS)
# Curves that a table holds only for bounded arguments: no tail continues exp above 8. The NPU DSL checks the bound; nothing else uses them.
_BOUNDED_TAILS: dict[str, tuple[float | str | None, float | None]] = {"Exp": (0.0, math.exp(CURVE_EDGE))}
TABLE_CURVES = (*CURVES, *_BOUNDED_TAILS)
ELU_ALPHA_MAX = 15.0  # its tail fits 16 bits with all 11 fraction bits


def curve(activation: Activation) -> Curve:
    """The curve that the activation is, with its attributes filled in."""
    value, attributes = FORMULAS[activation.kind].value, {"alpha": activation.alpha, "beta": activation.beta}
    low, high = (_TAILS | _BOUNDED_TAILS)[activation.kind]
    constant = -activation.alpha if isinstance(low, str) else low
    return Curve(lambda x: np.asarray(value(np, x, attributes)), constant, high)


PIECEWISE_LINEAR = ("none", "Relu", "Clip", "LeakyRelu", "PRelu")


def is_curve(activation: Activation) -> bool:
    """Whether the activation is evaluated by table."""
    return activation.kind in TABLE_CURVES


def is_supported(activation: Activation) -> bool:
    """Whether the NPU has the activation: piecewise-linear, or a curve whose tails hold outside [-8, 8)."""
    if activation.kind == "HardSigmoid":
        ends = curve(activation).function(np.array([-CURVE_EDGE, CURVE_EDGE]))
        return bool(ends[0] == 0.0 and ends[1] == 1.0)
    if activation.kind == "Elu":
        return abs(activation.alpha) <= ELU_ALPHA_MAX
    return activation.kind in PIECEWISE_LINEAR or activation.kind in CURVES


def slopes(activation: Activation, channels: int) -> np.ndarray:
    """Slope of negative values per channel of a piecewise-linear activation (1 for none and Clip below 0, 0 for ReLU)."""
    if activation.kind == "PRelu":
        assert activation.slope is not None
        return np.broadcast_to(np.asarray(activation.slope, np.float64).reshape(-1), (channels,)).copy()
    if activation.kind == "LeakyRelu":
        return np.full(channels, float(activation.alpha))
    if activation.kind == "Relu" or (activation.kind == "Clip" and activation.low >= 0.0):
        return np.zeros(channels)
    return np.ones(channels)


def limits(activation: Activation) -> tuple[float, float]:
    """Real lower and upper limit that a piecewise-linear activation imposes (infinite where none)."""
    if activation.kind == "Clip":
        return activation.low, activation.high
    if activation.kind == "Relu":
        return 0.0, math.inf
    return -math.inf, math.inf


def apply_activation(x: np.ndarray, activation: Activation, channel_axis: int = 1) -> np.ndarray:
    """Float64 meaning of the fused activation."""
    kind = activation.kind
    if kind == "none":
        return x
    if kind in TABLE_CURVES:
        return curve(activation).function(x)
    if kind in ("Relu", "Clip"):
        return np.clip(x, *limits(activation))
    if kind in ("LeakyRelu", "PRelu"):
        shape = [1] * x.ndim
        shape[channel_axis] = x.shape[channel_axis]
        return np.where(x < 0, x * slopes(activation, x.shape[channel_axis]).reshape(shape), x)
    raise ValueError(f"unknown activation {kind}")


def activation_slope(x: np.ndarray, activation: Activation, channel_axis: int = 1) -> np.ndarray:
    """Derivative of the fused activation at the pre-activation `x`, float64."""
    kind = activation.kind
    if kind == "none":
        return np.ones_like(x)
    if kind in CURVES:
        return np.asarray(FORMULAS[kind].slope(np, x, {"alpha": activation.alpha, "beta": activation.beta}))
    if kind in ("Relu", "Clip"):
        low, high = limits(activation)
        return ((x > low) & (x < high)).astype(np.float64)
    if kind in ("LeakyRelu", "PRelu"):
        shape = [1] * x.ndim
        shape[channel_axis] = x.shape[channel_axis]
        return np.where(x > 0, 1.0, slopes(activation, x.shape[channel_axis]).reshape(shape))
    raise ValueError(f"unknown activation {kind}")


def activation_curvature(x: np.ndarray, activation: Activation) -> np.ndarray:
    """Second derivative of the fused activation at the pre-activation `x`, float64; 0 of a piecewise-linear one."""
    if activation.kind in CURVES:
        return np.asarray(
            FORMULAS[activation.kind].curvature(np, x, {"alpha": activation.alpha, "beta": activation.beta})
        )
    return np.zeros_like(x)
