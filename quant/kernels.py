"""Parameters of operators that other packages bring, first of all of NPU-DSL programs in int8.

Ranges of a program's values come by interval arithmetic from its operands' scales, then each instruction's integers.
No statistics are needed inside a program: what an int8 tile can hold is known from its scale, and so is what one instruction makes of it. The result
gets the scale that calibration gave the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from npuforge.compile.ir.errors import InstructionError, QuantisationError
from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import (
    AveragePoolParams,
    ConvParams,
    EltwiseParams,
    KernelParams,
    NodeParams,
    OutputStage,
    QGraph,
    TensorQuant,
)
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.activations import TABLE_CURVES, apply_activation, curve
from npuforge.hw_kernels.arithmetic import factor_shift, multiplier, round_half_up
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram
from npuforge.hw_kernels.dsl.tile import Dtype
from npuforge.hw_kernels.dsl.trace import Operation
from npuforge.quant import layers, stages
from npuforge.quant.fix_points import fitting_fix_point

Range = tuple[np.ndarray, np.ndarray]  # low and high of every channel
SIXTEEN_BITS = 32767.0
STEP = 1.0 / 16.0  # of the table
Choice = Callable[[np.ndarray, np.ndarray], TensorQuant]  # quantisation for a range


def held(quant: TensorQuant) -> Range:
    """Real values that an int8 tensor can hold."""
    ends = [(end - quant.zero_point) * quant.scale for end in (-128, 127)]
    return np.minimum(*ends), np.maximum(*ends)


def within(values: Range, quant: TensorQuant) -> Range:
    """Values of this range once they are rounded to `quant`."""
    low, high = held(quant)
    half = np.abs(quant.scale) / 2.0
    return np.maximum(values[0] - half, low), np.minimum(values[1] + half, high)


def _product(a: Range, b: Range) -> Range:
    ends = np.stack([x * y for x in a for y in b])
    return ends.min(axis=0), ends.max(axis=0)


def _scaled(values: Range, factor: float, bias: float = 0.0) -> Range:
    low, high = (v * factor for v in values)
    return np.minimum(low, high) + bias, np.maximum(low, high) + bias


def argument(o: Operation, ranges: list[Range]) -> Range:
    """Range of factor*d + bias of one operation."""
    a = ranges[o.a]
    if o.kind == "add":
        d: Range = (a[0] + ranges[o.b][0], a[1] + ranges[o.b][1])
    elif o.kind == "sub":
        d = (a[0] - ranges[o.b][1], a[1] - ranges[o.b][0])
    elif o.kind == "mul":
        d = _product(a, ranges[o.b])
        if o.a == o.b:
            d = (np.maximum(d[0], 0.0), d[1])
    elif o.kind == "pool_sum":
        d = _scaled(a, 1.0 if o.mean else o.counts[-1])
    elif o.kind == "channel_sum":
        share = 1.0 / len(a[0]) if o.mean else 1.0
        d = (a[0].sum(keepdims=True) * share, a[1].sum(keepdims=True) * share)
    elif o.kind == "depthwise":
        weights = np.array(o.weights)
        positive, negative = (part.sum(axis=(1, 2)) for part in (np.maximum(weights, 0.0), np.minimum(weights, 0.0)))
        low, high = np.minimum(a[0], 0.0), np.maximum(a[1], 0.0)  # pads are 0
        d = (positive * low + negative * high, positive * high + negative * low)
    elif o.kind == "max2":
        left, right = (_scaled(ranges[v], o.factor) for v in (o.a, o.b))
        return np.minimum(left[0], right[0]), np.maximum(left[1], right[1])
    else:
        d = a
    return _scaled(d, o.factor, o.bias)


def bent(o: Operation, values: Range) -> Range:
    """Range of the activation's result, 0 included."""
    low, high = values
    points = [low, high, np.clip(0.0, low, high)]
    if o.activation.kind in TABLE_CURVES:
        points += [np.clip(x, low, high) for x in np.arange(-8.0, 8.0, STEP)]
    with np.errstate(over="ignore"):
        results = np.stack([apply_activation(p, o.activation, 0) for p in points])
    return np.minimum(results.min(axis=0), 0.0), np.maximum(results.max(axis=0), 0.0)


