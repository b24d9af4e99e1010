"""`pow2` mode: every scale is 2^-fix_point per tensor with zero point 0, as a DPU takes it (DESIGN section 4).

Fix points come first (`fix_points.py`), then the layers' integers, which live here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.ir.quantization import (
    AveragePoolParams,
    ConvParams,
    EltwiseParams,
    MoveParams,
    NodeParams,
    OutputStage,
    QGraph,
    TensorQuant,
)
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.activations import curve, is_curve, slopes
from npuforge.hw_kernels.arithmetic import (
    SHIFT_MAX,
    build_table,
    factor_shift,
    multiplier,
    power_of_two_factor,
    round_half_up,
)
from npuforge.hw_kernels.ops.average_pool.dpu_factor import dpu_factor
from npuforge.hw_kernels.ops.average_pool.op import window_counts
from npuforge.quant import layers, stages
from npuforge.quant.fix_points import (
    LEFT_SHIFT_MAX,
    SLOPE_UNIT,
    affine_shift,
    fitting_fix_point,
    fix_points,
    largest_pre,
    left_shift_max,
    limited_weight_fix_point,
    table_fraction_bits,
    weight_fix_points,
)
from npuforge.quant.kernels import own_parameters
from npuforge.quant.regions import CONVOLUTIONS, Region, activation_inputs
from npuforge.quant.rounding import corrected_bias, round_weights, tap_shares
from npuforge.quant.samples import SampleRun
from npuforge.quant.statistics import Statistics

SLOPE_BITS = 8  # of SLOPE_UNIT


def pwl_factors(exponent: int, activation: Activation, channels: int, name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Mp, Mn and S for a factor 2^exponent: plain M = 2^k; a slope s is round_half_up(256*s)/256, with M = 256*2^k and S + 8."""
    slope = slopes(activation, channels)
    plain = bool(np.isin(slope, (0.0, 1.0)).all())
    most = left_shift_max(activation, channels, name)
    try:
        k, shift = power_of_two_factor(exponent, most)
    except ValueError as problem:
        raise QuantisationError(f"node {name}: {problem}; quantise with mode fine") from None
    if plain:
        positive = np.full(channels, 1 << k)
        return positive, np.where(slope == 0.0, 0, positive), shift
    negative = round_half_up(slope * SLOPE_UNIT) * (1 << k)
    return np.full(channels, SLOPE_UNIT << k), negative.astype(np.int64), shift + SLOPE_BITS


def within_reach(exponent: int, most: int, least: int = -SHIFT_MAX) -> int:
    """The exponent of a factor between `least` and `most`, where it leaves them only because fix points end.

    Below: an accumulator (32 bits) times 2^-39 or less, slope included, rounds to 0 whatever the factor. Above: the output has the least fix point
    there is, and one step of the accumulator is already beyond all values that calibration takes (`fix_points` lowers every other output).
    """
    return min(max(exponent, least), most)


def output_stage(node: Node, unit: int, fix: int, channels: int, pre: float) -> OutputStage:
    """Stage behind an accumulator in units of 2^-unit, output in units of 2^-fix; `pre` is the largest pre-activation of a curve.

    A pre-activation that leaves 16 bits within 2 steps of its accumulator has no fraction bits that could be lowered: it saturates.
    """
    zero = np.zeros(channels, np.int8)
    if is_curve(node.activation):
        bits = table_fraction_bits(pre, unit)
        k1, shift1 = power_of_two_factor(within_reach(bits - unit, LEFT_SHIFT_MAX))
        k2, shift2 = power_of_two_factor(fix - bits)
        bent = curve(node.activation)
        low, high = bent.tails(bits)
        return OutputStage(
            "table",
            np.full(channels, shift1, np.int8),
            zero,
            m_pos=np.full(channels, 1 << k1, np.int16),
            m_neg=np.full(channels, 1 << k2, np.int16),
            shift2=np.full(channels, shift2, np.int8),
            table=build_table(bent.function, bits),
            fraction_bits=bits,
            tail_low=low,
            tail_high=high,
        )
    exponent = within_reach(fix - unit, left_shift_max(node.activation, channels, node.name), SLOPE_BITS - SHIFT_MAX)
    positive, negative, shift = pwl_factors(exponent, node.activation, channels, node.name)
    lo, hi = stages.output_limits(node.activation, np.full(channels, 2.0**-fix), np.zeros(channels))
    return OutputStage(
        "pwl",
        np.full(channels, shift, np.int8),
        zero,
        m_pos=positive.astype(np.int16),
        m_neg=negative.astype(np.int16),
        low=lo,
        high=hi,
    )


