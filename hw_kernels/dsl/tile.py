"""What DSL programs work on: buffers without an address yet, row bands of feature maps in them (`Tile`), parameter ranges (`Param`), footprints.

Addresses are symbolic (`Ref`: buffer and offset) until the memory plan is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.arch import LANES

SRAM, POOL, BIN = "sram", "pool", "bin"


class Dtype(Enum):
    """Element type of a tile: int8 and bf16 lie in memory; int32 is the accumulator inside an int8 instruction, int16 the argument and the result of
    its table."""

    INT8 = "int8"
    BF16 = "bf16"
    INT16 = "int16"
    INT32 = "int32"

    @property
    def bytes(self) -> int:
        """Bytes of a lane."""
        return {"int8": 1, "bf16": 2, "int16": 2, "int32": 4}[self.value]

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of 16 lanes."""
        return LANES * self.bytes

    @property
    def numpy(self) -> type[np.generic]:
        """How numpy holds it: bf16 as bit patterns."""
        types: dict[str, type[np.generic]] = {"int8": np.int8, "bf16": np.uint16, "int16": np.int16, "int32": np.int32}
        return types[self.value]


@dataclass(eq=False)
class Buffer:
    """A range of bytes in one space; where it lies is decided by the memory plan. Compared by identity."""

    name: str
    size: int
    space: str


@dataclass(frozen=True)
class Ref:
    """Symbolic address."""

    buffer: Buffer
    offset: int = 0


@dataclass(frozen=True)
class Footprint:
    """Bytes [low, high) of a buffer that an instruction touches. If `period` is not 0, only those whose offset modulo `period` lies in
    [phase, phase + width): a view into wider pixels."""

    buffer: Buffer
    low: int
    high: int
    period: int = 0
    phase: int = 0
    width: int = 0

    def touches(self, other: Footprint) -> bool:
        """Do both share a byte? May say yes wrongly (different periods), never no wrongly."""
        if self.buffer is not other.buffer or self.low >= other.high or other.low >= self.high:
            return False
        if self.period and self.period == other.period:
            return self.phase < other.phase + other.width and other.phase < self.phase + self.width
        return True


@dataclass(frozen=True)
class Param:
    """A parameter array in SRAM."""

    buffer: Buffer
    offset: int
    size: int

    def part(self, offset: int, size: int, what: str) -> Param:
        """Bytes [offset, offset + size) of it."""
        if offset < 0 or offset + size > self.size:
            raise InstructionError(
                f"{what}: bytes {offset}..{offset + size} of a parameter array of {self.size} bytes in {self.buffer.name}"
            )
        return Param(self.buffer, self.offset + offset, size)

    @property
    def ref(self) -> Ref:
        """Its address."""
        return Ref(self.buffer, self.offset)

    @property
    def footprint(self) -> Footprint:
        """Its bytes."""
        return Footprint(self.buffer, self.offset, self.offset + self.size)


