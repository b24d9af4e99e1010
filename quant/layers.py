"""Parameters of one layer in `fine` mode: scales in, integers out (DESIGN section 4). Every builder also returns the output's final quantisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import (
    AveragePoolParams,
    ConvParams,
    EltwiseParams,
    OutputStage,
    TensorQuant,
)
from npuforge.hw_kernels.activations import is_curve
from npuforge.hw_kernels.arithmetic import MULTIPLIER_MAX, factor_shift, multiplier, round_half_up
from npuforge.hw_kernels.ops.average_pool.op import window_counts
from npuforge.hw_kernels.ops.conv_transpose.op import equivalent_weight
from npuforge.quant import stages
from npuforge.quant.rounding import InputCovariance, MeanShift, corrected_bias, round_weights, tap_shares


@dataclass
class Output:
    """What calibration and the choice of scales say about a node's output: wanted scale, range minimum, largest pre-activation of a curve."""

    scale: np.ndarray
    low: np.ndarray
    largest_pre: float = 0.0

    def final(self, factor: np.ndarray) -> TensorQuant:
        """Scale raised where `factor`/scale would not fit a multiplier, and its zero point."""
        scale = stages.raised(self.scale, factor)
        return TensorQuant(scale, stages.zero_points(self.low, scale))


def convolution_weight(node: Node, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Float64 weights [O, kH, kW, I/group] of the (equivalent) convolution and bias [O]; refuses NaN and infinity."""
    weight, bias = (graph.constants[t].astype(np.float64) for t in node.inputs[1:3])
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise QuantisationError(f"node {node.name}: weights or bias hold NaN or infinity; export the model again")
    if node.op == "ConvTranspose":
        return equivalent_weight(weight, int(node.attrs.get("group", 1))), bias.reshape(-1)
    return np.ascontiguousarray(weight.transpose(0, 2, 3, 1)), bias.reshape(-1)


def per_output(values: np.ndarray, outputs: int, group: int) -> np.ndarray:
    """Input-channel values [I] as [O, I/group]: the channels that each output reads."""
    return np.repeat(values.reshape(group, -1), outputs // group, axis=0)


def check_overflow(node: Node, weight: np.ndarray, bias: np.ndarray) -> None:
    """Refuse a layer whose accumulator could leave int32."""
    largest = np.abs(bias).astype(np.float64) + 128.0 * np.abs(weight.astype(np.int64)).reshape(len(bias), -1).sum(
        axis=1
    )
    worst = int(np.argmax(largest))
    if largest[worst] >= 2.0**31:
        raise QuantisationError(
            f"node {node.name}: output channel {worst} can reach {largest[worst]:.0f}, expected below 2^31; "
            "split the layer's input channels or run it on the CPU"
        )


def quantised_weight(
    weight: np.ndarray, bias: np.ndarray, scale_in: np.ndarray, group: int
) -> tuple[np.ndarray, np.ndarray]:
    """int8 weights with the input's scales absorbed, and the accumulator's scale per output channel."""
    scaled = weight * per_output(scale_in, len(weight), group)[:, None, None, :]
    largest = np.abs(scaled).reshape(len(weight), -1).max(axis=1)
    acc_scale = np.maximum(largest / 127.0, np.abs(bias) / 2.0**29)
    acc_scale[acc_scale == 0.0] = 1.0
    quantised = np.clip(round_half_up(scaled / acc_scale[:, None, None, None]), -127, 127)
    return quantised.astype(np.int8), acc_scale


def whole_weight(weight: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
    """The model's own integers [O, …] of weights [O, …] in units of `scale` [O], int8; None where they are no whole multiples in [-128, 127]."""
    steps = weight / scale.reshape(-1, *[1] * (weight.ndim - 1))
    integers = np.round(steps)
    fits = integers.min(initial=0.0) >= -128 and integers.max(initial=0.0) <= 127
    return integers.astype(np.int8) if fits and np.abs(steps - integers).max(initial=0.0) < 1e-3 else None


def uniform(values: np.ndarray, group: int) -> np.ndarray | None:
    """The one value of each group's channels [group], None where a group has several."""
    split = values.reshape(group, -1)
    return split[:, 0] if (split == split[:, :1]).all() else None


def given_weight(
    node: Node, weight: np.ndarray, scale_in: np.ndarray, group: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """A quantised model's own integers and the accumulator's scale; None where the input's channels have unlike scales."""
    if node.weight_scale is None:
        return None
    step = uniform(scale_in, group)
    integers = whole_weight(weight, node.weight_scale)
    if step is None or integers is None:
        return None
    return integers, node.weight_scale * np.repeat(step, len(weight) // group)


@dataclass
class Algorithms:
    """Algorithms of DESIGN section 8 for one convolution: each is on where its knowledge is given."""

    weight_rounding: InputCovariance | None = None
    bias_correction: MeanShift | None = None


NO_ALGORITHMS = Algorithms()


def convolution(
    node: Node, graph: Graph, x: TensorQuant, out: Output, algorithms: Algorithms = NO_ALGORITHMS
) -> tuple[ConvParams, TensorQuant]:
    """Conv and ConvTranspose."""
    weight, bias = convolution_weight(node, graph)
    group = int(node.attrs.get("group", 1))
    own = given_weight(node, weight, x.scale, group)
    if own is not None:
        algorithms = NO_ALGORITHMS
    quantised, acc_scale = own or quantised_weight(weight, bias, x.scale, group)
    steps = per_output(x.scale, len(bias), group)[:, None, None, :]
    if algorithms.weight_rounding is not None:
        quantised = round_weights(weight * steps, acc_scale, steps[:, 0, 0], algorithms.weight_rounding)
    if algorithms.bias_correction is not None:
        rebuilt = quantised * acc_scale[:, None, None, None] / steps
        bias = corrected_bias(bias, weight, rebuilt, algorithms.bias_correction, tap_shares(node, graph))
    per_input = quantised.astype(np.float64).sum(axis=(1, 2))  # [O, I/group]
    if x.image_mean is not None:
        offset = (per_input * per_output(x.image_mean - 128.0, len(bias), group)).sum(axis=1)
        bias_q = round_half_up(bias / acc_scale - offset)
    else:
        offset = (per_input * per_output(x.zero_point.astype(np.float64), len(bias), group)).sum(axis=1)
        bias_q = round_half_up(bias / acc_scale) - offset
    check_overflow(node, quantised, bias_q)
    stage, quant = output_stage(node, acc_scale, out)
    return ConvParams(quantised, bias_q.astype(np.int32), x.zero_point.astype(np.int8), stage), quant


def fitting(node: Node, factors: np.ndarray, out: Output) -> np.ndarray:
    """What to multiply the factors [..., C] by so that multipliers hold them: 1 but for a curve whose pre-activation leaves all 16 bits
    within one step. It has no scale that could be raised; beyond the table it saturates either way, and operands keep their ratio."""
    largest = np.abs(factors).reshape(-1, factors.shape[-1]).max(axis=0)
    if not is_curve(node.activation):
        return np.ones(len(largest))
    limit = MULTIPLIER_MAX * 2.0 ** -stages.fraction_bits(out.largest_pre, factors)
    return limit / np.maximum(largest, limit)


def output_stage(node: Node, factor: np.ndarray, out: Output) -> tuple[OutputStage, TensorQuant]:
    """Stage behind an accumulator of `factor` real units, and the output's quantisation."""
    if is_curve(node.activation):
        factor = factor * fitting(node, factor, out)
        bits = stages.fraction_bits(out.largest_pre, factor)
        quant = out.final(np.full(len(factor), 2.0**-bits))
        return stages.table(factor, node.activation, quant.scale, quant.zero_point, bits), quant
    quant = out.final(factor * stages.largest_slope(node.activation, len(factor)))
    return stages.pwl(factor, node.activation, quant.scale, quant.zero_point), quant


def _difference(
    node: Node, factors: np.ndarray, out: Output
) -> tuple[np.ndarray, np.ndarray, OutputStage, TensorQuant, np.ndarray]:
    """Multipliers [k, C] and shift [C] of the operands, stage, output quantisation, and the real value of d = 2^shift."""
    activation = node.activation
    channels = factors.shape[1]
    if is_curve(activation):
        bits = stages.fraction_bits(out.largest_pre, factors)
        unit = np.full(channels, 2.0**-bits)
        quant = out.final(unit)
    else:
        quant = out.final(np.abs(factors).max(axis=0) * stages.largest_slope(activation, channels))
        unit = quant.scale
    plain = activation.kind in ("none", "Relu", "Clip")
    shift = factor_shift(factors / unit, 47 if plain else stages.DIFFERENCE_SHIFT_MAX)
    return multiplier(factors / unit, shift), shift, _difference_stage(node, unit, shift, quant, out), quant, unit


def _difference_stage(node: Node, unit: np.ndarray, shift: np.ndarray, quant: TensorQuant, out: Output) -> OutputStage:
    activation, scale, zero = node.activation, quant.scale, quant.zero_point
    factor = np.ldexp(unit, -shift.astype(np.int32))
    if is_curve(activation):
        return stages.table(factor, activation, scale, zero, round(-float(np.log2(unit[0]))))
    if activation.kind in ("none", "Relu", "Clip"):
        return stages.direct(shift, activation, scale, zero)
    return stages.pwl(factor, activation, scale, zero)


def _broadcast(quant: TensorQuant, channels: int) -> tuple[np.ndarray, np.ndarray]:
    return np.broadcast_to(quant.scale, (channels,)), np.broadcast_to(quant.zero_point, (channels,)).astype(np.int8)


def two_operands(node: Node, a: TensorQuant, b: TensorQuant, out: Output) -> tuple[EltwiseParams, TensorQuant]:
    """Add, Sub, Mul."""
    channels = len(out.scale)
    scale_a, zero_a = _broadcast(a, channels)
    scale_b, zero_b = _broadcast(b, channels)
    factors = np.stack([scale_a * scale_b]) if node.op == "Mul" else np.stack([scale_a, scale_b])
    m, _, stage, quant, _ = _difference(node, factors * fitting(node, factors, out), out)
    second = np.zeros(channels, np.int16) if node.op == "Mul" else m[1]
    return EltwiseParams(m[0], second, zero_a, zero_b, np.zeros(channels, np.int32), stage), quant


def affine_parameters(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """Float64 scale and bias [C] of an Affine; refuses NaN and infinity."""
    scale, bias = (np.asarray(node.attrs[k], np.float64) for k in ("scale", "bias"))
    if not (np.isfinite(scale).all() and np.isfinite(bias).all()):
        raise QuantisationError(f"node {node.name}: scale or bias hold NaN or infinity; export the model again")
    return scale, bias


def affine(node: Node, x: TensorQuant, out: Output) -> tuple[EltwiseParams, TensorQuant]:
    """Affine. The shift is lowered where the addend would not fit."""
    scale, bias = affine_parameters(node)
    factors = (scale * x.scale)[None, :]
    smaller = fitting(node, factors, out)
    factors, bias = factors * smaller, bias * smaller
    _, shift, _, quant, unit = _difference(node, factors, out)
    _, exponent = np.frexp(bias / unit)  # |bias/unit| < 2^exponent
    shift = np.minimum(shift, 30 - exponent)
    if (shift < 0).any():
        channel = int(np.argmin(shift))
        raise QuantisationError(
            f"node {node.name}: bias {bias[channel]:g} of channel {channel} is too large for output scale {quant.scale[channel]:g}; "
            "check the calibration images"
        )
    addend = round_half_up(np.ldexp(bias / unit, shift.astype(np.int32))).astype(np.int32)
    stage = _difference_stage(node, unit, shift, quant, out)
    zeros = np.zeros(len(scale), np.int16)
    m = multiplier(factors / unit, shift)[0]
    return EltwiseParams(m, zeros, x.zero_point.astype(np.int8), zeros.astype(np.int8), addend, stage), quant


def average_pool(node: Node, graph: Graph, x: TensorQuant, out: Output) -> tuple[AveragePoolParams, TensorQuant]:
    """AveragePool: one multiplier per number of valid taps and channel; rows of counts that do not occur are 0."""
    _, _, h, w = graph.tensors[node.inputs[0]].shape
    valid, divisor = window_counts(node, h, w)
    divisors = {int(n): int(divisor[valid == n][0]) for n in np.unique(valid)}
    quant = out.final(x.scale / min(divisors.values()))
    factors = {n: x.scale / d / quant.scale for n, d in divisors.items()}
    shift = int(factor_shift(np.concatenate(list(factors.values()))[:, None])[0])
    single = len(divisors) == 1
    kernel = node.attrs["kernel_shape"]
    rows = 1 if single else int(kernel[0] * kernel[1])
    multipliers = np.zeros((rows, len(x.scale)), np.int16)
    for n, factor in factors.items():
        multipliers[0 if single else n - 1] = multiplier(factor, np.full(len(factor), shift))
    zero_in, zero_out = x.zero_point.astype(np.int8), quant.zero_point.astype(np.int8)
    return AveragePoolParams(multipliers, shift, zero_in, zero_out, single), quant