def convolution(
    node: Node,
    graph: Graph,
    fix_in: int,
    fix_out: int,
    pre: float,
    algorithms: layers.Algorithms = layers.NO_ALGORITHMS,
) -> ConvParams:
    """Weights under one fix point (least squared error), int8 bias with its own."""
    weight, bias = layers.convolution_weight(node, graph)
    fix_weight, fix_bias = weight_fix_points(weight, bias)
    fix_weight = limited_weight_fix_point(fix_weight, fix_bias, fix_in)
    weight_q = np.clip(round_half_up(weight * 2.0**fix_weight), -127, 127).astype(np.int8)
    if algorithms.weight_rounding is not None:
        ones = np.ones((len(bias), weight.shape[3]))
        weight_q = round_weights(weight, np.full(len(bias), 2.0**-fix_weight), ones, algorithms.weight_rounding)
    if algorithms.bias_correction is not None:
        rebuilt = weight_q * 2.0**-fix_weight
        bias = corrected_bias(bias, weight, rebuilt, algorithms.bias_correction, tap_shares(node, graph))
        fix_bias = fitting_fix_point(float(bias.min(initial=0.0)), float(bias.max(initial=0.0)))
    unit = fix_in + fix_weight
    fix_bias = min(fix_bias, unit)
    bias_q = np.clip(round_half_up(bias * 2.0**fix_bias), -128, 127).astype(np.int64) << (unit - fix_bias)
    layers.check_overflow(node, weight_q, bias_q)
    stage = output_stage(node, unit, fix_out, len(bias), pre)
    channels = graph.tensors[node.inputs[0]].shape[1]
    return ConvParams(weight_q, bias_q.astype(np.int32), np.zeros(channels, np.int8), stage)


def two_operands(node: Node, fix_a: int, fix_b: int, fix_out: int, channels: int, pre: float) -> EltwiseParams:
    """Add, Sub, Mul: operands brought to the finer of the two fix points by 2^k, then one stage."""
    zero8, zero32 = np.zeros(channels, np.int8), np.zeros(channels, np.int32)
    if node.op == "Mul":
        unit, k_a, k_b = fix_a + fix_b, 0, None
    else:
        unit = max(fix_a, fix_b)
        k_a, k_b = unit - fix_a, unit - fix_b
    m_a = np.full(channels, 1 << k_a, np.int16)
    m_b = np.zeros(channels, np.int16) if k_b is None else np.full(channels, 1 << k_b, np.int16)
    return EltwiseParams(m_a, m_b, zero8, zero8, zero32, output_stage(node, unit, fix_out, channels, pre))


def affine(node: Node, fix_in: int, fix_out: int, pre: float) -> EltwiseParams:
    """Multipliers per channel are not powers of two (they are the operator's own); the unit behind them is."""
    scale, bias = layers.affine_parameters(node)
    channels = len(scale)
    shift = affine_shift(scale, bias, fix_in)
    unit = fix_in + shift
    m = multiplier(scale, np.full(channels, shift))
    addend = round_half_up(bias * 2.0**unit).astype(np.int32)
    zero8 = np.zeros(channels, np.int8)
    stage = output_stage(node, unit, fix_out, channels, pre)
    return EltwiseParams(m, np.zeros(channels, np.int16), zero8, zero8, addend, stage)


