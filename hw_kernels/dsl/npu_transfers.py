"""The transfers of the builder between the `.bin`, the pool and SRAM: `Npu.load(...)`, `Npu.store(...)`, `Npu.load_fold(...)`."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.arch import BLOCK_BYTES, LANES
from npuforge.hw_kernels.dsl.fields import Fields, lanes_are, output_fields, require, same_shape, window_fields
from npuforge.hw_kernels.dsl.instr import Instr
from npuforge.hw_kernels.dsl.tile import BIN, POOL, SRAM, Buffer, Dtype, Footprint, Image, Ref, Tile, Window
from npuforge.hw_kernels.isa.instructions import Region


class Transfers:
    """Mixed into `Npu`."""

    def _emit(self, name: str, fields: Fields, reads: list[Footprint], writes: list[Footprint]) -> Instr:
        raise NotImplementedError

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
        fields: Fields = {
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
        fields: Fields = {
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
        fields: Fields = {
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

    def _load_fold_bf16(self, image: Image, y: Tile, window: Window) -> None:
        """Window taps of a tight bf16 image folded into lanes: lane = (ky, kx, channel); the border is 0."""
        lanes = window.kernel_h * window.kernel_w * image.channels
        lanes_are("npu.load_fold", Dtype.BF16, y)
        require(image.buffer.space == POOL, f"npu.load_fold: image {image.buffer.name} is not in the pool")
        require(1 <= image.channels <= 4, f"npu.load_fold: 1..4 image channels expected, found {image.channels}")
        require(window.dilation_h == window.dilation_w == 1, "npu.load_fold: dilation must be 1")
        require(lanes <= y.blocks * LANES, f"npu.load_fold: {lanes} folded lanes do not fit {y.blocks} blocks")
        low = y.first_row * window.stride_h - window.pad_top
        high = (y.end_row - 1) * window.stride_h - window.pad_top + window.kernel_h
        fields: Fields = {
            "region": 1,
            "ddr_addr": image.ref,
            "ddr_row_stride": image.row_stride,
            "in_h": image.height,
            "in_w": image.width,
            "channels": image.channels,
            "blocks_out": y.blocks,
            **window_fields(window),
            "pad_top": window.pad_top - y.first_row * window.stride_h,
            **output_fields(y),
        }
        self._emit("LOAD_FOLD_BF16", fields, [image.rows_footprint(low, high)], [y.footprint])
