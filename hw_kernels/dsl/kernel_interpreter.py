"""The interpreter of NPU-DSL programs: the normative bits of every operation in numpy, int8 and bf16; operations have been placed over their maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.compile.ir.quantization import AveragePoolParams, ConvParams, EltwiseParams, KernelParams, OutputStage
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.arch import LANES
from npuforge.hw_kernels.arithmetic import apply_stage, rounding_shift, sat8
from npuforge.hw_kernels.bf16_stage import output_stage, rounded
from npuforge.hw_kernels.dsl.tile import LaneMap
from npuforge.hw_kernels.dsl.trace import Operation, Trace
from npuforge.hw_kernels.windows import fill_border, tap


def stage_of(operation: Operation, channels: int) -> Bf16Stage:
    """The bf16 output stage of one operation, the same for every channel."""
    return output_stage(operation.activation, np.full(channels, operation.bias))


# ---- bf16
def geometry(o: Operation, out: tuple[int, int]) -> bf16.Geometry:
    """Of a window, for the bf16 arithmetic."""
    return out, o.window.strides, (o.window.pads[0], o.window.pads[1]), o.window.dilations


def bf16_weights(o: Operation, channels: int) -> np.ndarray:
    """Weights of a depthwise operation as bf16 bits [kH, kW, channels]."""
    bits = bf16.from_float32(rounded(np.array(o.weights) * o.factor)).transpose(1, 2, 0)
    return np.broadcast_to(bits, (*bits.shape[:2], channels))


def sum_weights(o: Operation, lanes: LaneMap) -> np.ndarray:
    """Weights of a sum over channels as bf16 bits [16, 1, 1, 16*blocks]: only lane 0 of the result has any."""
    factor = o.factor / (len(lanes.lanes) if o.mean else 1)
    weights = np.zeros((LANES, 1, 1, LANES * lanes.blocks), np.uint16)
    weights[0, 0, 0, lanes.lanes] = bf16.from_float32(rounded(np.array([factor])))[0]
    return weights


def _bf16(o: Operation, values: list[np.ndarray], lanes: LaneMap) -> np.ndarray:
    x = values[o.a]
    channels = x.shape[-1]
    if o.kind == "channel_sum":
        own = lanes if channels == len(lanes.lanes) else LaneMap.identity(channels)
        pixel = (x.shape[0], x.shape[1]), (1, 1), (0, 0), (1, 1)
        total = bf16.convolve(own.expand(x, axis=2), sum_weights(o, own), pixel)
        return bf16.apply_stage(total[..., :1], stage_of(o, 1))
    if o.kind in ("pool_max", "pool_sum", "depthwise"):
        where = geometry(o, o.window.output((x.shape[0], x.shape[1])))
        if o.kind == "pool_max":
            return bf16.max_pool(x, o.window.kernel, where)
        if o.kind == "pool_sum":
            return bf16.average_pool(x, o.window.kernel, where, rounded(o.pool_factors()), len(o.counts) == 1)
        return bf16.apply_stage(bf16.depthwise(x, bf16_weights(o, channels), where), stage_of(o, channels))
    a, factor = bf16.to_float32(x), np.float32(o.factor)
    if o.kind == "affine":
        d = bf16.multiply(a, factor)
    elif o.kind == "max2":
        b = bf16.to_float32(values[o.b])
        left, right = (bf16.apply_stage(bf16.multiply(v, factor), stage_of(o, channels)) for v in (a, b))
        return bf16.maximum(left, right)
    else:
        function = {"add": bf16.add, "sub": bf16.subtract, "mul": bf16.multiply}[o.kind]
        d = function(a, np.broadcast_to(bf16.to_float32(values[o.b]), a.shape))
    return bf16.apply_stage(d, stage_of(o, channels))


def run_bf16(trace: Trace, inputs: list[np.ndarray], lanes: LaneMap) -> np.ndarray:
    """bf16 bits of the result from those of the inputs, [H, W, C]. `lanes`: where channels lie, which decides what a sum over them adds first."""
    return _run(trace, inputs, lambda o, values, _: _bf16(o, values, lanes))


# ---- int8
def run_int8(trace: Trace, inputs: list[np.ndarray], params: KernelParams) -> np.ndarray:
    """int8 result from int8 inputs, [N, H, W, C]."""

    def step(o: Operation, values: list[np.ndarray], index: int) -> np.ndarray:
        return _int8(o, values, params, str(index))

    return _run(trace, inputs, step)


def _run(
    trace: Trace, inputs: list[np.ndarray], step: Callable[[Operation, list[np.ndarray], int], np.ndarray]
) -> np.ndarray:
    values: list[np.ndarray] = []
    for index, o in enumerate(trace.operations):
        values.append(inputs[o.a] if o.kind == "input" else step(o, values, index))
    return values[trace.result]


def _int8(o: Operation, values: list[np.ndarray], params: KernelParams, key: str) -> np.ndarray:
    x, p = values[o.a], params.steps.get(key)
    if o.kind == "scale":
        return x
    if o.kind == "pool_max":
        return _largest(o, x)
    if isinstance(p, AveragePoolParams):
        zero = p.zero_in.astype(np.int64)
        total = _taps(o, fill_border(x, o.window.pads, zero, np.int64), zero, None)
        counts = o.window.valid_taps((x.shape[1], x.shape[2]))
        factors = p.multiplier.astype(np.int64)[np.zeros_like(counts) if p.single else counts - 1]
        return sat8(rounding_shift(total * factors, p.shift) + p.zero_out.astype(np.int64))
    if isinstance(p, ConvParams):
        assert isinstance(p.stage, OutputStage)
        if o.kind == "channel_sum":
            acc = (x.astype(np.int64) * p.weight[0, 0, 0].astype(np.int64)).sum(axis=3, keepdims=True)
            return apply_stage(acc + p.bias.astype(np.int64), p.stage)
        total = _taps(o, fill_border(x, o.window.pads, p.pad_value, np.int64), np.int64(0), p.weight)
        return apply_stage(total + p.bias.astype(np.int64), p.stage)
    assert isinstance(p, EltwiseParams)
    a = x.astype(np.int64) - p.z_a
    if o.kind == "affine":
        return apply_stage(p.m_a * a + p.k, p.stage)
    if o.kind == "max2":
        q = params.steps[f"{key}b"]
        assert isinstance(q, EltwiseParams)
        right = apply_stage(q.m_a * (values[o.b].astype(np.int64) - q.z_a) + q.k, q.stage)
        return np.maximum(apply_stage(p.m_a * a + p.k, p.stage), right)
    b = values[o.b].astype(np.int64) - p.z_b
    if o.kind == "mul":
        return apply_stage(a * b * p.m_a, p.stage)
    return apply_stage(p.m_a * a + (p.m_b * b if o.kind == "add" else -(p.m_b * b)), p.stage)


def _largest(o: Operation, x: np.ndarray) -> np.ndarray:
    out = o.window.output((x.shape[1], x.shape[2]))
    bordered = fill_border(x, o.window.pads, -128, np.int8)
    result = np.full((x.shape[0], *out, x.shape[3]), -128, np.int8)
    for ky, kx in np.ndindex(*o.window.kernel):
        np.maximum(result, tap(bordered, ky, kx, *out, o.window.strides, o.window.dilations), out=result)
    return result


def _taps(o: Operation, x: np.ndarray, zero: np.ndarray | np.int64, weight: np.ndarray | None) -> np.ndarray:
    """Sum of (x - zero), weighted by weight [C, kH, kW, 1], over every window of a map that has its border; int64."""
    (kernel_h, kernel_w), window = o.window.kernel, replace(o.window, pads=(0, 0, 0, 0))
    out = window.output((x.shape[1], x.shape[2]))
    total = np.zeros((x.shape[0], *out, x.shape[3]), np.int64)
    for ky, kx in np.ndindex(kernel_h, kernel_w):
        part = tap(x, ky, kx, *out, window.strides, window.dilations) - zero
        total += part if weight is None else part * weight[:, ky, kx, 0].astype(np.int64)
    return total