def table_reach(o: Operation, values: Range) -> float:
    """The magnitude that the table's 16 bits must hold (`layers.Output.largest_pre`); InstructionError where they cannot."""
    bent_by = curve(o.activation)
    low, high = float(values[0].min()), float(values[1].max())
    reach = max(-low if bent_by.low is None else 0.0, high if bent_by.high is None else 0.0, bent_by.largest_tail)
    most = SIXTEEN_BITS / 2.0 ** (o.fraction_bits or 5)
    if o.activation.kind == "Exp":
        reach = max(high, math.exp(min(high, 8.0) + STEP))
        if reach > most:
            raise InstructionError(
                f"{o.where}: vexp: the table's 16 bits hold e^x up to x = {math.log(most) - STEP:.2f}, the argument's scale reaches {high:.2f}; "
                "limit it with vmins, or subtract the largest value first"
            )
    if not o.fraction_bits:
        return reach
    if reach > most:
        raise InstructionError(
            f"{o.where}: cast: {o.fraction_bits} fraction bits hold values up to {most:.2f}, found {reach:.2f}; ask for fewer"
        )
    return most


class _Builder:
    """Goes through the program once."""

    def __init__(self, node: Node, inputs: list[TensorQuant], out: TensorQuant, choice: Choice) -> None:
        self.node, self.inputs, self.out, self.choice = node, inputs, out, choice
        self.params = KernelParams()
        self.quants: list[TensorQuant] = []
        self.ranges: list[Range] = []

    def wanted(self, o: Operation, is_result: bool, values: Range) -> layers.Output:
        """Scale and range minimum of what the instruction writes before `after`."""
        quant = replace_scale(self.out, 1.0 / o.after) if is_result else self.choice(*values)
        return layers.Output(quant.scale, (-128.0 - quant.zero_point) * quant.scale)

    def add(self, index: int, o: Operation, is_result: bool) -> None:
        """One operation."""
        if o.kind == "input":
            quant = self.inputs[o.a]
            reach = held(quant)
        elif o.kind in ("scale", "pool_max"):
            quant, reach = replace_scale(self.quants[o.a], o.factor), _scaled(self.ranges[o.a], o.factor)
        else:
            values = argument(o, self.ranges)
            result = bent(o, values)
            out = self.wanted(o, is_result, result)
            if o.activation.kind in TABLE_CURVES:
                out.largest_pre = table_reach(o, values)
            quant = replace_scale(self._instruction(str(index), o, out), o.after)
            reach = within(_scaled(result, o.after), quant)
        self.quants.append(quant)
        self.ranges.append(reach)

    def _instruction(self, key: str, o: Operation, out: layers.Output) -> TensorQuant:
        a = self.quants[o.a]
        channels = len(a.scale)
        step = Node(self.node.name, "Affine", [], [], {}, o.activation)
        params: EltwiseParams | AveragePoolParams | ConvParams
        if o.kind in ("affine", "max2"):
            step.attrs = {"scale": np.full(channels, o.factor), "bias": np.full(channels, o.bias)}
            params, quant = layers.affine(step, a, out)
            if o.kind == "max2":
                params, quant = self._two_to_one_scale(key, step, o, out, quant)
        elif o.kind == "pool_sum":
            params, quant = pooled(a, o, out)
        elif o.kind == "depthwise":
            params, quant = depthwise(step, a, o, out)
        elif o.kind == "channel_sum":
            weights = np.full((1, 1, 1, channels), o.factor / (channels if o.mean else 1))
            params, quant = convolution(step, a, o, out, weights, 1)
        else:
            step.op = o.kind.capitalize()
            b = replace_scale(self.quants[o.b], 1.0 if o.kind == "mul" else o.factor)
            params, quant = layers.two_operands(step, replace_scale(a, o.factor), b, out)
        self.params.steps[key] = params
        return quant

    def _two_to_one_scale(
        self, key: str, step: Node, o: Operation, out: layers.Output, first: TensorQuant
    ) -> tuple[EltwiseParams, TensorQuant]:
        """Both operands of max2 under the larger of the scales that hold their factors."""
        second = layers.affine(step, self.quants[o.b], out)[1]
        out.scale = np.maximum(first.scale, second.scale)
        self.params.steps[f"{key}b"] = layers.affine(step, self.quants[o.b], out)[0]
        return layers.affine(step, self.quants[o.a], out)


def replace_scale(quant: TensorQuant, factor: float) -> TensorQuant:
    """The same bytes as `factor` times the values."""
    return quant if factor == 1.0 else TensorQuant(quant.scale * factor, quant.zero_point)


