"""The bf16 instructions of the builder: `Npu.conv_bf16(...)` and its kin."""

from __future__ import annotations

from dataclasses import dataclass, replace

from npuforge.compile.ir.bf16 import CURVE_SEGMENTS, Bf16Stage
from npuforge.hw_kernels.arch import LANES
from npuforge.hw_kernels.dsl.fields import (
    Fields,
    input_fields,
    lanes_are,
    needed_rows,
    output_fields,
    require,
    resize_fields,
    same_shape,
    second_operand,
    window_fields,
)
from npuforge.hw_kernels.dsl.instr import Instr
from npuforge.hw_kernels.dsl.tile import Dtype, Footprint, Param, Tile, Window
from npuforge.hw_kernels.isa.codec import BF16_DTYPE, RESIZE_BF16_DTYPE
from npuforge.hw_kernels.isa.instructions import EltwiseKind, PoolKind, Stage

CURVE_BYTES = 3 * 4 * CURVE_SEGMENTS


@dataclass(frozen=True)
class Bf16StageSpec:
    """Output stage of an instruction: where its records and its curve lie, tails as bf16 bits."""

    records: Param
    table: Param | None = None
    tail_low: int = 0
    tail_high: int = 0
    tail_low_is_input: int = 0
    tail_high_is_input: int = 0

    @staticmethod
    def of(stage: Bf16Stage, records: Param, table: Param | None) -> Bf16StageSpec:
        """From the parameters of a node."""
        if stage.kind != "table":
            return Bf16StageSpec(records)
        low, high = stage.tail_low, stage.tail_high
        return Bf16StageSpec(records, table, low.bits, high.bits, int(low.is_input), int(high.is_input))

    def part(self, first: int, blocks: int) -> Bf16StageSpec:
        """The records of channel blocks first..first + blocks."""
        size = LANES * BF16_DTYPE.itemsize
        return replace(self, records=self.records.part(first * size, blocks * size, "bf16 records"))


