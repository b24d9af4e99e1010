"""From the operations of an NPU-DSL program to engine instructions: what each packs, what each emits, in int8 and in bf16."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from npuforge.compile.ir.quantization import AveragePoolParams, ConvParams, KernelParams, OutputStage
from npuforge.hw_kernels.arch import LANES
from npuforge.hw_kernels.bf16_stage import rounded
from npuforge.hw_kernels.dsl.kernel_interpreter import bf16_weights, stage_of, sum_weights
from npuforge.hw_kernels.dsl.kernel_maps import engine_window
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, lane_part, operand_records, stage_arrays, stage_spec
from npuforge.hw_kernels.dsl.program_bf16 import bf16_arrays, bf16_spec
from npuforge.hw_kernels.dsl.tile import Dtype, LaneMap, Param, Tile, Window
from npuforge.hw_kernels.dsl.trace import Operation
from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE
from npuforge.hw_kernels.isa.instructions import EltwiseKind

KINDS = {"add": EltwiseKind.ADD, "sub": EltwiseKind.SUB, "mul": EltwiseKind.MUL}
Params = dict[str, Param]


def by_block(weights: np.ndarray, lanes: LaneMap) -> np.ndarray:
    """Weights [kH, kW, C] as one contiguous [kH, kW, 16] per block, so that any run of blocks is a range of bytes."""
    wide = lanes.expand(weights, axis=2)
    return np.ascontiguousarray(wide.reshape(*weights.shape[:2], lanes.blocks, LANES).transpose(2, 0, 1, 3))


# ---- parameters
def pack_bf16(o: Operation, lanes: LaneMap, source: LaneMap) -> dict[str, np.ndarray]:
    """The arrays of one bf16 operation on channels in `lanes`; those that a sum over channels reads lie in `source`."""
    channels = len(lanes.lanes)
    if o.kind == "channel_sum":
        return bf16_arrays(stage_of(o, 1), lanes) | {"weights": sum_weights(o, source).astype("<u2")}
    if o.kind == "pool_max":
        return {}
    if o.kind == "pool_sum":
        return {"factor": np.asarray(rounded(o.pool_factors()), "<f4")}
    arrays = bf16_arrays(stage_of(o, channels), lanes)
    if o.kind in ("affine", "max2"):
        arrays["factor"] = lanes.expand(np.full(channels, o.factor, "<f4"))
    if o.kind == "depthwise":
        arrays["weights"] = by_block(bf16_weights(o, channels).astype("<u2"), lanes)
    return arrays


def pack_int8(o: Operation, params: KernelParams, key: str, lanes: LaneMap, source: LaneMap) -> dict[str, np.ndarray]:
    """The arrays of one int8 operation, as `pack_bf16`; those of a second instruction end in `b`."""
    if o.kind in ("scale", "pool_max"):
        return {}
    p = params.steps[key]
    if o.kind == "channel_sum":
        assert isinstance(p, ConvParams) and isinstance(p.stage, OutputStage)
        weights = np.zeros((LANES, LANES * source.blocks), np.int8)
        weights[0, source.lanes] = p.weight[0, 0, 0]
        arrays = stage_arrays(p.stage, lanes) | {"weights": weights, "bias": lanes.expand(np.asarray(p.bias, "<i4"))}
        return arrays | {"pad": source.expand(np.asarray(p.pad_value, "<i1"))}
    arrays = _pack_int8(o, params, key, lanes)
    if o.kind == "max2":
        arrays |= {f"{name}b": array for name, array in _pack_int8(o, params, f"{key}b", lanes).items()}
    return arrays


def _pack_int8(o: Operation, params: KernelParams, key: str, lanes: LaneMap) -> dict[str, np.ndarray]:
    p = params.steps[key]
    if isinstance(p, AveragePoolParams):
        requant, operand = np.zeros(len(lanes.lanes), REQUANT_DTYPE), np.zeros(len(lanes.lanes), OPERAND_DTYPE)
        requant["z"], operand["za"] = p.zero_out, p.zero_in
        multiplier = by_block(np.asarray(p.multiplier, "<i2")[:, None], lanes)
        return {"multiplier": multiplier, "requant": lanes.expand(requant), "operand": lanes.expand(operand)}
    assert isinstance(p.stage, OutputStage)
    arrays = stage_arrays(p.stage, lanes)
    if isinstance(p, ConvParams):
        arrays["bias"] = lanes.expand(np.asarray(p.bias, "<i4"))
        arrays["pad"] = lanes.expand(np.asarray(p.pad_value, "<i1"))
        arrays["weights"] = by_block(p.weight[..., 0].transpose(1, 2, 0), lanes)
        return arrays
    arrays["operand"] = operand_records(p, lanes)
    if o.kind in ("affine", "max2"):
        arrays["bias"] = lanes.expand(np.asarray(p.k, "<i4"))
    return arrays


# ---- instructions
@dataclass
class Emitter:
    """Emits one operation of a band and cut: `own` are its parameters, `channels` those of all cuts together."""

    npu: Npu
    cut: Cut
    channels: int
    params: KernelParams | None  # int8
    broadcast: int | None = None  # lane of operand b, where it has one channel and the result more

    def emit(self, o: Operation, key: str, own: Params, a: Tile, b: Tile | None, y: Tile) -> None:
        """The instructions of `o` from tiles a and b to tile y."""
        if o.kind == "max2":
            assert b is not None
            self._larger(o, key, own, a, b, y)
        elif o.kind == "channel_sum":
            self._over_channels(o, key, own, a, y)
        elif o.kind == "pool_max" and y.dtype == Dtype.INT8:
            self.npu.max_pool(a, y, engine_window(o))
        elif o.kind == "pool_max":
            self.npu.pool_bf16(a, y, engine_window(o))
        elif self.params is None:
            self._bf16(o, own, a, b, y)
        else:
            self._int8(o, self.params, key, own, a, b, y)

    def _over_channels(self, o: Operation, key: str, own: Params, a: Tile, y: Tile) -> None:
        """The array, 1x1: all blocks of a to lane 0 of y."""
        a = a.band(y.first_row, y.end_row)
        if self.params is None:
            self.npu.conv_bf16(a, y, Window(), own["weights"], bf16_spec(stage_of(o, 1), own, 0, 1))
            return
        p = self.params.steps[key]
        assert isinstance(p, ConvParams) and isinstance(p.stage, OutputStage)
        self.npu.conv(a, y, Window(), own["weights"], own["bias"], own["pad"], stage_spec(p.stage, own, Cut(0, 0, 1)))

    def _bf16(self, o: Operation, own: Params, a: Tile, b: Tile | None, y: Tile) -> None:
        if o.kind == "pool_sum":
            self.npu.pool_bf16(a, y, engine_window(o), own["factor"], single=len(o.counts) == 1)
            return
        stage = stage_of(o, self.channels)
        if o.kind == "depthwise":
            for number in range(self.cut.count):
                spec = bf16_spec(stage, own, self.cut.first + number, 1)
                weights = self._block(own["weights"], number, 2 * math.prod(o.window.kernel))
                here = a.channel_blocks(number, 1), y.channel_blocks(number, 1)
                self.npu.depthwise_bf16(*here, engine_window(o), weights, spec)
            return
        spec = bf16_spec(stage, own, self.cut.first, self.cut.count)
        if b is None:
            self.npu.affine_bf16(a, y, lane_part(own["factor"], self.cut, 4), spec)
        else:
            self.npu.eltwise_bf16(KINDS[o.kind], a, b, y, spec, self.broadcast)

    def _block(self, weights: Param, number: int, lane_bytes: int) -> Param:
        size = LANES * lane_bytes
        return weights.part((self.cut.first + number) * size, size, "parameters of a block")

    def _int8(
        self, o: Operation, params: KernelParams, key: str, own: Params, a: Tile, b: Tile | None, y: Tile
    ) -> None:
        p, cut = params.steps[key], self.cut
        if isinstance(p, AveragePoolParams):
            if p.single:
                factors, requant, operand = (
                    lane_part(own[name], cut, size)
                    for name, size in (("multiplier", 2), ("requant", 8), ("operand", 8))
                )
                self.npu.average_pool(a, y, engine_window(o), factors, requant, operand, p.shift, True)
                return
            for number in range(cut.count):  # a table of counts lies block by block
                one, here = Cut(0, cut.first + number, 1), (a.channel_blocks(number, 1), y.channel_blocks(number, 1))
                factors = self._block(own["multiplier"], number, 2 * len(p.multiplier))
                records = lane_part(own["requant"], one, 8), lane_part(own["operand"], one, 8)
                self.npu.average_pool(*here, engine_window(o), factors, *records, p.shift, False)
            return
        assert isinstance(p.stage, OutputStage)
        if isinstance(p, ConvParams):
            for number in range(cut.count):
                one = Cut(0, cut.first + number, 1)
                weights = self._block(own["weights"], number, math.prod(o.window.kernel))
                bias, pad = lane_part(own["bias"], one, 4), lane_part(own["pad"], one, 1)
                here = a.channel_blocks(number, 1), y.channel_blocks(number, 1)
                self.npu.depthwise(*here, engine_window(o), weights, bias, pad, stage_spec(p.stage, own, one))
            return
        stage, operand = stage_spec(p.stage, own, cut), lane_part(own["operand"], cut, 8)
        if b is None:
            self.npu.affine(a, y, operand, lane_part(own["bias"], cut, 4), stage)
        else:
            self.npu.eltwise(KINDS[o.kind], a, b, y, operand, stage, self.broadcast)

    def _larger(self, o: Operation, key: str, own: Params, a: Tile, b: Tile, y: Tile) -> None:
        """Row r of a at row 2r of a map, of b at row 2r + 1, then the larger of every two rows."""
        pitch = y.cols * y.blocks * y.block_bytes
        whole = self.npu.map(2 * y.rows, y.cols, y.blocks, y.dtype)
        single = replace(o, kind="affine")
        for number, (source, suffix) in enumerate(((a, ""), (b, "b"))):
            half = replace(
                whole,
                offset=number * pitch,
                rows=y.rows,
                row_stride=2 * pitch,
                first_row=y.first_row,
                height=y.height,
            )
            if self.params is None:
                self._bf16(single, own, source, None, half)
            else:
                mine = {n.removesuffix("b"): v for n, v in own.items() if n.endswith("b") == bool(suffix)}
                self._int8(single, self.params, f"{key}{suffix}", mine, source, None, half)
        window, target = Window(2, 1, stride_h=2), replace(y, first_row=0, height=y.rows)
        if y.dtype == Dtype.INT8:
            self.npu.max_pool(whole, target, window)
        else:
            self.npu.pool_bf16(whole, target, window)
