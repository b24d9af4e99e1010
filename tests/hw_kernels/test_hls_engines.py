"""Every engine of the HLS code against an oracle written from DESIGN section 4, on drawn instructions and parameters.

Whole memories are compared, so that a stray write is found as well as a wrong result.
"""

from __future__ import annotations

from typing import Any

import hls_oracle as oracle
import numpy as np
from hls_drawing import (
    BLOCKS,
    CASES,
    PIXELS,
    SEED,
    SIZE,
    check,
    draw_bias,
    draw_stage,
    int8,
    lane_values,
    stage_fields,
    window_fields,
    windows,
)
from hls_support import Memory, View, put_view, reserve_view, run
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE, RESIZE_DTYPE, encode


@CASES
@given(SEED, windows(), SIZE, SIZE, BLOCKS, BLOCKS, st.sampled_from([0, 1]), PIXELS)
def test_conv(
    seed: int, window: Any, held: Any, size: Any, blocks_in: int, blocks_out: int, kind: int, pixels: int
) -> None:
    random = np.random.default_rng(seed)
    memory = Memory(random)
    q, border = int8(random, *held, 16 * blocks_in), int8(random, 16 * blocks_in)
    w = int8(random, 16 * blocks_out, *window.kernel, 16 * blocks_in, low=-127)
    if random.random() < 0.2:
        w[:] = 0
    bias = draw_bias(random, w, (1, 2, 3))
    stage = draw_stage(random, kind, 16 * blocks_out)
    source, out = put_view(memory, q), reserve_view(memory, *size, blocks_out)
    instruction = encode(
        "CONV",
        **source.fields("in"),
        **out.fields("out"),
        **window_fields(window),
        **stage_fields(memory, stage),
        in_h=held[0],
        in_w=held[1],
        out_h=size[0],
        out_w=size[1],
        blocks_in=blocks_in,
        blocks_out=blocks_out,
        weight_addr=memory.put(w),
        bias_addr=memory.put(bias.astype(np.int32)),
        pad_addr=memory.put(border),
    )
    check(memory, instruction, out, stage.apply(oracle.conv(q, w, bias, border, window, size)), pixels)


@CASES
@given(
    SEED, windows(), SIZE, SIZE, BLOCKS, BLOCKS, st.sampled_from([0, 1]), st.sampled_from([0, 2]), st.booleans(), PIXELS
)
def test_conv_residual(
    seed: int,
    window: Any,
    held: Any,
    size: Any,
    blocks_in: int,
    blocks_out: int,
    kind: int,
    sum_kind: int,
    in_place: bool,
    pixels: int,
) -> None:
    """The sum of the convolution's own bytes and a skip tensor, in its place or beside it."""
    random = np.random.default_rng(seed)
    memory, lanes = Memory(random), 16 * blocks_out
    q, border, b = int8(random, *held, 16 * blocks_in), int8(random, 16 * blocks_in), int8(random, *size, lanes)
    w = int8(random, lanes, *window.kernel, 16 * blocks_in, low=-127)
    bias = draw_bias(random, w, (1, 2, 3))
    stage, total = draw_stage(random, kind, lanes), draw_stage(random, sum_kind, lanes)
    operand = np.zeros(lanes, OPERAND_DTYPE)
    ma, mb = (lane_values(random, lanes, [0, 32767, -32768], -32767, 32767) for _ in range(2))
    za, zb = (lane_values(random, lanes, [-128, 127], -128, 127) for _ in range(2))
    operand["ma"], operand["mb"], operand["za"], operand["zb"] = ma, mb, za, zb
    source, skip = put_view(memory, q), put_view(memory, b)
    out = skip if in_place else reserve_view(memory, *size, blocks_out)
    summed = stage_fields(memory, total)
    instruction = encode(
        "CONV",
        **source.fields("in"),
        **out.fields("out"),
        **window_fields(window),
        **stage_fields(memory, stage),
        in_h=held[0],
        in_w=held[1],
        out_h=size[0],
        out_w=size[1],
        blocks_in=blocks_in,
        blocks_out=blocks_out,
        weight_addr=memory.put(w),
        bias_addr=memory.put(bias.astype(np.int32)),
        pad_addr=memory.put(border),
        residual=1,
        sum_stage=sum_kind,
        sum_requant_addr=summed["requant_addr"],
        operand_addr=memory.put(operand),
        b_addr=skip.address,
        b_row_stride=skip.row_stride,
        b_pixel_stride=skip.pixel_stride,
    )
    a = stage.apply(oracle.conv(q, w, bias, border, window, size))
    expected = total.apply(oracle.eltwise(0, a, b, ma, mb, za, zb, [0] * lanes))
    check(memory, instruction, out, expected, pixels)


