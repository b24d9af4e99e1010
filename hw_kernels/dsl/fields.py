"""Fields that instructions share, made from checked tiles: maps, windows, the rows that a band needs."""

from __future__ import annotations

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.dsl.tile import SRAM, Dtype, Param, Ref, Tile, Window

Fields = dict[str, int | Ref]


def require(condition: bool, message: str) -> None:
    """InstructionError unless the condition holds."""
    if not condition:
        raise InstructionError(message)


def same_shape(what: str, x: Tile, y: Tile, cols: bool = True, rows: bool = False) -> None:
    """Equal element type, blocks, and if asked columns and rows."""
    require(x.dtype == y.dtype, f"{what}: {x.dtype.value} lanes in, {y.dtype.value} out")
    require(x.blocks == y.blocks, f"{what}: {x.blocks} channel blocks in, {y.blocks} out")
    require(not cols or x.cols == y.cols, f"{what}: {x.cols} columns in, {y.cols} out")
    require(not rows or x.rows == y.rows, f"{what}: {x.rows} rows in, {y.rows} out")


def needed_rows(x: Tile, y: Tile, window: Window) -> tuple[Tile, int]:
    """The rows of x that y's rows need, and pad_top counted from them."""
    low, high = window.rows(y.first_row, y.end_row, x.height)
    return x.band(low, high), window.pad_top + low - y.first_row * window.stride_h


def input_fields(x: Tile) -> Fields:
    """INPUT and INPUT_SIZE fields of a tile in SRAM."""
    require(x.buffer.space == SRAM, f"input {x.buffer.name} is not in SRAM")
    return {
        "in_addr": x.ref,
        "in_row_stride": x.row_stride,
        "in_pixel_stride": x.pixel_stride,
        "in_h": x.rows,
        "in_w": x.cols,
    }


def output_fields(y: Tile) -> Fields:
    """OUTPUT fields of a tile in SRAM."""
    require(y.buffer.space == SRAM, f"output {y.buffer.name} is not in SRAM")
    return {
        "out_h": y.rows,
        "out_w": y.cols,
        "out_addr": y.ref,
        "out_row_stride": y.row_stride,
        "out_pixel_stride": y.pixel_stride,
    }


def window_fields(window: Window) -> Fields:
    """WINDOW fields without pad_top, which depends on the rows."""
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w", "pad_left")
    return {name: getattr(window, name) for name in names}


def lanes_are(what: str, dtype: Dtype, *tiles: Tile) -> None:
    """InstructionError unless all tiles hold lanes of `dtype`."""
    for tile in tiles:
        require(
            tile.dtype == dtype, f"{what}: {dtype.value} lanes expected in {tile.buffer.name}, found {tile.dtype.value}"
        )


def second_operand(b: Tile, y: Tile, broadcast_lane: int | None) -> tuple[Tile, Fields]:
    """The rows of operand b that the output band needs, and its fields; b may have one row, one column, one channel (`broadcast_lane`)."""
    row_stride = 0 if b.height == 1 and y.height != 1 else b.row_stride
    pixel_stride = 0 if b.cols == 1 and y.cols != 1 else b.pixel_stride
    require(
        b.cols in (1, y.cols) and b.height in (1, y.height),
        f"npu.eltwise: b is {b.height}x{b.cols}, y {y.height}x{y.cols}",
    )
    b = b.band(0, 1) if b.height == 1 else b.band(y.first_row, y.end_row)
    require(
        broadcast_lane is not None or b.blocks == y.blocks,
        f"npu.eltwise: b has {b.blocks} blocks, y has {y.blocks}",
    )
    b_ref = Ref(b.buffer, b.offset + b.dtype.bytes * (broadcast_lane or 0))
    extra: Fields = {
        "broadcast_b": int(broadcast_lane is not None),
        "b_addr": b_ref,
        "b_row_stride": row_stride,
        "b_pixel_stride": pixel_stride,
    }
    return b, extra


def resize_fields(what: str, x: Tile, y: Tile, row_table: Param, col_table: Param, record_bytes: int) -> Fields:
    """Fields of an interpolation; the rows of `row_table` count from x's first row held."""
    same_shape(what, x, y, cols=False)
    for table, count, axis in ((row_table, y.rows, "row"), (col_table, y.cols, "column")):
        size = count * record_bytes
        require(table.size == size, f"{what}: {size} bytes of {axis} records expected, found {table.size}")
    return {
        **input_fields(x),
        "blocks_out": y.blocks,
        **output_fields(y),
        "row_table_addr": row_table.ref,
        "col_table_addr": col_table.ref,
    }
