"""`pow2` mode: every scale is 2^-fix_point per tensor with zero point 0, as a DPU takes it (DESIGN section 4).

Fix points come first (tensors joined by moves of bytes share one), then the layers' integers.
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
from npuforge.hw_kernels.activations import CURVES, curve_function, is_curve, slopes
from npuforge.hw_kernels.arithmetic import (
    SHIFT_MAX,
    build_table,
    choose_fraction_bits,
    factor_shift,
    multiplier,
    power_of_two_factor,
    round_half_up,
)
from npuforge.hw_kernels.ops.average_pool.op import window_counts
from npuforge.quant import layers, stages
from npuforge.quant.ranges import channel_ranges, largest_pre_activation, tensor_percentile
from npuforge.quant.regions import CONVOLUTIONS, Region, activation_inputs
from npuforge.quant.rounding import corrected_bias, round_weights, tap_shares
from npuforge.quant.samples import SampleRun
from npuforge.quant.statistics import Statistics, TensorStatistics, pre_activation

FIX_POINT_MIN, FIX_POINT_MAX = -16, 24
SLOPE_UNIT = 256  # LeakyReLU slopes are multiples of 1/256: 26/256 for 0.1
SLOPE_BITS = 8
LEFT_SHIFT_MAX = 14  # M = 2^k, k <= 14


def fitting_fix_point(low: float, high: float) -> int:
    """The largest fix point whose int8 range holds [low, high]."""
    for fix in range(FIX_POINT_MAX, FIX_POINT_MIN, -1):
        if round_half_up(high * 2.0**fix) <= 127 and round_half_up(low * 2.0**fix) >= -128:
            return fix
    return FIX_POINT_MIN


def least_error_fix_point(values: np.ndarray, counts: np.ndarray, start: int, lowest: int = -128) -> int:
    """The fix point from `start` to start + 4 with the least squared error over weighted values, integers from `lowest` to 127."""
    errors = []
    for fix in range(start, start + 5):
        rebuilt = np.clip(round_half_up(values * 2.0**fix), lowest, 127) * 2.0**-fix
        errors.append(float((counts * (values - rebuilt) ** 2).sum()))
    return start + int(np.argmin(errors))


def tensor_fix_point(statistics: TensorStatistics, name: str, calibrator: str) -> int:
    """Fix point of one tensor by the calibrator: its range must fit, or (`mse`) least squared error over the histogram."""
    if calibrator == "percentile":
        return fitting_fix_point(*tensor_percentile(statistics, name))
    if calibrator != "mse":
        low, high = channel_ranges(statistics, name, calibrator)
        return fitting_fix_point(float(low.min()), float(high.max()))
    if statistics.histogram is None:
        raise QuantisationError(f"tensor {name}: calibrator mse needs histograms; calibrate with histograms=True")
    start = fitting_fix_point(float(min(statistics.low.min(), 0.0)), float(max(statistics.high.max(), 0.0)))
    return least_error_fix_point(statistics.histogram.centres(), statistics.histogram.counts, start)


class _Groups:
    """Tensors that must share one fix point."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def root(self, tensor: str) -> str:
        while self.parent.setdefault(tensor, tensor) != tensor:
            tensor = self.parent[tensor]
        return tensor

    def join(self, a: str, b: str) -> None:
        self.parent[self.root(a)] = self.root(b)


def fix_points(region: Region, statistics: Statistics, calibrator: str) -> dict[str, int]:
    """Fix point of every tensor of the region."""
    groups = _Groups()
    for node in region.nodes:
        if operator.get(node).moves_bytes:
            for tensor in activation_inputs(node, region.graph):
                groups.join(tensor, node.outputs[0])
    owners = [(t, region.readers[t][0].name) for t in region.entries]
    owners += [(n.outputs[0], n.name) for n in region.nodes]
    own: dict[str, int] = {}
    for tensor, owner in owners:
        known = statistics.tensors.get(tensor)
        if known is None:
            raise QuantisationError(
                f"node {owner}: no calibration statistics of tensor {tensor}; calibrate this same graph again"
            )
        root = groups.root(tensor)
        own[root] = min(own.get(root, FIX_POINT_MAX), tensor_fix_point(known, tensor, calibrator))
    changed = True
    while changed:  # operands of an addition may differ by at most 2^14, else one of them has no multiplier 2^k
        changed = False
        for node in region.nodes:
            if node.op not in ("Add", "Sub"):
                continue
            a, b = (groups.root(t) for t in activation_inputs(node, region.graph))
            for fine, coarse in ((a, b), (b, a)):
                if own[fine] > own[coarse] + LEFT_SHIFT_MAX:
                    own[fine], changed = own[coarse] + LEFT_SHIFT_MAX, True
    return {tensor: own[groups.root(tensor)] for tensor, _ in owners}