class Bf16Instructions:
    """Mixed into `Npu`."""

    def _emit(self, name: str, fields: Fields, reads: list[Footprint], writes: list[Footprint]) -> Instr:
        raise NotImplementedError

    def conv_bf16(self, x: Tile, y: Tile, window: Window, weight: Param, stage: Bf16StageSpec) -> None:
        """Convolution of all of x's blocks to all of y's."""
        size = 2 * LANES * y.blocks * window.kernel_h * window.kernel_w * LANES * x.blocks
        require(weight.size == size, f"npu.conv_bf16: {size} bytes of weights expected, found {weight.size}")
        self._windowed_bf16("CONV_BF16", x, y, window, weight, stage, {"blocks_in": x.blocks, "blocks_out": y.blocks})

    def depthwise_bf16(self, x: Tile, y: Tile, window: Window, weight: Param, stage: Bf16StageSpec) -> None:
        """Convolution of every lane with itself only."""
        same_shape("npu.depthwise_bf16", x, y, cols=False)
        size = 2 * window.kernel_h * window.kernel_w * LANES * y.blocks
        require(weight.size == size, f"npu.depthwise_bf16: {size} bytes of weights expected, found {weight.size}")
        self._windowed_bf16("DEPTHWISE_BF16", x, y, window, weight, stage, {"blocks_out": y.blocks})

    def _windowed_bf16(
        self, name: str, x: Tile, y: Tile, window: Window, weight: Param, stage: Bf16StageSpec, blocks: Fields
    ) -> None:
        lanes_are(f"npu.{name.lower()}", Dtype.BF16, x, y)
        x, pad_top = needed_rows(x, y, window)
        stage_fields, stage_reads = _stage(name, stage, y)
        fields: Fields = {
            **stage_fields,
            **input_fields(x),
            **blocks,
            **window_fields(window),
            "pad_top": pad_top,
            **output_fields(y),
            "weight_addr": weight.ref,
        }
        self._emit(name, fields, [x.footprint, weight.footprint, *stage_reads], [y.footprint])

    def pool_bf16(self, x: Tile, y: Tile, window: Window, factor: Param | None = None, single: bool = False) -> None:
        """Maximum over the window, or with `factor` (float32, 1/divisor per number of valid taps) the average."""
        lanes_are("npu.pool_bf16", Dtype.BF16, x, y)
        same_shape("npu.pool_bf16", x, y, cols=False)
        x, pad_top = needed_rows(x, y, window)
        fields: Fields = {
            "kind": PoolKind.MAX if factor is None else PoolKind.AVERAGE,
            **input_fields(x),
            "blocks_out": y.blocks,
            **window_fields(window),
            "pad_top": pad_top,
            **output_fields(y),
        }
        reads = [x.footprint]
        if factor is not None:
            size = 4 * (1 if single else window.kernel_h * window.kernel_w)
            require(factor.size == size, f"npu.pool_bf16: {size} bytes of factors expected, found {factor.size}")
            fields |= {"weight_addr": factor.ref, "single": int(single)}
            reads.append(factor.footprint)
        self._emit("POOL_BF16", fields, reads, [y.footprint])

    def eltwise_bf16(
        self, kind: EltwiseKind, a: Tile, b: Tile, y: Tile, stage: Bf16StageSpec, broadcast_lane: int | None = None
    ) -> None:
        """Two operands. b may have one row, one column, and (`broadcast_lane`: its lane) one channel."""
        lanes_are("npu.eltwise_bf16", Dtype.BF16, b)
        b, extra = second_operand(b, y, broadcast_lane)
        self._elementwise_bf16(kind, a, y, stage, extra, [b.footprint])

    def affine_bf16(self, a: Tile, y: Tile, factor: Param, stage: Bf16StageSpec) -> None:
        """One operand: a*factor, then the stage, whose bias is the addend."""
        size = 4 * LANES * y.blocks
        require(factor.size == size, f"npu.affine_bf16: {size} bytes of factors expected, found {factor.size}")
        self._elementwise_bf16(EltwiseKind.AFFINE, a, y, stage, {"operand_addr": factor.ref}, [factor.footprint])

    def _elementwise_bf16(
        self, kind: EltwiseKind, a: Tile, y: Tile, stage: Bf16StageSpec, extra: Fields, reads: list[Footprint]
    ) -> None:
        lanes_are("npu.eltwise_bf16", Dtype.BF16, a, y)
        a = a.band(y.first_row, y.end_row)
        same_shape("npu.eltwise_bf16", a, y, rows=True)
        stage_fields, stage_reads = _stage("ELTWISE_BF16", stage, y)
        inputs = {k: v for k, v in input_fields(a).items() if k not in ("in_h", "in_w")}
        fields: Fields = {**stage_fields, "kind": kind, **inputs, "blocks_out": y.blocks, **output_fields(y), **extra}
        self._emit("ELTWISE_BF16", fields, [a.footprint, *reads, *stage_reads], [y.footprint])

    def resize_bf16(self, x: Tile, y: Tile, row_table: Param, col_table: Param) -> None:
        """Interpolation; the rows of `row_table` count from x's first row held."""
        lanes_are("npu.resize_bf16", Dtype.BF16, x, y)
        fields = resize_fields("npu.resize_bf16", x, y, row_table, col_table, RESIZE_BF16_DTYPE.itemsize)
        self._emit("RESIZE_BF16", fields, [x.footprint, row_table.footprint, col_table.footprint], [y.footprint])


def _stage(what: str, stage: Bf16StageSpec, y: Tile) -> tuple[Fields, list[Footprint]]:
    size = BF16_DTYPE.itemsize * LANES * y.blocks
    require(stage.records.size == size, f"{what}: {size} bytes of records expected, found {stage.records.size}")
    fields: Fields = {"stage": Stage.PWL, "record_addr": stage.records.ref}
    reads = [stage.records.footprint]
    if stage.table is not None:
        require(stage.table.size == CURVE_BYTES, f"{what}: a table of {CURVE_BYTES} bytes is expected")
        fields |= {"stage": Stage.TABLE, "table_addr": stage.table.ref}
        fields |= {k: getattr(stage, k) for k in ("tail_low", "tail_high", "tail_low_is_input", "tail_high_is_input")}
        reads.append(stage.table.footprint)
    return fields, reads