@settings(max_examples=5, deadline=None)
@given(SEED, PIXELS)
def test_conv_with_many_pixels_crosses_accumulator_groups(seed: int, pixels: int) -> None:
    """More output pixels than one group of accumulators holds, rows that are no multiple of the pixel parallelism."""
    random = np.random.default_rng(seed)
    memory = Memory(random)
    size = (int(random.integers(15, 20)), 19)
    q, border = int8(random, *size, 16), int8(random, 16)
    w = int8(random, 32, 1, 1, 16, low=-127)
    bias = draw_bias(random, w, (1, 2, 3))
    stage = draw_stage(random, 0, 32)
    source, out = put_view(memory, q), reserve_view(memory, *size, 2)
    window = oracle.Window((1, 1), (1, 1), (1, 1), (0, 0))
    shape = {"in_h": size[0], "in_w": size[1], "out_h": size[0], "out_w": size[1], "blocks_in": 1, "blocks_out": 2}
    addresses = {
        "weight_addr": memory.put(w),
        "bias_addr": memory.put(bias.astype(np.int32)),
        "pad_addr": memory.put(border),
    }
    fields = (
        source.fields("in")
        | out.fields("out")
        | window_fields(window)
        | stage_fields(memory, stage)
        | shape
        | addresses
    )
    check(memory, encode("CONV", **fields), out, stage.apply(oracle.conv(q, w, bias, border, window, size)), pixels)


@CASES
@given(SEED, windows(), SIZE, SIZE, BLOCKS, st.sampled_from([0, 1]))
def test_depthwise(seed: int, window: Any, held: Any, size: Any, blocks: int, kind: int) -> None:
    random = np.random.default_rng(seed)
    memory = Memory(random)
    q, border = int8(random, *held, 16 * blocks), int8(random, 16 * blocks)
    w = int8(random, *window.kernel, 16 * blocks, low=-127)
    bias = draw_bias(random, w, (0, 1))
    stage = draw_stage(random, kind, 16 * blocks)
    source, out = put_view(memory, q), reserve_view(memory, *size, blocks)
    instruction = encode(
        "DEPTHWISE",
        **source.fields("in"),
        **out.fields("out"),
        **window_fields(window),
        **stage_fields(memory, stage),
        in_h=held[0],
        in_w=held[1],
        out_h=size[0],
        out_w=size[1],
        blocks_out=blocks,
        weight_addr=memory.put(w),
        bias_addr=memory.put(bias.astype(np.int32)),
        pad_addr=memory.put(border),
    )
    check(memory, instruction, out, stage.apply(oracle.depthwise(q, w, bias, border, window, size)))


def covered_axis(random: np.random.Generator) -> tuple[int, int, int, int, int, int]:
    """(kernel, stride, dilation, pad, held, out) of one axis on which every window has a valid tap."""
    while True:
        kernel, stride, dilation, pad, held, out = (
            int(random.integers(a, b)) for a, b in ((1, 6), (1, 4), (1, 4), (-3, 6), (1, 8), (1, 8))
        )
        if all(axis_counts(kernel, stride, dilation, pad, held, out)):
            return kernel, stride, dilation, pad, held, out


def axis_counts(kernel: int, stride: int, dilation: int, pad: int, held: int, out: int) -> list[int]:
    return [sum(0 <= o * stride - pad + k * dilation < held for k in range(kernel)) for o in range(out)]