def pooled(x: TensorQuant, o: Operation, out: layers.Output) -> tuple[AveragePoolParams, TensorQuant]:
    """Sum or mean of windows: a multiplier per number of valid taps and channel; those of counts that no window has are 0."""
    factors = o.pool_factors()[:, None] * x.scale  # [counts, C]
    quant = out.final(factors[np.abs(factors).max(axis=1).argmax()])
    factors = factors / quant.scale
    shift = int(factor_shift(factors.ravel()[:, None])[0])
    table = multiplier(factors, np.full(factors.shape, shift))
    zero_in, zero_out = x.zero_point.astype(np.int8), quant.zero_point.astype(np.int8)
    return AveragePoolParams(table, shift, zero_in, zero_out, len(table) == 1), quant


def depthwise(step: Node, x: TensorQuant, o: Operation, out: layers.Output) -> tuple[ConvParams, TensorQuant]:
    """The same weights for every channel or each its own, the channel's scale absorbed."""
    channels = len(x.scale)
    given = np.array(o.weights)[..., None] * o.factor
    weights = np.broadcast_to(given, (channels, *given.shape[1:]))
    return convolution(step, x, o, out, weights, channels)


def convolution(
    step: Node, x: TensorQuant, o: Operation, out: layers.Output, weights: np.ndarray, group: int
) -> tuple[ConvParams, TensorQuant]:
    """Weights [O, kH, kW, I/group] with the input's scales absorbed."""
    bias = np.full(len(weights), o.bias)
    quantised, unit = layers.quantised_weight(weights, bias, x.scale, group)
    zeros = layers.per_output(x.zero_point.astype(np.float64), len(weights), group)
    offset = (quantised.astype(np.float64).sum(axis=(1, 2)) * zeros).sum(axis=1)
    bias_q = round_half_up(bias / unit) - offset
    layers.check_overflow(step, quantised, bias_q)
    stage, quant = layers.output_stage(step, unit, out)
    assert isinstance(stage, OutputStage)
    return ConvParams(quantised, bias_q.astype(np.int32), x.zero_point.astype(np.int8), stage), quant


def fine(low: np.ndarray, high: np.ndarray) -> TensorQuant:
    """A scale per channel."""
    scale = stages.channel_scales(low, high, 1.0)
    return TensorQuant(scale, stages.zero_points(low, scale))


def power_of_two(low: np.ndarray, high: np.ndarray) -> TensorQuant:
    """One power of two for the tensor, zero point 0."""
    fix = fitting_fix_point(float(low.min()), float(high.max()))
    return TensorQuant(np.full(len(low), 2.0**-fix), np.zeros(len(low), np.int32), fix_point=fix)


def kernel(
    node: Node, program: KernelProgram, sizes: list[tuple[int, int]], inputs: list[TensorQuant], out: TensorQuant
) -> tuple[KernelParams, TensorQuant]:
    """Parameters of a node whose operator is an NPU-DSL program over maps of `sizes`, and the output's quantisation (`out`, raised where a factor
    would not fit). InstructionError at the line that int8 cannot do."""
    trace, _ = program.over(node, Dtype.INT8, sizes)
    builder = _Builder(node, inputs, out, fine if out.fix_point is None else power_of_two)
    for index, o in enumerate(trace.operations):
        builder.add(index, o, index == trace.result)
    quant = builder.quants[trace.result]
    if out.fix_point is not None:
        if not np.array_equal(quant.scale, out.scale):
            raise QuantisationError(
                f"node {node.name}: {trace.name} changed its output's fix point; quantise with mode fine"
            )
        quant = replace(quant, fix_point=out.fix_point)
    return builder.params, quant


def own_parameters(
    node: Node, inputs: list[TensorQuant], wanted: TensorQuant, qgraph: QGraph
) -> tuple[NodeParams, TensorQuant]:
    """Parameters of an operator of a user's package: an NPU-DSL program, or one with a `quantise` of its own; QuantisationError if it has none."""
    program = operator.get(node).program
    if isinstance(program, KernelProgram):
        shapes = [qgraph.graph.tensors[t].shape for t in node.inputs]
        return kernel(node, program, [(int(s[2]), int(s[3])) for s in shapes], inputs, wanted)
    try:
        params, quant = operator.get(node).quantise(node, inputs, wanted, qgraph)
    except NotImplementedError:
        raise QuantisationError(
            f"node {node.name}: the quantiser does not know operator {node.op} and it has no quantise(); place it on the CPU"
        ) from None
    return params, quant
