"""The typed builder behind every operator's program: `Npu.conv(...)` and its kin check their tiles and append one instruction each.

An instruction here has symbolic addresses (`Ref`) and the bytes it reads and writes; the memory plan and the code generator make words of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from npuforge.compile.ir.quantization import OutputStage
from npuforge.hw_kernels.arch import BLOCK_BYTES, LANES
from npuforge.hw_kernels.dsl.fields import (
    input_fields,
    lanes_are,
    needed_rows,
    output_fields,
    require,
    same_shape,
    second_operand,
    window_fields,
)
from npuforge.hw_kernels.dsl.instr import Instr
from npuforge.hw_kernels.dsl.npu_bf16 import Bf16Instructions
from npuforge.hw_kernels.dsl.tile import BIN, POOL, SRAM, Buffer, Dtype, Footprint, Image, Param, Ref, Tile, Window
from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE, RESIZE_DTYPE
from npuforge.hw_kernels.isa.instructions import EltwiseKind, PoolKind, Region, Stage

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


@dataclass
class Npu(Bf16Instructions):
    """Collects the instructions of a program; `layer` is stamped on each."""

    layer: int = -1
    instructions: list[Instr] = field(default_factory=list)

    def _emit(self, name: str, fields: dict[str, int | Ref], reads: list[Footprint], writes: list[Footprint]) -> Instr:
        instr = Instr(
            name, {k: v if isinstance(v, Ref) else int(v) for k, v in fields.items()}, reads, writes, self.layer
        )
        self.instructions.append(instr)
        return instr

    def temporary(self, like: Tile) -> Tile:
        """A tile of its own in SRAM, as large as `like`, for values inside a program; the memory plan gives it its place while it is used."""
        pixel = like.block_bytes * like.blocks
        buffer = Buffer(f"temporary{len(self.instructions)}", like.rows * like.cols * pixel, SRAM)
        return replace(like, buffer=buffer, offset=0, row_stride=like.cols * pixel, pixel_stride=pixel)

    # ---- transfers -------------------------------------------------------------------------------------------------
    def load_bytes(self, source: Ref, target: Buffer, size: int, offset: int = 0) -> None:
        """`size` bytes (a multiple of 16) of the `.bin` or the pool to `target`."""
        require(
            size > 0 and size % BLOCK_BYTES == 0, f"npu.load: {size} bytes is no positive multiple of {BLOCK_BYTES}"
        )
        require(target.space == SRAM, f"npu.load: target {target.name} is not in SRAM")
        require(
            offset + size <= target.size,
            f"npu.load: {size} bytes at {offset} do not fit {target.name} ({target.size} bytes)",
        )
        region = Region.BIN if source.buffer.space == BIN else Region.POOL
        fields: dict[str, int | Ref] = {
            "region": region,
            "ddr_addr": source,
            "rows": 1,
            "cols": 1,
            "chunk": size,
            "sram_addr": Ref(target, offset),
        }
        reads = [Footprint(source.buffer, source.offset, source.offset + size)]
        self._emit("LOAD", fields, reads, [Footprint(target, offset, offset + size)])

    def load(self, source: Tile, target: Tile) -> None:
        """A band from the pool to SRAM."""
        require(source.buffer.space == POOL, f"npu.load: source {source.buffer.name} is not in the pool")
        require(target.buffer.space == SRAM, f"npu.load: target {target.buffer.name} is not in SRAM")
        self._transfer("LOAD", source, target, source, target)

    def store(self, source: Tile, target: Tile) -> None:
        """A band from SRAM to the pool."""
        require(source.buffer.space == SRAM, f"npu.store: source {source.buffer.name} is not in SRAM")
        require(target.buffer.space == POOL, f"npu.store: target {target.buffer.name} is not in the pool")
        self._transfer("STORE", source, target, target, source)

    def _transfer(self, name: str, source: Tile, target: Tile, ddr: Tile, sram: Tile) -> None:
        what = f"npu.{name.lower()} {source.buffer.name} -> {target.buffer.name}"
        same_shape(what, source, target, rows=True)
        rows, cols, chunk = source.rows, source.cols, source.blocks * source.block_bytes
        ddr_row, ddr_col, sram_row, sram_col = ddr.row_stride, ddr.pixel_stride, sram.row_stride, sram.pixel_stride
        if ddr_col == sram_col == chunk:  # pixels touch: whole rows are one chunk
            cols, chunk, ddr_col, sram_col = 1, cols * chunk, 0, 0
            if ddr_row == sram_row == chunk or rows == 1:
                rows, chunk, ddr_row, sram_row = 1, rows * chunk, 0, 0
        fields: dict[str, int | Ref] = {
            "region": Region.POOL,
            "ddr_addr": ddr.ref,
            "ddr_row_stride": ddr_row,
            "ddr_col_stride": ddr_col,
            "rows": rows,
            "cols": cols,
            "chunk": chunk,
            "sram_addr": sram.ref,
            "sram_row_stride": sram_row,
            "sram_col_stride": sram_col,
        }
        self._emit(name, fields, [source.footprint], [target.footprint])

    def load_fold(self, image: Image, y: Tile, window: Window, pad_bytes: np.ndarray) -> None:
        """Window taps of a tight image folded into lanes: lane = (ky, kx, channel)."""
        if image.dtype == Dtype.BF16:
            self._load_fold_bf16(image, y, window)
            return
        lanes_are("npu.load_fold", Dtype.INT8, y)
        lanes = window.kernel_h * window.kernel_w * image.channels
        require(image.buffer.space == POOL, f"npu.load_fold: image {image.buffer.name} is not in the pool")
        require(1 <= image.channels <= 4, f"npu.load_fold: 1..4 image channels expected, found {image.channels}")
        require(window.dilation_h == window.dilation_w == 1, "npu.load_fold: dilation must be 1")
        require(lanes <= y.blocks * LANES, f"npu.load_fold: {lanes} folded lanes do not fit {y.blocks} blocks")
        low = y.first_row * window.stride_h - window.pad_top
        high = (y.end_row - 1) * window.stride_h - window.pad_top + window.kernel_h
        packed = sum((int(v) & 0xFF) << (8 * c) for c, v in enumerate(pad_bytes))
        fields: dict[str, int | Ref] = {
            "region": Region.POOL,
            "ddr_addr": image.ref,
            "ddr_row_stride": image.row_stride,
            "in_h": image.height,
            "in_w": image.width,
            "channels": image.channels,
            "blocks_out": y.blocks,
            **window_fields(window),
            "pad_top": window.pad_top - y.first_row * window.stride_h,
            **output_fields(y),
            "pad_bytes": packed,
        }
        self._emit("LOAD_FOLD", fields, [image.rows_footprint(low, high)], [y.footprint])

    # ---- compute ---------------------------------------------------------------------------------------------------
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
        extra: dict[str, int | Ref],
        extra_reads: Sequence[Footprint] = (),
    ) -> None:
        require(
            bias.size == 4 * LANES * y.blocks,
            f"npu.{name.lower()}: {4 * LANES * y.blocks} bias bytes expected, found {bias.size}",
        )
        lanes_are(f"npu.{name.lower()}", Dtype.INT8, x, y)
        x, pad_top = needed_rows(x, y, window)
        stage_fields, stage_reads = _stage(name, stage, y)
        fields: dict[str, int | Ref] = {
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
        fields: dict[str, int | Ref] = {
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
        fields: dict[str, int | Ref] = {
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
        extra: dict[str, int | Ref],
        reads: list[Footprint],
    ) -> None:
        lanes_are("npu.eltwise", Dtype.INT8, a, y)
        size = OPERAND_DTYPE.itemsize * LANES * y.blocks
        require(operand.size == size, f"npu.eltwise: {size} bytes of operand records expected, found {operand.size}")
        stage_fields, stage_reads = _stage("ELTWISE", stage, y)
        inputs = {k: v for k, v in input_fields(a).items() if k not in ("in_h", "in_w")}
        fields: dict[str, int | Ref] = {
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
        same_shape("npu.resize", x, y, cols=False)
        for table, count, axis in ((row_table, y.rows, "row"), (col_table, y.cols, "column")):
            size = count * RESIZE_DTYPE.itemsize
            require(table.size == size, f"npu.resize: {size} bytes of {axis} records expected, found {table.size}")
        fields: dict[str, int | Ref] = {
            **input_fields(x),
            "blocks_out": y.blocks,
            **output_fields(y),
            "row_table_addr": row_table.ref,
            "col_table_addr": col_table.ref,
        }
        self._emit("RESIZE", fields, [x.footprint, row_table.footprint, col_table.footprint], [y.footprint])

    def copy(self, x: Tile, y: Tile) -> None:
        """Bytes of x's blocks to y."""
        x = x.band(y.first_row, y.end_row)
        same_shape("npu.copy", x, y, rows=True)
        inputs = {k: v for k, v in input_fields(x).items() if k not in ("in_h", "in_w")}
        blocks = y.blocks * y.dtype.bytes  # COPY counts words of 16 bytes
        self._emit("COPY", {**inputs, "blocks_out": blocks, **output_fields(y)}, [x.footprint], [y.footprint])


def _residual(y: Tile, residual: ResidualSpec) -> tuple[dict[str, int | Ref], list[Footprint]]:
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
    fields: dict[str, int | Ref] = {
        "residual": 1,
        "sum_stage": stage.kind,
        "sum_requant_addr": stage.requant.ref,
        "operand_addr": residual.operand.ref,
        "b_addr": skip.ref,
        "b_row_stride": skip.row_stride,
        "b_pixel_stride": skip.pixel_stride,
    }
    return fields, [skip.footprint, residual.operand.footprint, stage.requant.footprint]


def _stage(what: str, stage: StageSpec, y: Tile) -> tuple[dict[str, int | Ref], list[Footprint]]:
    size = REQUANT_DTYPE.itemsize * LANES * y.blocks
    require(
        stage.requant.size == size,
        f"{what}: {size} bytes of requantisation records expected, found {stage.requant.size}",
    )
    fields: dict[str, int | Ref] = {"stage": stage.kind, "requant_addr": stage.requant.ref}
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