@CASES
@given(SEED, BLOCKS, st.booleans(), st.booleans())
def test_pool(seed: int, blocks: int, average: bool, wants_single: bool) -> None:
    random = np.random.default_rng(seed)
    memory = Memory(random)
    axes = covered_axis(random), covered_axis(random)
    kernel, stride, dilation, pad, held, size = zip(*axes, strict=True)
    window = oracle.Window(kernel, stride, dilation, pad)
    q = int8(random, *held, 16 * blocks)
    source, out = put_view(memory, q), reserve_view(memory, *size, blocks)
    shape = {"in_h": held[0], "in_w": held[1], "out_h": size[0], "out_w": size[1], "blocks_out": blocks}
    fields = source.fields("in") | out.fields("out") | window_fields(window) | shape | {"kind": int(average)}
    if not average:
        check(memory, encode("POOL", **fields), out, oracle.max_pool(q, window, size))
        return
    single = wants_single and all(len(set(axis_counts(*axis))) == 1 for axis in axes)
    counts = 1 if single else max(axis_counts(*axes[0])) * max(axis_counts(*axes[1]))
    factors = random.integers(-32768, 32768, (counts, 16 * blocks)).astype(np.int16)
    zero_in, zero_out = int8(random, 16 * blocks), int8(random, 16 * blocks)
    requant, operand = np.zeros(16 * blocks, REQUANT_DTYPE), np.zeros(16 * blocks, OPERAND_DTYPE)
    requant["z"], operand["za"] = zero_out, zero_in
    shift = int(random.choice([0, 12, 15, 17, 20, 47]))
    fields |= {
        "weight_addr": memory.put(factors),
        "requant_addr": memory.put(requant),
        "operand_addr": memory.put(operand),
    }
    fields |= {"shift": shift, "single": int(single)}
    expected = oracle.average_pool(q, window, size, lambda n: factors[0 if single else n - 1], shift, zero_in, zero_out)
    check(memory, encode("POOL", **fields), out, expected)


@CASES
@given(
    SEED, SIZE, BLOCKS, st.integers(0, 3), st.integers(0, 2), st.booleans(), st.booleans(), st.booleans(), st.booleans()
)
def test_eltwise(
    seed: int,
    size: Any,
    blocks: int,
    kind: int,
    stage_kind: int,
    over_h: bool,
    over_w: bool,
    over_c: bool,
    in_place: bool,
) -> None:
    random = np.random.default_rng(seed)
    memory = Memory(random)
    lanes = 16 * blocks
    a, b = int8(random, *size, lanes), int8(random, 1 if over_h else size[0], 1 if over_w else size[1], lanes)
    stage = draw_stage(random, stage_kind, lanes)
    operand = np.zeros(lanes, OPERAND_DTYPE)
    ma, mb = (lane_values(random, lanes, [0, 32767, -32768], -32767, 32767) for _ in range(2))
    za, zb = (lane_values(random, lanes, [-128, 127], -128, 127) for _ in range(2))
    operand["ma"], operand["mb"], operand["za"], operand["zb"] = ma, mb, za, zb
    k = lane_values(random, lanes, [2**31 - 1, -(2**31), 0], -(2**31), 2**31 - 1)
    source, second = put_view(memory, a), put_view(memory, b)
    out = source if in_place else reserve_view(memory, *size, blocks)
    offset = int(random.integers(0, 16)) if over_c else 0
    if over_c:
        b = np.broadcast_to(b[:, :, offset : offset + 1], b.shape)
    second_fields = {
        "broadcast_b": int(over_c),
        "b_addr": second.address + offset,
        "b_row_stride": 0 if over_h else second.row_stride,
        "b_pixel_stride": 0 if over_w else second.pixel_stride,
    }
    if kind == 3:
        second_fields = {"bias_addr": memory.put(np.array(k, np.int32))}
    instruction = encode(
        "ELTWISE",
        **source.fields("in"),
        **out.fields("out"),
        **stage_fields(memory, stage),
        **second_fields,
        kind=kind,
        out_h=size[0],
        out_w=size[1],
        blocks_out=blocks,
        operand_addr=memory.put(operand),
    )
    d = oracle.eltwise(kind, a, np.broadcast_to(b, a.shape), ma, mb, za, zb, k)
    check(memory, instruction, out, stage.apply(d))


@CASES
@given(SEED, SIZE, SIZE, BLOCKS, st.booleans())
def test_resize(seed: int, held: Any, size: Any, blocks: int, nearest: bool) -> None:
    random = np.random.default_rng(seed)
    memory = Memory(random)
    q = int8(random, *held, 16 * blocks)
    source, out = put_view(memory, q), reserve_view(memory, *size, blocks)
    tables = []
    for count, length in zip(size, held, strict=True):
        weight = np.zeros(count, int) if nearest else random.choice([0, 256, 128, 1, 255, 77], count)
        tables.append(np.stack([random.integers(0, length, count), random.integers(0, length, count), weight], axis=1))
    addresses = []
    for table in tables:
        record = np.zeros(len(table), RESIZE_DTYPE)
        record["i0"], record["i1"], record["w1"] = table.T
        addresses.append(memory.put(record))
    shape = {"in_h": held[0], "in_w": held[1], "out_h": size[0], "out_w": size[1], "blocks_out": blocks}
    fields = source.fields("in") | out.fields("out") | shape
    instruction = encode("RESIZE", **fields, row_table_addr=addresses[0], col_table_addr=addresses[1])
    check(memory, instruction, out, oracle.resize(q, *tables))


