"""The int8 instructions of the builder: `Npu.conv(...)` and its kin, and what their output stages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from npuforge.compile.ir.quantization import OutputStage
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
from npuforge.hw_kernels.dsl.tile import SRAM, Dtype, Footprint, Param, Tile, Window
from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE, RESIZE_DTYPE
from npuforge.hw_kernels.isa.instructions import EltwiseKind, PoolKind, Stage

TABLE_BYTES = 2 * 257


@dataclass(frozen=True)
class StageSpec:
    """Output stage of an instruction: kind, table parameters, where its records lie."""

    kind: Stage
    requant: Param
    table: Param | None = None
    fraction_bits: int = 0
    tail_low: int = 0
    tail_high: int = 0
    tail_low_is_input: int = 0
    tail_high_is_input: int = 0

    @staticmethod
    def of(stage: OutputStage, requant: Param, table: Param | None) -> StageSpec:
        """From the quantiser's parameters."""
        kind = {"pwl": Stage.PWL, "table": Stage.TABLE, "direct": Stage.DIRECT}[stage.kind]
        if kind != Stage.TABLE:
            return StageSpec(kind, requant)
        low, high = stage.tail_low, stage.tail_high
        return StageSpec(
            kind,
            requant,
            table,
            stage.fraction_bits,
            int(low.value),
            int(high.value),
            int(low.is_input),
            int(high.is_input),
        )

    def part(self, first: int, blocks: int) -> StageSpec:
        """The records of channel blocks first..first + blocks."""
        size = LANES * REQUANT_DTYPE.itemsize
        return replace(self, requant=self.requant.part(first * size, blocks * size, "requantisation records"))


@dataclass(frozen=True)
class ResidualSpec:
    """Residual stage of a convolution: the skip tensor, the records of the sum (operand a is the convolution's output), the sum's own stage."""

    skip: Tile
    operand: Param
    stage: StageSpec

    def part(self, first: int, blocks: int) -> ResidualSpec:
        """That of channel blocks first..first + blocks."""
        size = LANES * OPERAND_DTYPE.itemsize
        operand = self.operand.part(first * size, blocks * size, "operand records")
        return ResidualSpec(self.skip.channel_blocks(first, blocks), operand, self.stage.part(first, blocks))


