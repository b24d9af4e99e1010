"""LeakyReluMask on int8 and bf16 in NHWC-16, as kernel.hpp has it; the mask is a word of 16 bits for every block of lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import OutputStage
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.arithmetic import MULTIPLIER_MAX, factor_shift, multiplier, pwl_stage
from npuforge.hw_kernels.kernel_data import Stored, nothing_to_do, padded, raised, real, rounding_bound, scales, store
from npuforge.hw_kernels.operator import KernelForm, KernelRun


def words(positive: np.ndarray) -> np.ndarray:
    """bool [..., C] to uint16 [..., blocks]: bit `lane` of a block's word, 0 in pad lanes."""
    lanes = padded(positive)
    blocks = lanes.reshape(*lanes.shape[:-1], -1, bf16.LANES).astype(np.uint16)
    return (blocks << np.arange(bf16.LANES, dtype=np.uint16)).sum(-1).astype(np.uint16)


def int8_stage(x: Stored, y: np.ndarray, mode: str, slope: float) -> tuple[OutputStage, Any]:
    """The output stage, and the output's scales for values y in ONNX layout."""
    out = raised(scales(y, 1, mode), max(1.0, abs(slope)) * x.quant.scale / MULTIPLIER_MAX)
    factors = np.stack([x.quant.scale / out.scale, slope * x.quant.scale / out.scale])
    shift = factor_shift(factors)
    m = multiplier(factors, np.broadcast_to(shift, factors.shape))
    zero = out.zero_point.astype(np.int8)
    low, high = (np.full(len(zero), edge, np.int8) for edge in (-128, 127))
    return OutputStage("pwl", shift.astype(np.int8), zero, m_pos=m[0], m_neg=m[1], low=low, high=high), out


def _on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    if not np.size(inputs[0]):
        return nothing_to_do(node, inputs)
    x, slope = store(np.asarray(inputs[0], np.float64), 1, mode), float(node.attrs.get("alpha", 0.01))
    expected = np.where(x.real < 0, slope * x.real, x.real)
    pixels, lanes = x.lanes.size // x.lanes.shape[-1], x.lanes.shape[-1]
    if mode == "bf16":
        values, factor, out = bf16.to_float32(x.bits), np.float32(slope), x.quant
        y = bf16.from_float32(np.where(values < 0, bf16.multiply(values, factor), values))
        positive, extra = values > 0, np.abs(expected) * 2.0**-20 + 1e-37
        parameters: list[Any] = [int(factor.view(np.int32))]
    else:
        stage, out = int8_stage(x, expected, mode, slope)
        centred = x.bits.astype(np.int64) - x.quant.zero_point
        y, positive = pwl_stage(centred, stage), centred > 0
        # A multiplier is off by half a unit of its 15 bits, the larger one's.
        extra = np.moveaxis(np.broadcast_to(255 * 2.0**-15 * max(1.0, abs(slope)) * x.quant.scale, y.shape), -1, 1)
        given = (stage.m_pos, stage.m_neg, stage.shift, stage.zero_point, stage.low, stage.high)
        parameters = [padded(x.quant.zero_point.astype(np.int8)), *(padded(v) for v in given if v is not None)]
    lanes_out, mask = padded(y), words(positive)
    arguments = [x.lanes, *parameters, pixels, lanes, np.zeros_like(lanes_out), np.zeros_like(mask)]
    bound = np.moveaxis(rounding_bound(np.moveaxis(expected, 1, -1), out, -1), -1, 1) + extra
    results, bounds = [real(y, out, 1), np.moveaxis(positive, -1, 1).astype(np.float64)], [bound, 0.0]
    shown = len(node.outputs)
    return KernelRun([(arguments, [lanes_out, mask])], [x.real], results[:shown], bounds[:shown])


_STAGE = ("const int8_t*", "const int16_t*", "const int16_t*", *["const int8_t*"] * 4)
_BEYOND = (0, -16, 2**16 + 16, 24)
KERNEL_INT8 = KernelForm(
    "leaky_relu_mask_int8",
    ("const int8_t*", *_STAGE, "int32_t", "int32_t", "int8_t*", "uint16_t*"),
    _on_the_npus_data,
    {8: (0, 2**30), 9: _BEYOND},
)
KERNEL_BF16 = KernelForm(
    "leaky_relu_mask_bf16",
    ("const uint16_t*", "int32_t", "int32_t", "int32_t", "uint16_t*", "uint16_t*"),
    _on_the_npus_data,
    {2: (0, 2**30), 3: _BEYOND},
)
