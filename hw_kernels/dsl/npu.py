"""The typed builder behind every operator's program: `Npu.conv(...)` and its kin check their tiles and append one instruction each.

An instruction here has symbolic addresses (`Ref`) and the bytes it reads and writes; the memory plan and the code generator make words of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from npuforge.compile.ir.errors import InstructionError
from npuforge.compile.ir.quantization import OutputStage
from npuforge.hw_kernels.arch import BLOCK_BYTES, LANES
from npuforge.hw_kernels.dsl.tile import BIN, POOL, SRAM, Buffer, Footprint, Image, Param, Ref, Tile, Window
from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE, RESIZE_DTYPE
from npuforge.hw_kernels.isa.instructions import BY_NAME, EltwiseKind, Engine, PoolKind, Region, Stage

TABLE_BYTES = 2 * 257


@dataclass(eq=False)
class Instr:
    """One instruction with symbolic addresses."""

    name: str
    fields: dict[str, int | Ref]
    reads: list[Footprint]
    writes: list[Footprint]
    layer: int = -1

    @property
    def engine(self) -> Engine:
        """The queue it runs in."""
        return BY_NAME[self.name].engine


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


@dataclass
class Npu:
    """Collects the instructions of a program; `layer` is stamped on each."""

    layer: int = -1
    instructions: list[Instr] = field(default_factory=list)

    def _emit(self, name: str, fields: dict[str, int | Ref], reads: list[Footprint], writes: list[Footprint]) -> Instr:
        instr = Instr(
            name, {k: v if isinstance(v, Ref) else int(v) for k, v in fields.items()}, reads, writes, self.layer
        )
        self.instructions.append(instr)
        return instr

    # ---- transfers -------------------------------------------------------------------------------------------------
    def load_bytes(self, source: Ref, target: Buffer, size: int, offset: int = 0) -> None:
        """`size` bytes (a multiple of 16) of the `.bin` or the pool to `target`."""
        _require(
            size > 0 and size % BLOCK_BYTES == 0, f"npu.load: {size} bytes is no positive multiple of {BLOCK_BYTES}"
        )
        _require(target.space == SRAM, f"npu.load: target {target.name} is not in SRAM")
        _require(
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
        _require(source.buffer.space == POOL, f"npu.load: source {source.buffer.name} is not in the pool")
        _require(target.buffer.space == SRAM, f"npu.load: target {target.buffer.name} is not in SRAM")
        self._transfer("LOAD", source, target, source, target)

    def store(self, source: Tile, target: Tile) -> None:
        """A band from SRAM to the pool."""
        _require(source.buffer.space == SRAM, f"npu.store: source {source.buffer.name} is not in SRAM")
        _require(target.buffer.space == POOL, f"npu.store: target {target.buffer.name} is not in the pool")
        self._transfer("STORE", source, target, target, source)

    def _transfer(self, name: str, source: Tile, target: Tile, ddr: Tile, sram: Tile) -> None:
        what = f"npu.{name.lower()} {source.buffer.name} -> {target.buffer.name}"
        _same(what, source, target, rows=True)
        rows, cols, chunk = source.rows, source.cols, source.blocks * BLOCK_BYTES
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
        lanes = window.kernel_h * window.kernel_w * image.channels
        _require(image.buffer.space == POOL, f"npu.load_fold: image {image.buffer.name} is not in the pool")
        _require(1 <= image.channels <= 4, f"npu.load_fold: 1..4 image channels expected, found {image.channels}")
        _require(window.dilation_h == window.dilation_w == 1, "npu.load_fold: dilation must be 1")
        _require(lanes <= y.blocks * LANES, f"npu.load_fold: {lanes} folded lanes do not fit {y.blocks} blocks")
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
            **_window(window),
            "pad_top": window.pad_top - y.first_row * window.stride_h,
            **_output(y),
            "pad_bytes": packed,
        }
        self._emit("LOAD_FOLD", fields, [image.rows_footprint(low, high)], [y.footprint])

    # ---- compute ---------------------------------------------------------------------------------------------------
    def conv(self, x: Tile, y: Tile, window: Window, weight: Param, bias: Param, pad: Param, stage: StageSpec) -> None:
        """Convolution of all of x's blocks to all of y's."""
        size = LANES * y.blocks * window.kernel_h * window.kernel_w * LANES * x.blocks
        _require(weight.size == size, f"npu.conv: {size} bytes of weights expected, found {weight.size}")
        _require(pad.size == LANES * x.blocks, f"npu.conv: {LANES * x.blocks} pad bytes expected, found {pad.size}")
        _require(stage.kind != Stage.DIRECT, "npu.conv: the output stage is pwl or table, found direct")
        self._windowed("CONV", x, y, window, weight, bias, pad, stage, {"blocks_in": x.blocks, "blocks_out": y.blocks})

    def depthwise(
        self, x: Tile, y: Tile, window: Window, weight: Param, bias: Param, pad: Param, stage: StageSpec
    ) -> None:
        """Convolution of every lane with itself only."""
        _same("npu.depthwise", x, y, cols=False)
        size = window.kernel_h * window.kernel_w * LANES * y.blocks
        _require(weight.size == size, f"npu.depthwise: {size} bytes of weights expected, found {weight.size}")
        _require(
            pad.size == LANES * x.blocks, f"npu.depthwise: {LANES * x.blocks} pad bytes expected, found {pad.size}"
        )
        _require(stage.kind != Stage.DIRECT, "npu.depthwise: the output stage is pwl or table, found direct")
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
        blocks: dict[str, int | Ref],
    ) -> None:
        _require(
            bias.size == 4 * LANES * y.blocks,
            f"npu.{name.lower()}: {4 * LANES * y.blocks} bias bytes expected, found {bias.size}",
        )
        x, pad_top = _needed(x, y, window)
        stage_fields, stage_reads = _stage(name, stage, y)
        fields: dict[str, int | Ref] = {
            **stage_fields,
            **_input(x),
            **blocks,
            **_window(window),
            "pad_top": pad_top,
            **_output(y),
            "weight_addr": weight.ref,
            "bias_addr": bias.ref,
            "pad_addr": pad.ref,
        }
        reads = [x.footprint, weight.footprint, bias.footprint, pad.footprint, *stage_reads]
        self._emit(name, fields, reads, [y.footprint])

    def max_pool(self, x: Tile, y: Tile, window: Window) -> None:
        """Maximum over the window; border taps are -128."""
        _same("npu.pool", x, y, cols=False)
        x, pad_top = _needed(x, y, window)
        fields: dict[str, int | Ref] = {
            "kind": PoolKind.MAX,
            **_input(x),
            "blocks_out": y.blocks,
            **_window(window),
            "pad_top": pad_top,
            **_output(y),
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
        _same("npu.pool", x, y, cols=False)
        counts = 1 if single else window.kernel_h * window.kernel_w
        size = counts * 2 * LANES * y.blocks
        _require(multiplier.size == size, f"npu.pool: {size} bytes of multipliers expected, found {multiplier.size}")
        _require(
            requant.size == operand.size == 8 * LANES * y.blocks,
            f"npu.pool: {8 * LANES * y.blocks} record bytes expected",
        )
        x, pad_top = _needed(x, y, window)
        fields: dict[str, int | Ref] = {
            "kind": PoolKind.AVERAGE,
            **_input(x),
            "blocks_out": y.blocks,
            **_window(window),
            "pad_top": pad_top,
            **_output(y),
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
        _same("npu.eltwise", a, y, rows=True)
        row_stride = 0 if b.height == 1 and y.height != 1 else b.row_stride
        pixel_stride = 0 if b.cols == 1 and y.cols != 1 else b.pixel_stride
        _require(
            b.cols in (1, y.cols) and b.height in (1, y.height),
            f"npu.eltwise: b is {b.height}x{b.cols}, y {y.height}x{y.cols}",
        )
        b = b.band(0, 1) if b.height == 1 else b.band(y.first_row, y.end_row)
        _require(
            broadcast_lane is not None or b.blocks == y.blocks,
            f"npu.eltwise: b has {b.blocks} blocks, y has {y.blocks}",
        )
        b_ref = Ref(b.buffer, b.offset + (broadcast_lane or 0))
        extra: dict[str, int | Ref] = {
            "broadcast_b": int(broadcast_lane is not None),
            "b_addr": b_ref,
            "b_row_stride": row_stride,
            "b_pixel_stride": pixel_stride,
        }
        self._elementwise(kind, a, y, operand, stage, extra, [b.footprint])

    def affine(self, a: Tile, y: Tile, operand: Param, addend: Param, stage: StageSpec) -> None:
        """One operand: ma*(a-za) + K, then the stage."""
        a = a.band(y.first_row, y.end_row)
        _same("npu.affine", a, y, rows=True)
        _require(
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
        size = OPERAND_DTYPE.itemsize * LANES * y.blocks
        _require(operand.size == size, f"npu.eltwise: {size} bytes of operand records expected, found {operand.size}")
        stage_fields, stage_reads = _stage("ELTWISE", stage, y)
        inputs = {k: v for k, v in _input(a).items() if k not in ("in_h", "in_w")}
        fields: dict[str, int | Ref] = {
            **stage_fields,
            "kind": kind,
            **inputs,
            "blocks_out": y.blocks,
            **_output(y),
            "operand_addr": operand.ref,
            **extra,
        }
        self._emit("ELTWISE", fields, [a.footprint, operand.footprint, *reads, *stage_reads], [y.footprint])

    def resize(self, x: Tile, y: Tile, row_table: Param, col_table: Param) -> None:
        """Interpolation; the rows of `row_table` count from x's first row held."""
        _same("npu.resize", x, y, cols=False)
        for table, count, axis in ((row_table, y.rows, "row"), (col_table, y.cols, "column")):
            size = count * RESIZE_DTYPE.itemsize
            _require(table.size == size, f"npu.resize: {size} bytes of {axis} records expected, found {table.size}")
        fields: dict[str, int | Ref] = {
            **_input(x),
            "blocks_out": y.blocks,
            **_output(y),
            "row_table_addr": row_table.ref,
            "col_table_addr": col_table.ref,
        }
        self._emit("RESIZE", fields, [x.footprint, row_table.footprint, col_table.footprint], [y.footprint])

    def copy(self, x: Tile, y: Tile) -> None:
        """Bytes of x's blocks to y."""
        x = x.band(y.first_row, y.end_row)
        _same("npu.copy", x, y, rows=True)
        inputs = {k: v for k, v in _input(x).items() if k not in ("in_h", "in_w")}
        self._emit("COPY", {**inputs, "blocks_out": y.blocks, **_output(y)}, [x.footprint], [y.footprint])


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InstructionError(message)


