"""`pow2` mode: the fix point of every tensor, chosen so that every layer's factor is one the hardware has (DESIGN section 4).

A tensor's range gives its fix point; tensors joined by moves of bytes share one. Then outputs are lowered (their scale raised) until every
factor 2^(output - accumulator) is at most the largest left shift, and operands of an addition until they are near enough to each other.
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.activations import is_curve, slopes
from npuforge.hw_kernels.arithmetic import (
    FRACTION_BITS_MIN,
    MULTIPLIER_MAX,
    choose_fraction_bits,
    factor_shift,
    round_half_up,
)
from npuforge.hw_kernels.ops.average_pool.op import window_counts
from npuforge.quant import layers, stages
from npuforge.quant.ranges import channel_ranges, largest_pre_activation, tensor_percentile
from npuforge.quant.regions import CONVOLUTIONS, Region, activation_inputs
from npuforge.quant.statistics import Statistics, TensorStatistics, pre_activation

FIX_POINT_MIN, FIX_POINT_MAX = -33, 24  # 127*2^33 holds the largest value that calibration takes, 1e12
LEFT_SHIFT_MAX = 14  # M = 2^k, k <= 14
SLOPE_UNIT = 256  # LeakyReLU slopes are multiples of 1/256: 26/256 for 0.1
BIAS_SHIFT_MAX = 20  # the shifted bias stays below 2^28
ADDEND_BITS = 30
_FACTOR_BITS = 64  # float64 factors are scaled up by this to look for shifts below 0


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


def weight_fix_points(weight: np.ndarray, bias: np.ndarray) -> tuple[int, int]:
    """Fix points of a convolution's weights (least squared error) and of its bias (fits)."""
    start = fitting_fix_point(0.0, float(np.abs(weight).max(initial=0.0)))
    fix_weight = least_error_fix_point(weight, np.ones(1), start, lowest=-127)
    return fix_weight, fitting_fix_point(float(bias.min(initial=0.0)), float(bias.max(initial=0.0)))


def limited_weight_fix_point(fix_weight: int, fix_bias: int, fix_in: int) -> int:
    """The weights' fix point, lowered where the bias would be shifted out of its accumulator."""
    return min(fix_weight, fix_bias + BIAS_SHIFT_MAX - fix_in)


def affine_shift(scale: np.ndarray, bias: np.ndarray, fix_in: int) -> int:
    """S of M = round_half_up(scale*2^S): as large as multipliers (16 bits), addends (32 bits) and the stage's own shift allow. It may be
    negative: nothing is shifted, the accumulator's unit is 2^-(fix_in + S)."""
    shift = stages.DIFFERENCE_SHIFT_MAX - FIX_POINT_MAX
    factors = scale[:, None] * 2.0**-_FACTOR_BITS
    shift = min(shift, int(factor_shift(factors, shift + _FACTOR_BITS)[0]) - _FACTOR_BITS)
    return min(shift, ADDEND_BITS - int(np.frexp(np.abs(bias).max(initial=0.0))[1]) - fix_in)