def average_pool(node: Node, graph: Graph, fix_in: int, fix_out: int) -> AveragePoolParams:
    """One multiplier per divisor, shared by all channels. Where every window divides by its whole area the multiplier is the DPU's (`dpu_factor`, not
    the nearest to 1/area); a DPU has no other divisors, and there the multiplier is the nearest."""
    _, channels, h, w = graph.tensors[node.inputs[0]].shape
    kernel_h, kernel_w = (int(k) for k in node.attrs["kernel_shape"])
    valid, divisor = window_counts(node, h, w)
    counts = np.unique(valid)
    if (divisor == kernel_h * kernel_w).all():
        numerator, down = dpu_factor(kernel_h, kernel_w)
        down += fix_in - fix_out
        shift = min(max(down, 0), SHIFT_MAX)  # beyond it every result is 0
        found = {int(n): numerator << max(-down, 0) for n in counts}
    else:
        factors = {int(n): 2.0 ** (fix_out - fix_in) / int(divisor[valid == n][0]) for n in counts}
        shift = int(factor_shift(np.array(list(factors.values()))[:, None])[0])
        assert shift >= 0, f"node {node.name}: fix points {fix_in} and {fix_out}"  # see fix_points
        found = {n: int(multiplier(np.array([factor]), np.array([shift]))[0]) for n, factor in factors.items()}
    single = len(counts) == 1
    table = np.zeros((1 if single else kernel_h * kernel_w, channels), np.int16)
    for n, value in found.items():
        table[0 if single else n - 1] = value
    zero = np.zeros(channels, np.int8)
    return AveragePoolParams(table, shift, zero, zero, single)


def quantize_pow2(region: Region, statistics: Statistics, calibrator: str, algorithms: Sequence[str] = ()) -> QGraph:
    """The integer graph with power-of-two scales."""
    graph = region.graph
    fixes = fix_points(region, statistics, calibrator)
    qgraph = QGraph(graph, "pow2")
    for tensor, fix in fixes.items():
        channels = graph.tensors[tensor].shape[1]
        qgraph.quant[tensor] = TensorQuant(np.full(channels, 2.0**-fix), np.zeros(channels, np.int32), fix_point=fix)
    samples = SampleRun(region, qgraph, statistics) if "bias_correction" in algorithms else None
    for node in region.nodes:
        chosen = layers.Algorithms()
        if node.op in CONVOLUTIONS:
            chosen.weight_rounding = statistics.inputs.get(node.name) if "weight_rounding" in algorithms else None
            chosen.bias_correction = samples.mean_shift(node.inputs[0]) if samples is not None else None
        qgraph.params[node.name] = _layer(node, qgraph, fixes, statistics, chosen)
        if samples is not None:
            samples.run(node)
        qgraph.notes[node.name] = f"fix_point={fixes[node.outputs[0]]}"
    return qgraph


def _layer(
    node: Node, qgraph: QGraph, fixes: dict[str, int], statistics: Statistics, algorithms: layers.Algorithms
) -> NodeParams:
    graph = qgraph.graph
    if operator.get(node).moves_bytes:
        return MoveParams()
    inputs = [fixes[t] for t in activation_inputs(node, graph)]
    output = node.outputs[0]
    out, channels = fixes[output], graph.tensors[output].shape[1]
    pre = largest_pre(node, statistics)
    if node.op in CONVOLUTIONS:
        return convolution(node, graph, inputs[0], out, pre, algorithms)
    if node.op in ("Add", "Sub", "Mul"):
        return two_operands(node, inputs[0], inputs[1], out, channels, pre)
    if node.op == "Affine":
        return affine(node, inputs[0], out, pre)
    if node.op == "AveragePool":
        return average_pool(node, graph, inputs[0], out)
    quants = [qgraph.quant[t] for t in activation_inputs(node, graph)]
    params, quant = own_parameters(node, quants, qgraph.quant[output], qgraph)
    if quant.fix_point != out:
        raise QuantisationError(
            f"node {node.name}: operator {node.op} changed its output's fix point; quantise with mode fine"
        )
    return params
