"""The DSL: tiles and footprints by brute force, what instructions come out, and readable refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.errors import InstructionError
from npuforge.compile.ir.quantization import OutputStage
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.npu_int8 import ResidualSpec, StageSpec
from npuforge.hw_kernels.dsl.program import requant_records
from npuforge.hw_kernels.dsl.tile import (
    BIN,
    POOL,
    SRAM,
    Buffer,
    Footprint,
    Image,
    LaneMap,
    Param,
    Ref,
    Tile,
    Window,
    whole_map,
)
from npuforge.hw_kernels.isa.instructions import EltwiseKind, Stage
from npuforge.hw_kernels.ops.conv.program import block_groups
from npuforge.hw_kernels.ops.conv_transpose.program import axis_phases

MEMORY = Buffer("memory", 1 << 20, SRAM)
DDR = Buffer("ddr", 1 << 20, POOL)


def param(size: int) -> Param:
    return Param(MEMORY, 0, size)


def stage(blocks: int) -> StageSpec:
    return StageSpec(Stage.PWL, param(128 * blocks))


def touched(tile: Tile) -> set[int]:
    """Every byte of a tile, the slow way."""
    return {
        tile.offset + r * tile.row_stride + c * tile.pixel_stride + b
        for r in range(tile.rows)
        for c in range(tile.cols)
        for b in range(16 * tile.blocks)
    }


tiles = st.builds(
    lambda h, w, pixel_blocks, first, count, low, rows: (
        whole_map(MEMORY, h, w, pixel_blocks)
        .channel_blocks(min(first, pixel_blocks - 1), min(count, pixel_blocks - min(first, pixel_blocks - 1)))
        .band(min(low, h - 1), min(min(low, h - 1) + rows, h))
    ),
    st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4), st.integers(0, 4), st.integers(1, 5),
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(tiles, tiles)
def test_footprints_never_miss_a_common_byte(a: Tile, b: Tile) -> None:
    common = bool(touched(a) & touched(b))
    assert a.footprint.touches(b.footprint) or not common
    assert {a.footprint.low, a.footprint.high - 1} <= touched(a)
    if a.pixel_stride == b.pixel_stride and a.row_stride == b.row_stride and not common:
        apart = a.end_row <= b.first_row or b.end_row <= a.first_row
        same_rows = (a.first_row, a.rows) == (b.first_row, b.rows)
        assert not (apart or same_rows) or not a.footprint.touches(b.footprint)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.data())
def test_phases_of_a_tile_partition_it(h: int, w: int, step_h: int, step_w: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, h - 1))
    tile = whole_map(MEMORY, h, w, 1).band(low, data.draw(st.integers(low + 1, h)))
    found: list[int] = []
    for row in range(step_h):
        for col in range(step_w):
            phase = tile.phase(row, col, step_h, step_w)
            if phase is not None:
                found += sorted(touched(phase))
                assert phase.first_row * step_h + row >= tile.first_row
    assert sorted(found) == sorted(touched(tile))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 5), st.integers(1, 7), st.integers(0, 2))
def test_phases_of_a_transposed_convolution(
    kernel: int, stride: int, dilation: int, pad: int, size: int, extra: int
) -> None:
    """Every (output, tap) that meets a real input position is in exactly one phase, at that position."""
    border = (kernel - 1) * dilation - pad
    out = (size - 1) * stride + (kernel - 1) * dilation + 1 - 2 * pad + extra
    phases = axis_phases(kernel, stride, dilation, pad)
    assert [p.residue for p in phases] == list(range(stride))
    for y in range(max(0, out)):
        stuffed = {t: y + t * dilation - border for t in range(kernel)}
        meets = {t: u // stride for t, u in stuffed.items() if u % stride == 0}
        phase = phases[y % stride]
        assert {t: y // stride - phase.pad + n * phase.dilation for n, t in enumerate(phase.taps)} == meets


def test_window_rows_are_clipped_and_never_empty() -> None:
    window = Window(3, 3, 2, 2, 1, 1, 1, 1)
    assert window.rows(0, 2, 9) == (0, 4) and window.rows(4, 5, 9) == (7, 9)
    assert Window(1, 1, 1, 1, 1, 1, 5, 5).rows(0, 2, 4) == (0, 1)  # all border


def test_band_of_a_convolution_counts_its_padding_from_the_rows_it_holds() -> None:
    npu = Npu()
    x, y = whole_map(MEMORY, 16, 8, 2, 4096), whole_map(MEMORY, 16, 8, 3, 65536)
    window = Window(3, 3, 1, 1, 1, 1, 1, 1)
    size = 48 * 9 * 32
    npu.conv(x, y.band(0, 4), window, param(size), param(192), param(32), stage(3))
    npu.conv(x, y.band(4, 8), window, param(size), param(192), param(32), stage(3))
    first, second = (i.fields for i in npu.instructions)
    assert (first["pad_top"], first["in_h"], first["in_addr"]) == (1, 5, Ref(MEMORY, 4096))
    assert (second["pad_top"], second["in_h"], second["in_addr"]) == (0, 6, Ref(MEMORY, 4096 + 3 * 8 * 32))
    assert second["out_addr"] == Ref(MEMORY, 65536 + 4 * 8 * 48) and second["blocks_in"] == 2


def test_transfers_join_what_touches() -> None:
    npu = Npu()
    ddr, sram = whole_map(DDR, 6, 4, 2), whole_map(MEMORY, 6, 4, 2)
    npu.load(ddr, sram)
    npu.store(sram.band(1, 3), ddr.band(1, 3))
    npu.load(ddr.channel_blocks(1, 1), whole_map(MEMORY, 6, 4, 1))
    shapes = [(i.name, i.fields["rows"], i.fields["cols"], i.fields["chunk"]) for i in npu.instructions]
    assert shapes == [("LOAD", 1, 1, 768), ("STORE", 1, 1, 256), ("LOAD", 6, 4, 16)]


def test_refusals_say_what_was_expected() -> None:
    npu = Npu()
    x, y = whole_map(MEMORY, 8, 8, 2), whole_map(MEMORY, 8, 8, 3)
    good = (Window(), param(48 * 32), param(192), param(32), stage(3))
    npu.conv(x, y, *good)
    with pytest.raises(InstructionError, match=r"npu.conv: 1536 bytes of weights expected, found 1535"):
        npu.conv(x, y, Window(), param(1535), *good[2:])
    with pytest.raises(InstructionError, match=r"192 bias bytes expected, found 188"):
        npu.conv(x, y, Window(), good[1], param(188), *good[3:])
    with pytest.raises(InstructionError, match="384 bytes of requantisation records expected, found 128"):
        npu.conv(x, y, *good[:4], stage(1))
    with pytest.raises(InstructionError, match="pwl or table, found direct"):
        npu.conv(x, y, *good[:4], StageSpec(Stage.DIRECT, param(384)))
    for wrong, message in (
        (ResidualSpec(whole_map(DDR, 8, 8, 3), param(384), stage(3)), "skip tensor ddr is not in SRAM"),
        (ResidualSpec(x, param(384), stage(3)), "skip tensor: 2 channel blocks in, 3 out"),
        (ResidualSpec(whole_map(MEMORY, 8, 7, 3), param(384), stage(3)), "skip tensor: 7 columns in, 8 out"),
        (ResidualSpec(y, param(256), stage(3)), "384 bytes of operand records of the sum expected, found 256"),
        (ResidualSpec(y, param(384), stage(2)), "384 bytes of requantisation records of the sum expected, found 256"),
        (ResidualSpec(y, param(384), StageSpec(Stage.TABLE, param(384))), "pwl or direct, found table"),
    ):
        with pytest.raises(InstructionError, match=message):
            npu.conv(x, y, *good, wrong)
    with pytest.raises(InstructionError, match="input ddr is not in SRAM"):
        npu.conv(whole_map(DDR, 8, 8, 2), y, *good)
    with pytest.raises(InstructionError, match=r"rows 0..8 are not held, only 2..6"):
        npu.conv(x.band(2, 6), y, *good)
    with pytest.raises(InstructionError, match="2 channel blocks in, 3 out"):
        npu.depthwise(x, y, Window(), param(48), param(192), param(32), stage(3))
    with pytest.raises(InstructionError, match="2 channel blocks in, 3 out"):
        npu.copy(x, y)
    with pytest.raises(InstructionError, match="b is 8x8, y 4x8"):
        npu.eltwise(EltwiseKind.ADD, x.band(0, 4), x, Tile(MEMORY, 0, 4, 8, 2, 256, 32, 0, 4), param(256), stage(2))
    with pytest.raises(InstructionError, match=r"npu.load: source memory is not in the pool"):
        npu.load(x, x)
    with pytest.raises(InstructionError, match="20 bytes is no positive multiple of 16"):
        npu.load_bytes(Ref(Buffer("file", 99, BIN)), MEMORY, 20)
    with pytest.raises(InstructionError, match="27 folded lanes do not fit 1 blocks"):
        npu.load_fold(Image(DDR, 0, 8, 8, 3, 24), whole_map(MEMORY, 8, 8, 1), Window(3, 3), np.zeros(3, np.int8))
    with pytest.raises(InstructionError, match=r"1..4 image channels expected, found 5"):
        npu.load_fold(Image(DDR, 0, 8, 8, 5, 40), whole_map(MEMORY, 8, 8, 1), Window(), np.zeros(5, np.int8))
    with pytest.raises(InstructionError, match=r"blocks 1..4 of 3"):
        y.channel_blocks(1, 3)
    with pytest.raises(InstructionError, match=r"bytes 8..24 of a parameter array of 16 bytes"):
        param(16).part(8, 16, "records")
    assert len(npu.instructions) == 1  # refused instructions leave nothing behind


def test_pad_lanes_have_zero_records() -> None:
    ones = np.ones(3, np.int16)
    made = OutputStage("pwl", np.full(3, 5, np.int8), np.full(3, -7, np.int8), ones, 2 * ones)
    records = requant_records(made, LaneMap(np.array([0, 2, 17]), 2))
    assert records.shape == (32,) and records[[0, 2, 17]].tolist() == [(1, 2, 5, -7, -128, 127)] * 3
    assert not np.delete(records, [0, 2, 17]).view(np.uint8).any()


def test_groups_run_one_by_one_only_where_they_fill_blocks() -> None:
    identity = LaneMap.identity
    assert block_groups(2, identity(32), identity(64)) == [(0, 1, 0, 2), (1, 1, 2, 2)]
    assert block_groups(2, identity(24), identity(64)) is None
    assert block_groups(1, identity(32), identity(32)) is None
    assert block_groups(2, LaneMap(np.roll(np.arange(32), 16), 2), identity(32)) == [(1, 1, 0, 1), (0, 1, 1, 1)]


def test_footprint_of_different_periods_is_compared_as_a_range() -> None:
    a = Footprint(MEMORY, 0, 100, 32, 0, 16)
    assert a.touches(Footprint(MEMORY, 50, 60, 48, 0, 16)) and not a.touches(Footprint(MEMORY, 100, 120, 48, 0, 16))
    assert not a.touches(Footprint(DDR, 0, 100))