@dataclass(frozen=True)
class LaneMap:
    """Where the channels of a feature map lie: lane of every logical channel, counted from the first of `blocks` blocks of 16 lanes."""

    lanes: np.ndarray
    blocks: int

    @staticmethod
    def identity(channels: int) -> LaneMap:
        """Channel c in lane c."""
        return LaneMap(np.arange(channels), -(-channels // LANES))

    def same(self, other: LaneMap) -> bool:
        """Equal maps?"""
        return self.blocks == other.blocks and np.array_equal(self.lanes, other.lanes)

    def expand(self, values: np.ndarray, axis: int = 0, fill: int = 0) -> np.ndarray:
        """Per-channel values along `axis` -> per lane; lanes without a channel get `fill`."""
        values = np.asarray(values)
        shape = list(values.shape)
        shape[axis] = self.blocks * LANES
        out = np.full(shape, fill, values.dtype)
        index: list[slice | np.ndarray] = [slice(None)] * values.ndim
        index[axis] = self.lanes
        out[tuple(index)] = values
        return out


@dataclass(frozen=True)
class Tile:
    """Rows `first_row` .. `first_row + rows` of a feature map of `height` rows: `cols` pixels a row, `blocks` channel blocks a pixel."""

    buffer: Buffer
    offset: int  # of the first row held
    rows: int
    cols: int
    blocks: int
    row_stride: int
    pixel_stride: int
    first_row: int
    height: int
    dtype: Dtype = Dtype.INT8

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of 16 lanes."""
        return self.dtype.block_bytes

    @property
    def end_row(self) -> int:
        """The row after the last one held."""
        return self.first_row + self.rows

    @property
    def ref(self) -> Ref:
        """Address of the first row held."""
        return Ref(self.buffer, self.offset)

    def band(self, low: int, high: int) -> Tile:
        """Rows low..high of the map (absolute); they must be held."""
        if not self.first_row <= low < high <= self.end_row:
            raise InstructionError(
                f"tile in {self.buffer.name}: rows {low}..{high} are not held, only {self.first_row}..{self.end_row}"
            )
        return replace(
            self, offset=self.offset + (low - self.first_row) * self.row_stride, rows=high - low, first_row=low
        )

    def channel_blocks(self, first: int, count: int) -> Tile:
        """The same pixels, only channel blocks first..first + count."""
        if first < 0 or count < 1 or first + count > self.blocks:
            raise InstructionError(f"tile in {self.buffer.name}: blocks {first}..{first + count} of {self.blocks}")
        return replace(self, offset=self.offset + first * self.block_bytes, blocks=count)

    def phase(self, row: int, col: int, step_h: int, step_w: int) -> Tile | None:
        """Every step-th pixel: rows congruent to `row`, columns to `col`, numbered 0, 1, ... in the phase; None if it is empty."""
        first = -(-(self.first_row - row) // step_h)
        end = -(-(self.end_row - row) // step_h)
        cols = -(-(self.cols - col) // step_w)
        if end <= first or cols <= 0:
            return None
        offset = self.offset + (first * step_h + row - self.first_row) * self.row_stride + col * self.pixel_stride
        height = -(-(self.height - row) // step_h)
        return Tile(
            self.buffer,
            offset,
            end - first,
            cols,
            self.blocks,
            self.row_stride * step_h,
            self.pixel_stride * step_w,
            first,
            height,
            self.dtype,
        )

    @property
    def footprint(self) -> Footprint:
        """The bytes it covers."""
        width = self.blocks * self.block_bytes
        high = self.offset + (self.rows - 1) * self.row_stride + (self.cols - 1) * self.pixel_stride + width
        if width < self.pixel_stride and self.row_stride % self.pixel_stride == 0:
            phase = self.offset % self.pixel_stride
            if phase + width <= self.pixel_stride:
                return Footprint(self.buffer, self.offset, high, self.pixel_stride, phase, width)
        return Footprint(self.buffer, self.offset, high)


def whole_map(
    buffer: Buffer,
    height: int,
    width: int,
    blocks: int,
    offset: int = 0,
    pixel_blocks: int | None = None,
    dtype: Dtype = Dtype.INT8,
) -> Tile:
    """A complete feature map in `buffer`; `pixel_blocks` > blocks for a view into wider pixels."""
    stride = dtype.block_bytes * (pixel_blocks or blocks)
    return Tile(buffer, offset, height, width, blocks, stride * width, stride, 0, height, dtype)


@dataclass(frozen=True)
class Image:
    """A tight NHWC image in the pool: `channels` elements a pixel."""

    buffer: Buffer
    offset: int
    height: int
    width: int
    channels: int
    row_stride: int
    dtype: Dtype = Dtype.INT8

    @property
    def ref(self) -> Ref:
        """Its address."""
        return Ref(self.buffer, self.offset)

    def rows_footprint(self, low: int, high: int) -> Footprint:
        """Bytes of rows low..high, clipped to the image."""
        low, high = max(0, low), min(self.height, high)
        high = max(high, low)
        return Footprint(self.buffer, self.offset + low * self.row_stride, self.offset + high * self.row_stride)


@dataclass(frozen=True)
class Window:
    """Sliding window over the whole map: input row = out row * stride_h - pad_top + tap * dilation_h."""

    kernel_h: int = 1
    kernel_w: int = 1
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0

    def rows(self, low: int, high: int, height: int) -> tuple[int, int]:
        """Input rows that output rows low..high need, clipped to the map, never empty."""
        first = low * self.stride_h - self.pad_top
        last = (high - 1) * self.stride_h - self.pad_top + (self.kernel_h - 1) * self.dilation_h + 1
        first = min(max(first, 0), height - 1)
        return first, min(max(last, first + 1), height)
