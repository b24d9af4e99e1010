"""Every engine of the simulator against an int64 oracle, on random single layers, for every instruction set and thread count."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")

_spec = importlib.util.spec_from_file_location("sim_programs", Path(__file__).with_name("sim_programs.py"))
assert _spec and _spec.loader
p = importlib.util.module_from_spec(_spec)
sys.modules["sim_programs"] = p
_spec.loader.exec_module(p)

many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
seeds = st.integers(0, 2**32 - 1)


def window(rng: np.random.Generator, h: int, w: int, largest: int) -> tuple[p.Window, int, int]:
    """A window and an output size; the output may end before or beyond the input, as in row bands."""
    kernel = tuple(int(k) for k in rng.integers(1, largest + 1, size=2))
    stride = tuple(int(s) for s in rng.integers(1, 4, size=2))
    dilation = tuple(int(d) for d in rng.choice([1, 1, 1, 2, 3], size=2))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pad = tuple(
        int(rng.integers(-min(2, size - 1), min(e, size + e - 1))) for e, size in zip(extent, (h, w), strict=True)
    )
    # The last window still touches the input, so that pooling has a valid tap; convolution takes two more.
    out = [max(1, min(40, (size - 1 + q) // s + 1)) for size, q, s in zip((h, w), pad, stride, strict=True)]
    out = [int(rng.integers(1, o + 1)) if rng.integers(0, 3) == 0 else o for o in out]
    return p.Window(kernel, stride, dilation, pad), out[0], out[1]


def sizes(rng: np.random.Generator) -> tuple[int, int]:
    """Height and width, small or wide."""
    h, w = (int(v) for v in rng.integers(1, 12, size=2))
    return h, w * int(rng.choice([1, 1, 3]))


@many
@given(
    seed=seeds,
    channels=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    known=st.sampled_from([True, True, True, False]),
)
def test_convolution(seed: int, channels: tuple[int, int], known: bool) -> None:
    rng = np.random.default_rng(seed)
    h, w = sizes(rng)
    lanes_in, lanes_out = (-(-c // 16) * 16 for c in channels)
    if rng.integers(0, 2):
        win, out_h, out_w = p.Window((1, 1), (1, 1), (1, 1), (0, 0)), h, w
    else:
        win, out_h, out_w = window(rng, h, w, 4)
    x = p.random_int8(rng, (h, w, lanes_in))
    weight = p.random_int8(rng, (lanes_out, *win.kernel, lanes_in), low=-127)
    weight[:, :, :, channels[0] :] = 0
    pad = p.random_int8(rng, (lanes_in,))
    wide = rng.integers(0, 5) == 0
    bias = rng.integers(-(2**30) if wide else -5000, 2**30 if wide else 5000, size=lanes_out)
    stage = p.random_stage(
        rng, lanes_out, 3000.0 * np.sqrt(channels[0] * win.kernel[0] * win.kernel[1]), (p.PWL, p.TABLE)
    )

    b = p.Builder(rng, known)
    source = b.feature(x)
    fields = b.stage(stage) | win.fields()
    fields |= {
        "weight_addr": b.parameter(weight),
        "bias_addr": b.parameter(bias.astype("<i4")),
        "pad_addr": b.parameter(pad),
    }
    out = b.place(out_h, out_w, lanes_out)
    size = {"in_h": h, "in_w": w, "out_h": out_h, "out_w": out_w}
    blocks = {"blocks_in": lanes_in // 16, "blocks_out": lanes_out // 16}
    b.emit("CONV", **fields, **size, **blocks, **source.fields("in"), **out.fields("out"))

    taps, _ = win.taps(x, pad.astype(np.int64), out_h, out_w)
    acc = bias + np.einsum("abyxi,oabi->yxo", taps, weight.astype(np.int64), optimize=True)
    b.finish(out).check(stage.apply(acc))


@many
@given(seed=seeds, blocks=st.integers(1, 4), known=st.sampled_from([True, True, True, False]))
def test_depthwise(seed: int, blocks: int, known: bool) -> None:
    rng = np.random.default_rng(seed)
    h, w = sizes(rng)
    lanes = 16 * blocks
    win, out_h, out_w = window(rng, h, w, 5)
    x = p.random_int8(rng, (h, w, lanes))
    weight = p.random_int8(rng, (*win.kernel, lanes), low=-127)
    pad = p.random_int8(rng, (lanes,))
    bias = rng.integers(-3000, 3000, size=lanes)
    stage = p.random_stage(rng, lanes, 3000.0 * np.sqrt(win.kernel[0] * win.kernel[1]), (p.PWL, p.TABLE))

    b = p.Builder(rng, known)
    source = b.feature(x)
    fields = b.stage(stage) | win.fields()
    fields |= {
        "weight_addr": b.parameter(weight),
        "bias_addr": b.parameter(bias.astype("<i4")),
        "pad_addr": b.parameter(pad),
    }
    out = b.place(out_h, out_w, lanes)
    size = {"in_h": h, "in_w": w, "out_h": out_h, "out_w": out_w, "blocks_out": blocks}
    b.emit("DEPTHWISE", **fields, **size, **source.fields("in"), **out.fields("out"))

    taps, _ = win.taps(x, pad.astype(np.int64), out_h, out_w)
    acc = bias + np.einsum("abyxi,abi->yxi", taps, weight.astype(np.int64))
    b.finish(out).check(stage.apply(acc))


@many
@given(seed=seeds, blocks=st.integers(1, 4), average=st.booleans(), known=st.sampled_from([True, True, False]))
def test_pooling(seed: int, blocks: int, average: bool, known: bool) -> None:
    rng = np.random.default_rng(seed)
    h, w = sizes(rng)
    lanes = 16 * blocks
    while True:  # every window needs a valid tap
        win, out_h, out_w = window(rng, h, w, 6)
        x = p.random_int8(rng, (h, w, lanes))
        taps, valid = win.taps(x, np.full(lanes, -128 if not average else 0, dtype=np.int64), out_h, out_w)
        counts = valid.sum(axis=(0, 1))
        if counts.min() > 0:
            break

    b = p.Builder(rng, known)
    source = b.feature(x)
    size = {"in_h": h, "in_w": w, "out_h": out_h, "out_w": out_w, "blocks_out": blocks}
    fields = win.fields() | {"kind": int(average)}
    if average:
        single = bool(counts.min() == counts.max()) and bool(rng.integers(0, 2))
        shift = int(rng.integers(0, 48)) if rng.integers(0, 4) == 0 else int(rng.integers(12, 18))
        multiplier = rng.integers(-32767, 32768, size=(1 if single else int(counts.max()), lanes))
        operand, requant = np.zeros(lanes, dtype=p.OPERAND), np.zeros(lanes, dtype=p.REQUANT)
        operand["za"], requant["z"] = p.random_int8(rng, (lanes,)), p.random_int8(rng, (lanes,))
        fields |= {"shift": shift, "single": int(single), "weight_addr": b.parameter(multiplier.astype("<i2"))}
        fields |= {"operand_addr": b.parameter(operand), "requant_addr": b.parameter(requant)}
        row = multiplier[np.zeros_like(counts) if single else counts - 1]
        d = (taps.sum(axis=(0, 1)) - counts[:, :, None] * operand["za"].astype(np.int64)) * row
        expected = np.clip(p.shift_round(d, shift) + requant["z"], -128, 127).astype(np.int8)
    else:
        expected = taps.max(axis=(0, 1)).astype(np.int8)
    out = b.place(out_h, out_w, lanes)
    b.emit("POOL", **fields, **size, **source.fields("in"), **out.fields("out"))
    b.finish(out).check(expected)


@many
@given(
    seed=seeds,
    blocks=st.integers(1, 4),
    kind=st.integers(0, 3),
    shape_b=st.sampled_from(["full", "full", "h", "w", "hw", "channel", "channel_hw"]),
    known=st.sampled_from([True, True, True, False]),
    in_place=st.booleans(),
)
def test_elementwise(seed: int, blocks: int, kind: int, shape_b: str, known: bool, in_place: bool) -> None:
    rng = np.random.default_rng(seed)
    h, w = sizes(rng)
    lanes = 16 * blocks
    a = p.random_int8(rng, (h, w, lanes))
    other = p.random_int8(rng, (1 if "h" == shape_b[0] or "_h" in shape_b else h, 1 if "w" in shape_b else w, lanes))
    channel = int(rng.integers(0, lanes)) if "channel" in shape_b else None
    records = np.zeros(lanes, dtype=p.OPERAND)
    records["ma"], records["mb"] = rng.integers(-32767, 32768, size=(2, lanes))
    records["za"], records["zb"] = p.random_int8(rng, (lanes,)), p.random_int8(rng, (lanes,))
    addend = rng.integers(-(2**31) if rng.integers(0, 3) == 0 else -(2**22), 2**22, size=lanes)
    reach = {0: 2.0**22, 1: 2.0**22, 2: 2.0**27, 3: 2.0**22}[kind]
    stage = p.random_stage(rng, lanes, reach, (p.PWL, p.TABLE, p.DIRECT, p.DIRECT))

    b = p.Builder(rng, known)
    first = b.feature(a)
    fields = b.stage(stage) | {"kind": kind, "operand_addr": b.parameter(records), "blocks_out": blocks}
    da = a.astype(np.int64) - records["za"]
    if kind == 3:
        fields["bias_addr"] = b.parameter(addend.astype("<i4"))
        d = records["ma"].astype(np.int64) * da + addend
    else:
        second = b.feature(other)
        fields |= {
            "b_addr": second.address + (channel or 0),
            "b_row_stride": 0 if other.shape[0] == 1 else second.row_stride,
            "b_pixel_stride": 0 if other.shape[1] == 1 else second.pixel_stride,
            "broadcast_b": int(channel is not None),
        }
        picked = other.astype(np.int64) if channel is None else other[:, :, channel : channel + 1].astype(np.int64)
        db = picked - records["zb"]
        ma, mb = records["ma"].astype(np.int64), records["mb"].astype(np.int64)
        d = {0: ma * da + mb * db, 1: ma * da - mb * db, 2: da * db * ma}[kind]
    out = first if in_place else b.place(h, w, lanes)
    b.emit("ELTWISE", **fields, out_h=h, out_w=w, **first.fields("in"), **out.fields("out"))
    b.finish(out).check(stage.apply(d))


@many
@given(seed=seeds, blocks=st.integers(1, 4), linear=st.booleans(), known=st.sampled_from([True, True, False]))
def test_resize(seed: int, blocks: int, linear: bool, known: bool) -> None:
    rng = np.random.default_rng(seed)
    h, w = sizes(rng)
    lanes = 16 * blocks
    out_h, out_w = (int(v) for v in rng.integers(1, 24, size=2))
    x = p.random_int8(rng, (h, w, lanes))
    tables = []
    for extent, count in ((h, out_h), (w, out_w)):
        record = np.zeros(count, dtype=p.RESIZE)
        record["i0"] = rng.integers(0, extent, size=count)
        record["i1"] = rng.integers(0, extent, size=count)
        record["w1"] = rng.choice([0, 128, 256, 77, 1, 255], size=count) if linear else 0
        tables.append(record)
    b = p.Builder(rng, known)
    source = b.feature(x)
    fields = {"row_table_addr": b.parameter(tables[0]), "col_table_addr": b.parameter(tables[1])}
    out = b.place(out_h, out_w, lanes)
    size = {"in_h": h, "in_w": w, "out_h": out_h, "out_w": out_w, "blocks_out": blocks}
    b.emit("RESIZE", **fields, **size, **source.fields("in"), **out.fields("out"))

    total = np.zeros((out_h, out_w, lanes), dtype=np.int64)
    rows, cols = ({n: t[n].astype(np.int64) for n in p.RESIZE.names} for t in tables)
    for iy, wy in ((rows["i0"], 256 - rows["w1"]), (rows["i1"], rows["w1"])):
        for ix, wx in ((cols["i0"], 256 - cols["w1"]), (cols["i1"], cols["w1"])):
            total += (wy[:, None] * wx[None, :])[:, :, None] * x.astype(np.int64)[iy][:, ix]
    b.finish(out).check(((total + 2**15) >> 16).astype(np.int8))


@many
@given(seed=seeds, blocks=st.integers(1, 4))
def test_copy(seed: int, blocks: int) -> None:
    rng = np.random.default_rng(seed)
    h, w = sizes(rng)
    x = p.random_int8(rng, (h, w, 16 * blocks))
    b = p.Builder(rng)
    source = b.feature(x)
    out = b.place(h, w, 16 * blocks)
    b.emit("COPY", out_h=h, out_w=w, blocks_out=blocks, **source.fields("in"), **out.fields("out"))
    b.finish(out).check(x)


@many
@given(seed=seeds, channels=st.integers(1, 4), from_image=st.booleans())
def test_fold(seed: int, channels: int, from_image: bool) -> None:
    rng = np.random.default_rng(seed)
    h, w = (int(v) for v in rng.integers(1, 40, size=2))
    kernel = tuple(int(v) for v in rng.integers(1, 7, size=2))
    stride = tuple(int(v) for v in rng.integers(1, 4, size=2))
    pad = tuple(int(v) for v in rng.integers(-1, 4, size=2))
    out_h, out_w = (int(v) for v in rng.integers(1, 24, size=2))
    win = p.Window(kernel, stride, (1, 1), pad)
    used = kernel[0] * kernel[1] * channels
    blocks = -(-used // 16) + int(rng.integers(0, 2))
    x = p.random_int8(rng, (h, w, channels))
    border = p.random_int8(rng, (channels,))
    b = p.Builder(rng)
    row = w * channels + int(rng.integers(0, 5))
    rows = np.zeros((h, row), dtype=np.int8)
    rows[:, : w * channels] = x.reshape(h, -1)
    store = b.image if from_image else b.pool
    store.extend(b"\x11" * int(rng.integers(0, 9)))
    offset = len(store)
    store.extend(rows.tobytes()[: (h - 1) * row + w * channels])  # up to the very last pixel
    out = b.place(out_h, out_w, 16 * blocks)
    b.emit(
        "LOAD_FOLD",
        region=0 if from_image else 1,
        ddr_addr=offset,
        ddr_row_stride=row,
        in_h=h,
        in_w=w,
        channels=channels,
        blocks_out=blocks,
        out_h=out_h,
        out_w=out_w,
        pad_bytes=int.from_bytes(border.tobytes(), "little"),
        **win.fields(),
        **out.fields("out"),
    )
    taps, _ = win.taps(x, border.astype(np.int64), out_h, out_w)
    expected = np.zeros((out_h, out_w, 16 * blocks), dtype=np.int8)
    expected[:, :, :used] = taps.transpose(2, 3, 0, 1, 4).reshape(out_h, out_w, used)
    b.finish(out).check(expected)