@CASES
@given(SEED, SIZE, BLOCKS)
def test_copy(seed: int, size: Any, blocks: int) -> None:
    random = np.random.default_rng(seed)
    memory = Memory(random)
    q = int8(random, *size, 16 * blocks)
    source, out = put_view(memory, q), reserve_view(memory, *size, blocks)
    fields = source.fields("in") | out.fields("out")
    check(memory, encode("COPY", **fields, out_h=size[0], out_w=size[1], blocks_out=blocks), out, q)


@CASES
@given(SEED, SIZE, BLOCKS, st.sampled_from(["bin", "pool", "store"]))
def test_load_and_store(seed: int, size: Any, blocks: int, direction: str) -> None:
    random = np.random.default_rng(seed)
    ddr, memory = Memory(random, 1 << 14), Memory(random)
    values = int8(random, *size, 16 * blocks)
    far = put_view(ddr, values) if direction != "store" else reserve_view(ddr, *size, blocks)
    near = put_view(memory, values) if direction == "store" else reserve_view(memory, *size, blocks)
    fields = {
        "ddr_addr": far.address,
        "ddr_row_stride": far.row_stride,
        "ddr_col_stride": far.pixel_stride,
        "sram_addr": near.address,
        "sram_row_stride": near.row_stride,
        "sram_col_stride": near.pixel_stride,
        "rows": size[0],
        "cols": size[1],
        "chunk": 16 * blocks,
        "region": int(direction != "bin"),
    }
    name = "STORE" if direction == "store" else "LOAD"
    data = ddr.bytes.tobytes() if direction == "bin" else b""
    outcome = run([encode(name, **fields)], sram=memory.bytes, pool=ddr.bytes, data=data)
    assert outcome.code == "OK"
    expected_sram, expected_pool = memory.bytes.copy(), ddr.bytes.copy()
    if direction == "store":
        expected_pool[far.indices()] = values
    else:
        expected_sram[near.indices()] = values
    assert np.array_equal(outcome.sram, expected_sram)
    assert np.array_equal(outcome.pool, expected_pool)


@CASES
@given(SEED, st.integers(1, 4), windows(kernel=4), SIZE, SIZE, st.integers(0, 2), st.booleans())
def test_load_fold(seed: int, channels: int, window: Any, held: Any, size: Any, extra: int, from_bin: bool) -> None:
    random = np.random.default_rng(seed)
    memory = Memory(random)
    window.dilation = (1, 1)
    blocks = -(-window.kernel[0] * window.kernel[1] * channels // 16) + extra
    image = int8(random, *held, channels)
    row_stride = held[1] * channels + int(random.integers(0, 5))
    start = int(random.integers(0, 40))
    ddr = np.frombuffer(random.bytes(start + held[0] * row_stride + 7), np.int8).copy()
    pixels = View(start, row_stride, channels, (*held, channels))
    ddr[pixels.indices()] = image
    border = int8(random, 4)
    border[channels:] = 0
    out = reserve_view(memory, *size, blocks)
    fields = out.fields("out") | window_fields(window)
    fields |= {
        "in_h": held[0],
        "in_w": held[1],
        "out_h": size[0],
        "out_w": size[1],
        "blocks_out": blocks,
        "channels": channels,
    }
    fields |= {"ddr_addr": start, "ddr_row_stride": row_stride, "region": int(not from_bin)}
    instruction = encode("LOAD_FOLD", **fields, pad_bytes=int.from_bytes(border.tobytes(), "little"))
    expected = memory.bytes.copy()
    folded = np.zeros((*size, 16 * blocks), np.int8)
    for y in range(size[0]):
        for x in range(size[1]):
            lanes = [
                image[row, column, c] if 0 <= row < held[0] and 0 <= column < held[1] else border[c]
                for _, _, row, column in window.taps(y, x)
                for c in range(channels)
            ]
            folded[y, x, : len(lanes)] = lanes
    expected[out.indices()] = folded
    data = ddr.tobytes() if from_bin else b""
    outcome = run([instruction], sram=memory.bytes, pool=ddr, data=data)
    assert outcome.code == "OK"
    assert np.array_equal(outcome.sram, expected)
