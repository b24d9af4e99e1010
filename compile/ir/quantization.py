"""Quantised parameters of tensors and nodes (DESIGN section 4), indexed by *logical channel*. Pure data.

The integer executor (`quant`) and the code generator (`compile`) read the same objects; lanes and padding are the generator's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuforge.compile.ir.bf16 import Bf16AveragePoolParams, Bf16EltwiseParams, Bf16Stage
from npuforge.compile.ir.graph import Graph


@dataclass
class TensorQuant:
    """real = (q - zero_point[c]) * scale[c], q int8 in [-128, 127]; one entry per channel.

    An image input (`image_mean` given) holds raw pixels: q = pixel - 128, real = (q + 128 - image_mean[c]) * scale[c], scale = 1/std;
    its `zero_point` is the border byte clamp(round_half_up(mean) - 128).
    `fix_point` is set when all scales are one 2**-fix_point and zero points are 0 (pow2 mode).
    """

    scale: np.ndarray  # float64 [C]
    zero_point: np.ndarray  # int32 [C]
    image_mean: np.ndarray | None = None  # float64 [C]
    fix_point: int | None = None
    dtype: str = "int8"  # or "bf16": the value itself; scale 1, zero point 0


@dataclass
class Tail:
    """Table output outside [-8, 8): the pre-activation t itself, or a constant in 2**-F units."""

    is_input: bool
    value: int = 0


@dataclass
class OutputStage:
    """What happens to an int32 accumulator (normative formulas: DESIGN section 4). All arrays have one entry per output channel.

    kind `pwl`:    y = clamp(((acc*(m_neg if acc<0 else m_pos) + 2^(shift-1)) >> shift) + zero_point, low, high)
    kind `table`:  t = sat16((acc*m_pos + 2^(shift-1)) >> shift); u = interpolated table(t);
                   y = sat8(((u*m_neg + 2^(shift2-1)) >> shift2) + zero_point)          (m_pos is M1, m_neg is M2)
    kind `direct`: y = clamp(((acc + 2^(shift-1)) >> shift) + zero_point, low, high)    (element-wise: multipliers already applied)
    """

    kind: str
    shift: np.ndarray  # int8
    zero_point: np.ndarray  # int8
    m_pos: np.ndarray | None = None  # int16
    m_neg: np.ndarray | None = None  # int16
    low: np.ndarray | None = None  # int8
    high: np.ndarray | None = None  # int8
    shift2: np.ndarray | None = None  # int8
    table: np.ndarray | None = None  # int16 [257]
    fraction_bits: int = 0
    tail_low: Tail = field(default_factory=lambda: Tail(False))
    tail_high: Tail = field(default_factory=lambda: Tail(False))


@dataclass
class ConvParams:
    """Conv, ConvTranspose, Linear. weight int8 [O, kH, kW, I/groups] (ConvTranspose: as the equivalent convolution over the zero-stuffed
    input, taps already flipped); bias int32 [O] with the input's zero points folded in; pad_value int8 [I]."""

    weight: np.ndarray
    bias: np.ndarray
    pad_value: np.ndarray
    stage: OutputStage | Bf16Stage  # bf16: weight holds bit patterns (uint16), bias and pad_value are not used


@dataclass
class AveragePoolParams:
    """multiplier int16 [n, C] for n = 1..kH*kW valid taps (row n-1), or one row when every window has the same count (`single`)."""

    multiplier: np.ndarray
    shift: int
    zero_in: np.ndarray  # int8 [C]
    zero_out: np.ndarray  # int8 [C]
    single: bool


@dataclass
class EltwiseParams:
    """add/sub: d = m_a*(a-z_a) +- m_b*(b-z_b); mul: d = (a-z_a)*(b-z_b)*m_a; affine (one input): d = m_a*(a-z_a) + k. Then `stage` on d.

    m_a, m_b int16 [C]; z_a, z_b int8 [C]; k int32 [C] (zeros unless affine)."""

    m_a: np.ndarray
    m_b: np.ndarray
    z_a: np.ndarray
    z_b: np.ndarray
    k: np.ndarray
    stage: OutputStage


@dataclass
class MoveParams:
    """Operators that move bytes and carry scales (Concat, Slice, shuffle, nearest and linear Resize, MaxPool, space-to-depth): no parameters."""


@dataclass
class KernelParams:
    """A program of the NPU DSL on int8: the parameters of its instructions. `steps`: "<operation>" of the optimised trace, "<operation>b" for the
    second of two that one operation needs."""

    steps: dict[str, ConvParams | AveragePoolParams | EltwiseParams] = field(default_factory=dict)


NodeParams = (
    ConvParams
    | AveragePoolParams
    | EltwiseParams
    | MoveParams
    | KernelParams
    | Bf16EltwiseParams
    | Bf16AveragePoolParams
)


@dataclass
class QGraph:
    """The integer graph: `quant` for every int8 tensor, `params` for every NPU node (by node name)."""

    graph: Graph
    mode: str  # "fine" or "pow2" (int8), "bf16"
    quant: dict[str, TensorQuant] = field(default_factory=dict)
    params: dict[str, NodeParams] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # node name -> what the quantiser chose (alpha, ...)
