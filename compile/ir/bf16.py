"""Parameters of bf16 nodes (DESIGN section 4, "bf16"), one entry per channel; weights are bf16 bit patterns (uint16). Pure data.

A convolution is a `ConvParams` whose weight is uint16, whose bias and pad value are not used, and whose stage is a `Bf16Stage`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

CURVE_SEGMENTS = 256


@dataclass
class Bf16Tail:
    """Curve outside [-8, 8): the argument itself, or a constant as bf16 bits."""

    is_input: bool
    bits: int = 0


@dataclass
class Bf16Stage:
    """What happens to a float32 sum: v = acc + bias; pwl: v*slope where v < 0; table: the curve; then limits, then one rounding to bf16.

    Where `low` equals `high` the channel is that constant (pad lanes: 0). All arrays are float32 [C]; `table` is float32 [3, 256]: c0, c1, c2.
    """

    kind: str  # "pwl" or "table"
    bias: np.ndarray
    slope: np.ndarray
    low: np.ndarray
    high: np.ndarray
    table: np.ndarray | None = None
    tail_low: Bf16Tail = field(default_factory=lambda: Bf16Tail(False))
    tail_high: Bf16Tail = field(default_factory=lambda: Bf16Tail(False))

    def channels(self, where: np.ndarray) -> Bf16Stage:
        """The stage of the channels `where` names."""
        return replace(self, bias=self.bias[where], slope=self.slope[where], low=self.low[where], high=self.high[where])


@dataclass
class Bf16EltwiseParams:
    """Add, Sub, Mul, Affine: d = a + b, a - b, a*b or a*factor, then `stage` on d. `factor` float32 [C], None unless affine."""

    stage: Bf16Stage
    factor: np.ndarray | None = None


@dataclass
class Bf16AveragePoolParams:
    """factor float32 [n]: 1/divisor for n = 1..kH*kW valid taps (entry n-1), or one entry when every window has the same count (`single`)."""

    factor: np.ndarray
    single: bool