def pwl_factors(exponent: int, activation: Activation, channels: int, name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Mp, Mn and S for a factor 2^exponent: plain M = 2^k; a slope s is round_half_up(256*s)/256, with M = 256*2^k and S + 8."""
    slope = slopes(activation, channels)
    plain = bool(np.isin(slope, (0.0, 1.0)).all())
    try:
        k, shift = power_of_two_factor(exponent, LEFT_SHIFT_MAX if plain else LEFT_SHIFT_MAX - SLOPE_BITS)
        if plain:
            positive = np.full(channels, 1 << k)
            return positive, np.where(slope == 0.0, 0, positive), shift
        negative = round_half_up(slope * SLOPE_UNIT) * (1 << k)
        if np.abs(negative).max() > 32767 or shift + SLOPE_BITS > SHIFT_MAX:
            raise ValueError(f"slope {np.abs(slope).max():g} does not fit")
        return np.full(channels, SLOPE_UNIT << k), negative.astype(np.int64), shift + SLOPE_BITS
    except ValueError as problem:
        raise QuantisationError(f"node {name}: {problem}; quantise with mode fine") from None


def output_stage(node: Node, unit: int, fix: int, channels: int, largest_pre: float) -> OutputStage:
    """Stage behind an accumulator in units of 2^-unit, output in units of 2^-fix."""
    zero = np.zeros(channels, np.int8)
    if is_curve(node.activation):
        bits = choose_fraction_bits(largest_pre)
        factors = []
        for exponent in (bits - unit, fix - bits):
            try:
                k, shift = power_of_two_factor(exponent)
            except ValueError as problem:
                raise QuantisationError(f"node {node.name}: {problem}; quantise with mode fine") from None
            factors.append((np.full(channels, 1 << k, np.int16), np.full(channels, shift, np.int8)))
        (m1, s1), (m2, s2) = factors
        low, high = CURVES[node.activation.kind].tails(bits)
        table = build_table(curve_function(node.activation), bits)
        return OutputStage(
            "table",
            s1,
            zero,
            m_pos=m1,
            m_neg=m2,
            shift2=s2,
            table=table,
            fraction_bits=bits,
            tail_low=low,
            tail_high=high,
        )
    positive, negative, shift = pwl_factors(fix - unit, node.activation, channels, node.name)
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
    largest_pre: float,
    algorithms: layers.Algorithms = layers.NO_ALGORITHMS,
) -> ConvParams:
    """Weights under one fix point (least squared error), int8 bias with its own."""
    weight, bias = layers.convolution_weight(node, graph)
    start = fitting_fix_point(0.0, float(np.abs(weight).max(initial=0.0)))
    fix_weight = least_error_fix_point(weight, np.ones(1), start, lowest=-127)
    # The accumulator's unit must be within reach of the output's: M = 2^k, k <= 14 (6 with a slope).
    fix_weight = max(fix_weight, fix_out - fix_in - (LEFT_SHIFT_MAX - SLOPE_BITS))
    fix_bias = fitting_fix_point(float(bias.min(initial=0.0)), float(bias.max(initial=0.0)))
    fix_weight = min(fix_weight, fix_bias + 20 - fix_in)  # the shifted bias stays below 2^28
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
    stage = output_stage(node, unit, fix_out, len(bias), largest_pre)
    channels = graph.tensors[node.inputs[0]].shape[1]
    return ConvParams(weight_q, bias_q.astype(np.int32), np.zeros(channels, np.int8), stage)


def two_operands(node: Node, fix_a: int, fix_b: int, fix_out: int, channels: int, largest_pre: float) -> EltwiseParams:
    """Add, Sub, Mul: operands brought to the finer of the two fix points by 2^k, then one stage."""
    zero8, zero32 = np.zeros(channels, np.int8), np.zeros(channels, np.int32)
    if node.op == "Mul":
        unit, k_a, k_b = fix_a + fix_b, 0, None
    else:
        unit = max(fix_a, fix_b)
        k_a, k_b = unit - fix_a, unit - fix_b
    m_a = np.full(channels, 1 << k_a, np.int16)
    m_b = np.zeros(channels, np.int16) if k_b is None else np.full(channels, 1 << k_b, np.int16)
    return EltwiseParams(m_a, m_b, zero8, zero8, zero32, output_stage(node, unit, fix_out, channels, largest_pre))


def affine(node: Node, fix_in: int, fix_out: int, largest_pre: float) -> EltwiseParams:
    """Multipliers per channel are not powers of two (they are the operator's own); the unit behind them is."""
    scale, bias = (np.asarray(node.attrs[k], np.float64) for k in ("scale", "bias"))
    channels = len(scale)
    shift = int(factor_shift(scale[:, None], stages.DIFFERENCE_SHIFT_MAX - FIX_POINT_MAX)[0])
    exponent = int(np.frexp(np.abs(bias).max(initial=0.0))[1])
    shift = min(shift, 30 - exponent - fix_in)
    if shift < 0:
        raise QuantisationError(
            f"node {node.name}: scale or bias is too large for fix point {fix_in}; quantise with mode fine"
        )
    unit = fix_in + shift
    m = multiplier(scale, np.full(channels, shift))
    addend = round_half_up(bias * 2.0**unit).astype(np.int32)
    zero8 = np.zeros(channels, np.int8)
    stage = output_stage(node, unit, fix_out, channels, largest_pre)
    return EltwiseParams(m, np.zeros(channels, np.int16), zero8, zero8, addend, stage)


def average_pool(node: Node, graph: Graph, fix_in: int, fix_out: int) -> AveragePoolParams:
    """Divisors are not powers of two: one multiplier per divisor, shared by all channels."""
    _, channels, h, w = graph.tensors[node.inputs[0]].shape
    valid, divisor = window_counts(node, h, w)
    factors = {int(n): 2.0 ** (fix_out - fix_in) / int(divisor[valid == n][0]) for n in np.unique(valid)}
    shift = int(factor_shift(np.array(list(factors.values()))[:, None])[0])
    if shift < 0:
        raise QuantisationError(
            f"node {node.name}: fix points {fix_in} and {fix_out} are too far apart; quantise with mode fine"
        )
    single = len({int(d) for d in np.unique(divisor)}) == 1 and len(factors) == 1
    rows = 1 if single else int(np.prod(node.attrs["kernel_shape"]))
    table = np.zeros((rows, channels), np.int16)
    for n, factor in factors.items():
        table[0 if single else n - 1] = multiplier(np.array([factor]), np.array([shift]))[0]
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
    largest_pre = 0.0
    if is_curve(node.activation):
        before = statistics.tensors.get(pre_activation(output))
        if before is None:
            raise QuantisationError(
                f"node {node.name}: the pre-activation was not observed; calibrate this same graph again"
            )
        largest_pre = largest_pre_activation(before, node.activation)
    if node.op in CONVOLUTIONS:
        return convolution(node, graph, inputs[0], out, largest_pre, algorithms)
    if node.op in ("Add", "Sub", "Mul"):
        return two_operands(node, inputs[0], inputs[1], out, channels, largest_pre)
    if node.op == "Affine":
        return affine(node, inputs[0], out, largest_pre)
    if node.op == "AveragePool":
        return average_pool(node, graph, inputs[0], out)
    quants = [qgraph.quant[t] for t in activation_inputs(node, graph)]
    params, quant = layers.own_parameters(node, quants, qgraph.quant[output], qgraph)
    if quant.fix_point != out:
        raise QuantisationError(
            f"node {node.name}: operator {node.op} changed its output's fix point; quantise with mode fine"
        )
    return params
