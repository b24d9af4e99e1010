"""Tensors as a kernel of an operator's own finds them: int8 with scales per channel (`fine`), int8 of one power of two (`pow2`) or bf16, in NHWC-16.

The scales are DESIGN section 4's, from the values themselves: what a kernel is run with in tests. One ONNX axis lies in the lanes; the others keep their
order, before it: N, C, H, W with axis 1 is N, H, W, C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.arithmetic import round_half_up, sat8
from npuforge.hw_kernels.operator import KernelRun, get

MODES = ("fine", "pow2", "bf16")
ALPHA = 0.75


def scales(x: np.ndarray, axis: int, mode: str, uniform: bool = False) -> TensorQuant:
    """Of the channels along `axis`; `uniform`: one scale and zero point in `fine` too."""
    channels = x.shape[axis]
    if mode == "bf16":
        return TensorQuant(np.ones(channels), np.zeros(channels, np.int32), dtype="bf16")
    if not np.isfinite(x).all():
        raise QuantisationError(
            "values that are not finite have no int8 scale; keep NaN and infinity out of what is quantised"
        )
    if mode == "pow2":
        largest = float(np.abs(x).max(initial=0.0))
        fix = 7 if largest == 0.0 else int(np.floor(np.log2(127.0 / largest)))
        return TensorQuant(np.full(channels, 2.0**-fix), np.zeros(channels, np.int32), fix_point=fix)
    others = tuple(k for k in range(x.ndim) if k != axis % x.ndim)
    low, high = x.min(others, initial=0.0), x.max(others, initial=0.0)
    lowest, highest = low.min(initial=0.0), high.max(initial=0.0)
    if uniform:
        low, high = np.full(channels, lowest), np.full(channels, highest)
    spread, whole = high - low, highest - lowest
    scale = np.ones(channels) if whole == 0.0 else whole * (np.maximum(spread, whole / 1024) / whole) ** ALPHA / 255
    return TensorQuant(scale, np.clip(round_half_up(-128 - low / scale), -128, 127).astype(np.int32))


def raised(quant: TensorQuant, least: np.ndarray) -> TensorQuant:
    """Output scales of no less than `least` [C], where a multiplier would not fit (DESIGN section 4); the range grows around the same zero point."""
    if quant.dtype == "bf16" or (quant.scale >= least).all():
        return quant
    if quant.fix_point is None:
        return replace(quant, scale=np.maximum(quant.scale, least))
    fix = int(np.floor(-np.log2(least.max())))
    return replace(quant, scale=np.full_like(quant.scale, 2.0**-fix), fix_point=fix)


def padded(x: np.ndarray) -> np.ndarray:
    """[..., C] to [..., C rounded up to 16], zeros in the pad lanes; contiguous."""
    lanes = -(-x.shape[-1] // bf16.LANES) * bf16.LANES
    return np.ascontiguousarray(np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, lanes - x.shape[-1])]))


@dataclass(frozen=True)
class Stored:
    """A tensor in the NPU's memory."""

    bits: np.ndarray  # int8 or uint16 [..., C], channels last, without pad lanes
    quant: TensorQuant
    axis: int  # of the ONNX layout, now last

    @property
    def lanes(self) -> np.ndarray:
        """`bits` with pad lanes."""
        return padded(self.bits)

    @property
    def real(self) -> np.ndarray:
        """float64, ONNX layout."""
        return real(self.bits, self.quant, self.axis)


def real(bits: np.ndarray, quant: TensorQuant, axis: int) -> np.ndarray:
    """float64 values [...] in ONNX layout of stored [..., C]."""
    if quant.dtype == "bf16":
        values = bf16.to_float32(bits).astype(np.float64)
    else:
        values = (bits.astype(np.int64) - quant.zero_point) * quant.scale
    return np.moveaxis(values, -1, axis)


def store(x: np.ndarray, axis: int, mode: str, uniform: bool = False) -> Stored:
    """Float values [...] in ONNX layout, `axis` into the lanes."""
    quant = scales(x, axis, mode, uniform)
    last = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    if mode == "bf16":
        return Stored(bf16.from_float32(last), quant, axis % x.ndim)
    return Stored(sat8(round_half_up(last / quant.scale) + quant.zero_point), quant, axis % x.ndim)


def nothing_to_do(node: Node, inputs: list[Any]) -> KernelRun:
    """Of a call whose first input has no element: the kernel is not called, results have none either."""
    shapes = get(node).infer(node, [np.shape(x) for x in inputs])
    return KernelRun([], list(inputs), [np.zeros(s) for s in shapes], [0.0] * len(shapes))


def rounding_bound(y: np.ndarray, quant: TensorQuant, axis: int) -> np.ndarray:
    """What the last rounding alone may cost at values [...] in ONNX layout: half a step, in bf16 2^-8 of the value (half a unit of its 8 bits); and what
    lies beyond the range of int8."""
    last = np.moveaxis(np.asarray(y, np.float64), axis, -1)
    if quant.dtype == "bf16":
        return np.moveaxis(np.abs(last) * 2.0**-8, -1, axis)
    low, high = ((edge - quant.zero_point) * quant.scale for edge in (-128, 127))
    return np.moveaxis(quant.scale / 2 + np.abs(last - np.clip(last, low, high)), -1, axis)