def left_shift_max(activation: Activation, channels: int, name: str) -> int:
    """The largest k of a piecewise-linear stage's factor 2^k: 14, less where a slope takes bits of its multipliers."""
    slope = slopes(activation, channels)
    if np.isin(slope, (0.0, 1.0)).all():
        return LEFT_SHIFT_MAX
    largest = max(SLOPE_UNIT, int(np.abs(round_half_up(slope * SLOPE_UNIT)).max()))
    if largest > MULTIPLIER_MAX:
        raise QuantisationError(
            f"node {name}: slope {np.abs(slope).max():g} does not fit, expected below {MULTIPLIER_MAX / SLOPE_UNIT:g}; "
            "quantise with mode fine"
        )
    return (MULTIPLIER_MAX // largest).bit_length() - 1


def table_fraction_bits(largest_pre: float, unit: int) -> int:
    """F of a table stage: the largest that holds the calibrated pre-activation and lets the first factor 2^(F - unit) fit."""
    return max(FRACTION_BITS_MIN, min(choose_fraction_bits(largest_pre), unit + LEFT_SHIFT_MAX))


def largest_pre(node: Node, statistics: Statistics) -> float:
    """Largest magnitude that the 16-bit pre-activation of the node's curve must hold; 0 without a curve."""
    if not is_curve(node.activation):
        return 0.0
    before = statistics.tensors.get(pre_activation(node.outputs[0]))
    if before is None:
        raise QuantisationError(
            f"node {node.name}: the pre-activation was not observed; calibrate this same graph again"
        )
    return largest_pre_activation(before, node.activation)


class Groups:
    """Tensors that must share one fix point."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def root(self, tensor: str) -> str:
        """The member that stands for the group of `tensor`."""
        while self.parent.setdefault(tensor, tensor) != tensor:
            tensor = self.parent[tensor]
        return tensor

    def join(self, a: str, b: str) -> None:
        """Both groups become one."""
        self.parent[self.root(a)] = self.root(b)


class _Layer:
    """What bounds the output's fix point of one node that computes, given its inputs'."""

    def __init__(self, node: Node, graph: Graph, statistics: Statistics) -> None:
        self.node = node
        self.inputs = activation_inputs(node, graph)
        channels = graph.tensors[node.outputs[0]].shape[1]
        self.pre = largest_pre(node, statistics)
        self.left = 0 if is_curve(node.activation) else left_shift_max(node.activation, channels, node.name)
        if node.op in CONVOLUTIONS:
            self.fix_weight, self.fix_bias = weight_fix_points(*layers.convolution_weight(node, graph))
        elif node.op == "AveragePool":
            divisors = window_counts(node, *graph.tensors[self.inputs[0]].shape[2:])[1]
            self.left += int(divisors.min()).bit_length() - 1

    def highest_output(self, inputs: list[int]) -> int:
        """The highest fix point of the output for which the layer's factors fit."""
        node = self.node
        if node.op in CONVOLUTIONS:
            unit = inputs[0] + limited_weight_fix_point(self.fix_weight, self.fix_bias, inputs[0])
        elif node.op == "Mul":
            unit = inputs[0] + inputs[1]
        elif node.op in ("Add", "Sub"):
            unit = max(inputs)
        elif node.op == "Affine":
            scale, bias = layers.affine_parameters(node)
            unit = inputs[0] + affine_shift(scale, bias, inputs[0])
        elif node.op == "AveragePool":
            unit = inputs[0]
        else:
            return FIX_POINT_MAX  # an operator of another package: its own quantise decides
        if is_curve(node.activation):
            return table_fraction_bits(self.pre, unit) + LEFT_SHIFT_MAX
        return max(unit + self.left, FIX_POINT_MIN)


def fix_points(region: Region, statistics: Statistics, calibrator: str) -> dict[str, int]:
    """Fix point of every tensor of the region."""
    groups = Groups()
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
    computing = [_Layer(n, region.graph, statistics) for n in region.nodes if not operator.get(n).moves_bytes]
    changed = True
    while changed:  # every change lowers a fix point, none below FIX_POINT_MIN
        changed = False
        for layer in computing:
            inputs = [groups.root(t) for t in layer.inputs]
            if layer.node.op in ("Add", "Sub"):  # both operands have a multiplier 2^k
                nearest = min(own[t] for t in inputs) + LEFT_SHIFT_MAX
                for tensor in inputs:
                    if own[tensor] > nearest:
                        own[tensor], changed = nearest, True
            output = groups.root(layer.node.outputs[0])
            highest = layer.highest_output([own[t] for t in inputs])
            if own[output] > highest:
                own[output], changed = highest, True
    return {tensor: own[groups.root(tensor)] for tensor, _ in owners}