def _same(what: str, x: Tile, y: Tile, cols: bool = True, rows: bool = False) -> None:
    _require(x.blocks == y.blocks, f"{what}: {x.blocks} channel blocks in, {y.blocks} out")
    _require(not cols or x.cols == y.cols, f"{what}: {x.cols} columns in, {y.cols} out")
    _require(not rows or x.rows == y.rows, f"{what}: {x.rows} rows in, {y.rows} out")


def _needed(x: Tile, y: Tile, window: Window) -> tuple[Tile, int]:
    """The rows of x that y's rows need, and pad_top counted from them."""
    low, high = window.rows(y.first_row, y.end_row, x.height)
    return x.band(low, high), window.pad_top + low - y.first_row * window.stride_h


def _input(x: Tile) -> dict[str, int | Ref]:
    _require(x.buffer.space == SRAM, f"input {x.buffer.name} is not in SRAM")
    return {
        "in_addr": x.ref,
        "in_row_stride": x.row_stride,
        "in_pixel_stride": x.pixel_stride,
        "in_h": x.rows,
        "in_w": x.cols,
    }


def _output(y: Tile) -> dict[str, int | Ref]:
    _require(y.buffer.space == SRAM, f"output {y.buffer.name} is not in SRAM")
    return {
        "out_h": y.rows,
        "out_w": y.cols,
        "out_addr": y.ref,
        "out_row_stride": y.row_stride,
        "out_pixel_stride": y.pixel_stride,
    }


def _window(window: Window) -> dict[str, int | Ref]:
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w", "pad_left")
    return {name: getattr(window, name) for name in names}


def _stage(what: str, stage: StageSpec, y: Tile) -> tuple[dict[str, int | Ref], list[Footprint]]:
    size = REQUANT_DTYPE.itemsize * LANES * y.blocks
    _require(
        stage.requant.size == size,
        f"{what}: {size} bytes of requantisation records expected, found {stage.requant.size}",
    )
    fields: dict[str, int | Ref] = {"stage": stage.kind, "requant_addr": stage.requant.ref}
    reads = [stage.requant.footprint]
    if stage.kind == Stage.TABLE:
        _require(
            stage.table is not None and stage.table.size == TABLE_BYTES,
            f"{what}: a table of {TABLE_BYTES} bytes is expected",
        )
        assert stage.table is not None
        fields |= {"table_addr": stage.table.ref, "fraction_bits": stage.fraction_bits}
        fields |= {k: getattr(stage, k) for k in ("tail_low", "tail_high", "tail_low_is_input", "tail_high_is_input")}
        reads.append(stage.table.footprint)
    return fields, reads
