"""The bf16 output stage of a node: its bias and fused activation as float32 parameters per channel."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage, Bf16Tail
from npuforge.compile.ir.graph import Activation
from npuforge.hw_kernels.activations import curve, is_curve, limits, slopes
from npuforge.hw_kernels.bf16 import build_curve, flush, from_float32


def rounded(values: np.ndarray) -> np.ndarray:
    """float32, denormals flushed."""
    return flush(np.asarray(values, np.float64).astype(np.float32))


def output_stage(activation: Activation, bias: np.ndarray) -> Bf16Stage:
    """The stage behind a node: its bias and the fused activation."""
    channels = len(bias)
    if is_curve(activation):
        bent = curve(activation)
        tails = [
            Bf16Tail(True) if v is None else Bf16Tail(False, int(from_float32(np.float32(v))[()]))
            for v in (bent.low, bent.high)
        ]
        free = np.full(channels, np.inf, np.float32)
        one, table = np.ones(channels, np.float32), build_curve(bent.function)
        return Bf16Stage("table", rounded(bias), one, -free, free, table, tails[0], tails[1])
    low, high = limits(activation)
    slope = (
        np.ones(channels) if low >= 0.0 else slopes(activation, channels)
    )  # a limit of 0 does what a slope of 0 would
    full = np.ones(channels)
    return Bf16Stage("pwl", rounded(bias), rounded(slope), rounded(low * full), rounded(high * full))