class Int8Instructions:
    """Mixed into `Npu`."""

    def _emit(self, name: str, fields: Fields, reads: list[Footprint], writes: list[Footprint]) -> Instr:
        raise NotImplementedError

    def conv(
        self,
        x: Tile,
        y: Tile,
        window: Window,
        weight: Param,
        bias: Param,
        pad: Param,
        stage: StageSpec,
        residual: ResidualSpec | None = None,
    ) -> None:
        """Convolution of all of x's blocks to all of y's; with `residual`, y is the sum of its output and the skip tensor."""
        size = LANES * y.blocks * window.kernel_h * window.kernel_w * LANES * x.blocks
        require(weight.size == size, f"npu.conv: {size} bytes of weights expected, found {weight.size}")
        require(pad.size == LANES * x.blocks, f"npu.conv: {LANES * x.blocks} pad bytes expected, found {pad.size}")
        require(stage.kind != Stage.DIRECT, "npu.conv: the output stage is pwl or table, found direct")
        extra, reads = _residual(y, residual) if residual is not None else ({}, [])
        extra = {"blocks_in": x.blocks, "blocks_out": y.blocks, **extra}
        self._windowed("CONV", x, y, window, weight, bias, pad, stage, extra, reads)

    def depthwise(
        self, x: Tile, y: Tile, window: Window, weight: Param, bias: Param, pad: Param, stage: StageSpec
    ) -> None:
        """Convolution of every lane with itself only."""
        same_shape("npu.depthwise", x, y, cols=False)
        size = window.kernel_h * window.kernel_w * LANES * y.blocks
        require(weight.size == size, f"npu.depthwise: {size} bytes of weights expected, found {weight.size}")
        require(pad.size == LANES * x.blocks, f"npu.depthwise: {LANES * x.blocks} pad bytes expected, found {pad.size}")
        require(stage.kind != Stage.DIRECT, "npu.depthwise: the output stage is pwl or table, found direct")
        self._windowed("DEPTHWISE", x, y, window, weight, bias, pad, stage, {"blocks_out": y.blocks})

    def _windowed(
        self,
        name: str,
        x: Tile,
        y: Tile,
        window: Window,
        weight: Param,
        bias: Param,
        pad: Param,
        stage: StageSpec,
        extra: Fields,
        extra_reads: Sequence[Footprint] = (),
    ) -> None:
        require(
            bias.size == 4 * LANES * y.blocks,
            f"npu.{name.lower()}: {4 * LANES * y.blocks} bias bytes expected, found {bias.size}",
        )
        lanes_are(f"npu.{name.lower()}", Dtype.INT8, x, y)
        x, pad_top = needed_rows(x, y, window)
        stage_fields, stage_reads = _stage(name, stage, y)
        fields: Fields = {
            **stage_fields,
            **input_fields(x),
            **extra,
            **window_fields(window),
            "pad_top": pad_top,
            **output_fields(y),
            "weight_addr": weight.ref,
            "bias_addr": bias.ref,
            "pad_addr": pad.ref,
        }
        reads = [x.footprint, weight.footprint, bias.footprint, pad.footprint, *stage_reads, *extra_reads]
        self._emit(name, fields, reads, [y.footprint])

    def max_pool(self, x: Tile, y: Tile, window: Window) -> None:
        """Maximum over the window; border taps are -128."""
        lanes_are("npu.pool", Dtype.INT8, x, y)
        same_shape("npu.pool", x, y, cols=False)
        x, pad_top = needed_rows(x, y, window)
        fields: Fields = {
            "kind": PoolKind.MAX,
            **input_fields(x),
            "blocks_out": y.blocks,
            **window_fields(window),
            "pad_top": pad_top,
            **output_fields(y),
        }
        self._emit("POOL", fields, [x.footprint], [y.footprint])

    def average_pool(
        self,
        x: Tile,
        y: Tile,
        window: Window,
        multiplier: Param,
        requant: Param,
        operand: Param,
        shift: int,
        single: bool,
    ) -> None:
        """Average over the valid taps of the window."""
        lanes_are("npu.pool", Dtype.INT8, x, y)
        same_shape("npu.pool", x, y, cols=False)
        counts = 1 if single else window.kernel_h * window.kernel_w
        size = counts * 2 * LANES * y.blocks
        require(multiplier.size == size, f"npu.pool: {size} bytes of multipliers expected, found {multiplier.size}")
        require(
            requant.size == operand.size == 8 * LANES * y.blocks,
            f"npu.pool: {8 * LANES * y.blocks} record bytes expected",
        )
        x, pad_top = needed_rows(x, y, window)
        fields: Fields = {
            "kind": PoolKind.AVERAGE,
            **input_fields(x),
            "blocks_out": y.blocks,
            **window_fields(window),
            "pad_top": pad_top,
            **output_fields(y),
            "weight_addr": multiplier.ref,
            "requant_addr": requant.ref,
            "operand_addr": operand.ref,
            "shift": shift,
            "single": int(single),
        }
        self._emit(
            "POOL", fields, [x.footprint, multiplier.footprint, requant.footprint, operand.footprint], [y.footprint]
        )

    def eltwise(
        self,
        kind: EltwiseKind,
        a: Tile,
        b: Tile,
        y: Tile,
        operand: Param,
        stage: StageSpec,
        broadcast_lane: int | None = None,
    ) -> None:
        """Two operands. b may have one row, one column, and (`broadcast_lane`: its lane) one channel."""
        a = a.band(y.first_row, y.end_row)
        same_shape("npu.eltwise", a, y, rows=True)
        b, extra = second_operand(b, y, broadcast_lane)
        self._elementwise(kind, a, y, operand, stage, extra, [b.footprint])

    def affine(self, a: Tile, y: Tile, operand: Param, addend: Param, stage: StageSpec) -> None:
        """One operand: ma*(a-za) + K, then the stage."""
        a = a.band(y.first_row, y.end_row)
        same_shape("npu.affine", a, y, rows=True)
        require(
            addend.size == 4 * LANES * y.blocks,
            f"npu.affine: {4 * LANES * y.blocks} addend bytes expected, found {addend.size}",
        )
        self._elementwise(EltwiseKind.AFFINE, a, y, operand, stage, {"bias_addr": addend.ref}, [addend.footprint])

    def _elementwise(
        self,
        kind: EltwiseKind,
        a: Tile,
        y: Tile,
        operand: Param,
        stage: StageSpec,
        extra: Fields,
        reads: list[Footprint],
    ) -> None:
        lanes_are("npu.eltwise", Dtype.INT8, a, y)
        size = OPERAND_DTYPE.itemsize * LANES * y.blocks
        require(operand.size == size, f"npu.eltwise: {size} bytes of operand records expected, found {operand.size}")
        stage_fields, stage_reads = _stage("ELTWISE", stage, y)
        inputs = {k: v for k, v in input_fields(a).items() if k not in ("in_h", "in_w")}
        fields: Fields = {
            **stage_fields,
            "kind": kind,
            **inputs,
            "blocks_out": y.blocks,
            **output_fields(y),
            "operand_addr": operand.ref,
            **extra,
        }
        self._emit("ELTWISE", fields, [a.footprint, operand.footprint, *reads, *stage_reads], [y.footprint])

    def resize(self, x: Tile, y: Tile, row_table: Param, col_table: Param) -> None:
        """Interpolation; the rows of `row_table` count from x's first row held."""
        lanes_are("npu.resize", Dtype.INT8, x, y)
        fields = resize_fields("npu.resize", x, y, row_table, col_table, RESIZE_DTYPE.itemsize)
        self._emit("RESIZE", fields, [x.footprint, row_table.footprint, col_table.footprint], [y.footprint])

    def copy(self, x: Tile, y: Tile) -> None:
        """Bytes of x's blocks to y."""
        x = x.band(y.first_row, y.end_row)
        same_shape("npu.copy", x, y, rows=True)
        inputs = {k: v for k, v in input_fields(x).items() if k not in ("in_h", "in_w")}
        blocks = y.blocks * y.dtype.bytes  # COPY counts words of 16 bytes
        self._emit("COPY", {**inputs, "blocks_out": blocks, **output_fields(y)}, [x.footprint], [y.footprint])


def _residual(y: Tile, residual: ResidualSpec) -> tuple[Fields, list[Footprint]]:
    """Fields and reads of a residual stage behind a convolution to y."""
    skip, stage, lanes = residual.skip.band(y.first_row, y.end_row), residual.stage, LANES * y.blocks
    require(skip.buffer.space == SRAM, f"npu.conv: skip tensor {skip.buffer.name} is not in SRAM")
    same_shape("npu.conv: skip tensor", skip, y, rows=True)
    require(stage.kind != Stage.TABLE, "npu.conv: the stage of the sum is pwl or direct, found table")
    for what, param, size in (
        ("operand", residual.operand, OPERAND_DTYPE.itemsize * lanes),
        ("requantisation", stage.requant, REQUANT_DTYPE.itemsize * lanes),
    ):
        require(param.size == size, f"npu.conv: {size} bytes of {what} records of the sum expected, found {param.size}")
    fields: Fields = {
        "residual": 1,
        "sum_stage": stage.kind,
        "sum_requant_addr": stage.requant.ref,
        "operand_addr": residual.operand.ref,
        "b_addr": skip.ref,
        "b_row_stride": skip.row_stride,
        "b_pixel_stride": skip.pixel_stride,
    }
    return fields, [skip.footprint, residual.operand.footprint, stage.requant.footprint]


def _stage(what: str, stage: StageSpec, y: Tile) -> tuple[Fields, list[Footprint]]:
    size = REQUANT_DTYPE.itemsize * LANES * y.blocks
    require(
        stage.requant.size == size,
        f"{what}: {size} bytes of requantisation records expected, found {stage.requant.size}",
    )
    fields: Fields = {"stage": stage.kind, "requant_addr": stage.requant.ref}
    reads = [stage.requant.footprint]
    if stage.kind == Stage.TABLE:
        require(
            stage.table is not None and stage.table.size == TABLE_BYTES,
            f"{what}: a table of {TABLE_BYTES} bytes is expected",
        )
        assert stage.table is not None
        fields |= {"table_addr": stage.table.ref, "fraction_bits": stage.fraction_bits}
        fields |= {k: getattr(stage, k) for k in ("tail_low", "tail_high", "tail_low_is_input", "tail_high_is_input")}
        reads.append(stage.table.footprint)
    return fields, reads
