"""Random programs for the simulator's tests, each with the bytes it must compute: single layers of every engine, and small networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim_programs import (
    DIRECT,
    OPERAND,
    PWL,
    REQUANT,
    RESIZE,
    TABLE,
    Builder,
    Place,
    Program,
    Window,
    random_int8,
    random_stage,
    shift_round,
)

Case = tuple[Program, np.ndarray]


def window(rng: np.random.Generator, h: int, w: int, largest: int) -> tuple[Window, int, int]:
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
    return Window(kernel, stride, dilation, pad), out[0], out[1]


def sizes(rng: np.random.Generator) -> tuple[int, int]:
    """Height and width, small or wide."""
    h, w = (int(v) for v in rng.integers(1, 12, size=2))
    return h, w * int(rng.choice([1, 1, 3]))


def convolution(rng: np.random.Generator, channels: tuple[int, int], known: bool) -> Case:
    h, w = sizes(rng)
    lanes_in, lanes_out = (-(-c // 16) * 16 for c in channels)
    if rng.integers(0, 2):
        win, out_h, out_w = Window((1, 1), (1, 1), (1, 1), (0, 0)), h, w
    else:
        win, out_h, out_w = window(rng, h, w, 4)
    x = random_int8(rng, (h, w, lanes_in))
    weight = random_int8(rng, (lanes_out, *win.kernel, lanes_in), low=-127)
    weight[:, :, :, channels[0] :] = 0
    pad = random_int8(rng, (lanes_in,))
    wide = rng.integers(0, 5) == 0
    bias = rng.integers(-(2**30) if wide else -5000, 2**30 if wide else 5000, size=lanes_out)
    stage = random_stage(rng, lanes_out, 3000.0 * np.sqrt(channels[0] * win.kernel[0] * win.kernel[1]), (PWL, TABLE))

    b = Builder(rng, known)
    source = b.feature(x)
    fields = b.stage(stage) | win.fields()
    fields |= {
        "weight_addr": b.parameter(weight),
        "bias_addr": b.parameter(bias.astype("<i4")),
        "pad_addr": b.parameter(pad),
    }
    sum_fields, total, skip = residual(b, (out_h, out_w, lanes_out)) if rng.integers(0, 2) else ({}, None, None)
    fields |= sum_fields
    out = skip if skip is not None and rng.integers(0, 2) else b.place(out_h, out_w, lanes_out)
    size = {"in_h": h, "in_w": w, "out_h": out_h, "out_w": out_w}
    blocks = {"blocks_in": lanes_in // 16, "blocks_out": lanes_out // 16}
    b.emit("CONV", **fields, **size, **blocks, **source.fields("in"), **out.fields("out"))

    taps, _ = win.taps(x, pad.astype(np.int64), out_h, out_w)
    acc = bias + np.einsum("abyxi,oabi->yxo", taps, weight.astype(np.int64), optimize=True)
    result = stage.apply(acc)
    return b.finish(out), result if total is None else total(result)


def residual(
    b: Builder, shape: tuple[int, int, int]
) -> tuple[dict[str, int], Callable[[np.ndarray], np.ndarray], Place]:
    """A residual stage with a skip tensor of this shape: fields, what it makes of the convolution's bytes, and where the skip tensor lies."""
    lanes = shape[2]
    records = np.zeros(lanes, dtype=OPERAND)
    records["ma"], records["mb"] = b.rng.integers(-32767, 32768, size=(2, lanes))
    records["za"], records["zb"] = random_int8(b.rng, (lanes,)), random_int8(b.rng, (lanes,))
    value = random_int8(b.rng, shape)
    skip = b.feature(value)
    stage = random_stage(b.rng, lanes, 2.0**22, (PWL, DIRECT))
    own = b.stage(stage)
    fields = {"residual": 1, "sum_stage": own["stage"], "sum_requant_addr": own["requant_addr"]}
    fields |= {"operand_addr": b.parameter(records), "b_addr": skip.address}
    fields |= {"b_row_stride": skip.row_stride, "b_pixel_stride": skip.pixel_stride}
    ma, mb, za, zb = (records[k].astype(np.int64) for k in ("ma", "mb", "za", "zb"))
    return fields, lambda a: stage.apply(ma * (a.astype(np.int64) - za) + mb * (value.astype(np.int64) - zb)), skip


def depthwise(rng: np.random.Generator, blocks: int, known: bool) -> Case:
    h, w = sizes(rng)
    lanes = 16 * blocks
    win, out_h, out_w = window(rng, h, w, 5)
    x = random_int8(rng, (h, w, lanes))
    weight = random_int8(rng, (*win.kernel, lanes), low=-127)
    pad = random_int8(rng, (lanes,))
    bias = rng.integers(-3000, 3000, size=lanes)
    stage = random_stage(rng, lanes, 3000.0 * np.sqrt(win.kernel[0] * win.kernel[1]), (PWL, TABLE))

    b = Builder(rng, known)
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
    return b.finish(out), stage.apply(acc)


def pooling(rng: np.random.Generator, blocks: int, average: bool, known: bool) -> Case:
    h, w = sizes(rng)
    lanes = 16 * blocks
    while True:  # every window needs a valid tap
        win, out_h, out_w = window(rng, h, w, 6)
        x = random_int8(rng, (h, w, lanes))
        taps, valid = win.taps(x, np.full(lanes, -128 if not average else 0, dtype=np.int64), out_h, out_w)
        counts = valid.sum(axis=(0, 1))
        if counts.min() > 0:
            break

    b = Builder(rng, known)
    source = b.feature(x)
    size = {"in_h": h, "in_w": w, "out_h": out_h, "out_w": out_w, "blocks_out": blocks}
    fields = win.fields() | {"kind": int(average)}
    if average:
        single = bool(counts.min() == counts.max()) and bool(rng.integers(0, 2))
        shift = int(rng.integers(0, 48)) if rng.integers(0, 4) == 0 else int(rng.integers(12, 18))
        multiplier = rng.integers(-32767, 32768, size=(1 if single else int(counts.max()), lanes))
        operand, requant = np.zeros(lanes, dtype=OPERAND), np.zeros(lanes, dtype=REQUANT)
        operand["za"], requant["z"] = random_int8(rng, (lanes,)), random_int8(rng, (lanes,))
        fields |= {"shift": shift, "single": int(single), "weight_addr": b.parameter(multiplier.astype("<i2"))}
        fields |= {"operand_addr": b.parameter(operand), "requant_addr": b.parameter(requant)}
        row = multiplier[np.zeros_like(counts) if single else counts - 1]
        d = (taps.sum(axis=(0, 1)) - counts[:, :, None] * operand["za"].astype(np.int64)) * row
        expected = np.clip(shift_round(d, shift) + requant["z"], -128, 127).astype(np.int8)
    else:
        expected = taps.max(axis=(0, 1)).astype(np.int8)
    out = b.place(out_h, out_w, lanes)
    b.emit("POOL", **fields, **size, **source.fields("in"), **out.fields("out"))
    return b.finish(out), expected


def elementwise(rng: np.random.Generator, blocks: int, kind: int, shape_b: str, known: bool, in_place: bool) -> Case:
    h, w = sizes(rng)
    lanes = 16 * blocks
    a = random_int8(rng, (h, w, lanes))
    other = random_int8(rng, (1 if shape_b[0] == "h" or "_h" in shape_b else h, 1 if "w" in shape_b else w, lanes))
    channel = int(rng.integers(0, lanes)) if "channel" in shape_b else None
    records = np.zeros(lanes, dtype=OPERAND)
    records["ma"], records["mb"] = rng.integers(-32767, 32768, size=(2, lanes))
    records["za"], records["zb"] = random_int8(rng, (lanes,)), random_int8(rng, (lanes,))
    addend = rng.integers(-(2**31) if rng.integers(0, 3) == 0 else -(2**22), 2**22, size=lanes)
    reach = {0: 2.0**22, 1: 2.0**22, 2: 2.0**27, 3: 2.0**22}[kind]
    stage = random_stage(rng, lanes, reach, (PWL, TABLE, DIRECT, DIRECT))

    b = Builder(rng, known)
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
    return b.finish(out), stage.apply(d)


def resize(rng: np.random.Generator, blocks: int, linear: bool, known: bool) -> Case:
    h, w = sizes(rng)
    lanes = 16 * blocks
    out_h, out_w = (int(v) for v in rng.integers(1, 24, size=2))
    x = random_int8(rng, (h, w, lanes))
    tables = []
    for extent, count in ((h, out_h), (w, out_w)):
        record = np.zeros(count, dtype=RESIZE)
        record["i0"] = rng.integers(0, extent, size=count)
        record["i1"] = rng.integers(0, extent, size=count)
        record["w1"] = rng.choice([0, 128, 256, 77, 1, 255], size=count) if linear else 0
        tables.append(record)
    b = Builder(rng, known)
    source = b.feature(x)
    fields = {"row_table_addr": b.parameter(tables[0]), "col_table_addr": b.parameter(tables[1])}
    out = b.place(out_h, out_w, lanes)
    size = {"in_h": h, "in_w": w, "out_h": out_h, "out_w": out_w, "blocks_out": blocks}
    b.emit("RESIZE", **fields, **size, **source.fields("in"), **out.fields("out"))

    total = np.zeros((out_h, out_w, lanes), dtype=np.int64)
    rows, cols = ({n: t[n].astype(np.int64) for n in RESIZE.names} for t in tables)
    for iy, wy in ((rows["i0"], 256 - rows["w1"]), (rows["i1"], rows["w1"])):
        for ix, wx in ((cols["i0"], 256 - cols["w1"]), (cols["i1"], cols["w1"])):
            total += (wy[:, None] * wx[None, :])[:, :, None] * x.astype(np.int64)[iy][:, ix]
    return b.finish(out), ((total + 2**15) >> 16).astype(np.int8)


def copy(rng: np.random.Generator, blocks: int) -> Case:
    h, w = sizes(rng)
    x = random_int8(rng, (h, w, 16 * blocks))
    b = Builder(rng)
    source = b.feature(x)
    out = b.place(h, w, 16 * blocks)
    b.emit("COPY", out_h=h, out_w=w, blocks_out=blocks, **source.fields("in"), **out.fields("out"))
    return b.finish(out), x


def fold(rng: np.random.Generator, channels: int, from_image: bool) -> Case:
    h, w = (int(v) for v in rng.integers(1, 40, size=2))
    kernel = tuple(int(v) for v in rng.integers(1, 7, size=2))
    stride = tuple(int(v) for v in rng.integers(1, 4, size=2))
    pad = tuple(int(v) for v in rng.integers(-1, 4, size=2))
    out_h, out_w = (int(v) for v in rng.integers(1, 24, size=2))
    win = Window(kernel, stride, (1, 1), pad)
    used = kernel[0] * kernel[1] * channels
    blocks = -(-used // 16) + int(rng.integers(0, 2))
    x = random_int8(rng, (h, w, channels))
    border = random_int8(rng, (channels,))
    b = Builder(rng)
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
    return b.finish(out), expected


# --- small networks ---------------------------------------------------------------------------------------------------------------------


class Network:
    """Layers one after another on maps of one size, in row bands, with few map buffers and few parameter places: every hazard between
    instructions occurs, and parameters of several layers lie at one address, one after another."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.h, self.w = int(rng.integers(2, 14)), int(rng.integers(1, 20))
        self.lanes = 16 * int(rng.integers(1, 4))
        self.b = Builder(rng)
        size = self.h * self.w * self.lanes
        self.buffers = [
            Place(self.b.allocate(size), self.w * self.lanes, self.lanes, (self.h, self.w, self.lanes))
            for _ in range(3)
        ]
        self.slots = [self.b.allocate(48 * 1024) for _ in range(int(rng.integers(1, 3)))]
        self.value = random_int8(rng, (self.h, self.w, self.lanes))
        self.at = 0
        loaded = self.b.feature(self.value)
        self.b.emit(
            "COPY",
            out_h=self.h,
            out_w=self.w,
            blocks_out=self.lanes // 16,
            **loaded.fields("in"),
            **self.buffers[0].fields("out"),
        )
        self.older = (0, self.value)  # buffer and value of the map before

    def bands(self) -> list[tuple[int, int]]:
        """First row and count of each band."""
        count = int(self.rng.integers(1, min(4, self.h) + 1))
        edges = sorted({0, self.h, *(int(r) for r in self.rng.integers(1, self.h, size=count - 1))})
        return list(zip(edges[:-1], np.diff(edges).tolist(), strict=True))

    def layer(self, number: int) -> None:
        """One more layer, from buffer `at` to the next."""
        b, rng, blocks = self.b, self.rng, self.lanes // 16
        b.arena = self.slots[number % len(self.slots)]
        source, target = self.buffers[self.at], self.buffers[(self.at + 1) % 3]
        kind = rng.choice(["CONV", "CONV", "DEPTHWISE", "ELTWISE", "POOL"])
        x = self.value.astype(np.int64)
        fields: dict[str, int] = {"blocks_out": blocks}
        window = None
        if kind == "ELTWISE":
            records = np.zeros(self.lanes, dtype=OPERAND)
            records["ma"], records["mb"] = rng.integers(-3000, 3000, size=(2, self.lanes))
            records["za"], records["zb"] = random_int8(rng, (2, self.lanes))
            stage = random_stage(rng, self.lanes, 2.0**18, (PWL, TABLE, DIRECT))
            fields |= b.stage(stage) | {"kind": 0, "operand_addr": b.parameter(records)}
            other = self.buffers[self.older[0]]
            terms = [
                m.astype(np.int64) * (v - z)
                for m, v, z in (
                    (records["ma"], x, records["za"]),
                    (records["mb"], self.older[1].astype(np.int64), records["zb"]),
                )
            ]
            result = stage.apply(terms[0] + terms[1])
        else:
            kernel = int(rng.choice([1, 3]))
            window = Window((kernel, kernel), (1, 1), (1, 1), (kernel // 2, kernel // 2))
            pad = np.full(self.lanes, -128, dtype=np.int8) if kind == "POOL" else random_int8(rng, (self.lanes,))
            taps, _ = window.taps(self.value, pad.astype(np.int64), self.h, self.w)
            fields |= {"in_h": self.h, "in_w": self.w}
            if kind == "POOL":
                result = taps.max(axis=(0, 1)).astype(np.int8)
            else:
                conv = kind == "CONV"
                shape = (self.lanes, kernel, kernel, self.lanes) if conv else (kernel, kernel, self.lanes)
                weight = random_int8(rng, shape, low=-127)
                bias = rng.integers(-5000, 5000, size=self.lanes)
                reach = 3000.0 * kernel * np.sqrt(self.lanes if conv else 1)
                stage = random_stage(rng, self.lanes, reach, (PWL, TABLE))
                acc = np.einsum("abyxi,oabi->yxo" if conv else "abyxi,abi->yxi", taps, weight.astype(np.int64))
                result = stage.apply(acc + bias)
                fields |= b.stage(stage) | {"weight_addr": b.parameter(weight), "pad_addr": b.parameter(pad)}
                fields |= {"bias_addr": b.parameter(bias.astype("<i4"))}
                if conv:
                    fields["blocks_in"] = blocks
        for first, rows in self.bands():
            place = target.fields("out") | {"out_h": rows, "out_w": self.w}
            place["out_addr"] += first * target.row_stride
            place |= source.fields("in")
            if window is not None:
                place |= window.fields() | {"pad_top": window.pad[0] - first}
            else:
                place["in_addr"] += first * source.row_stride
                place |= {
                    "b_addr": other.address + first * other.row_stride,
                    "b_row_stride": other.row_stride,
                    "b_pixel_stride": other.pixel_stride,
                }
            b.emit(str(kind), **(fields | place))
        self.older = (self.at, self.value)
        self.value, self.at = result, (self.at + 1) % 3


def network(rng: np.random.Generator, layers: int) -> Case:
    """A chain of layers."""
    net = Network(rng)
    for number in range(layers):
        net.layer(number)
    return net.b.finish(net.buffers[net.at]), net.value


def random_case(rng: np.random.Generator) -> Case:
    """Any of the above."""
    known = bool(rng.integers(0, 4))
    blocks = int(rng.integers(1, 5))
    choice = int(rng.integers(0, 8))
    if choice == 0:
        return convolution(rng, (int(rng.integers(1, 71)), int(rng.integers(1, 71))), known)
    if choice == 1:
        return depthwise(rng, blocks, known)
    if choice == 2:
        return pooling(rng, blocks, bool(rng.integers(0, 2)), known)
    if choice == 3:
        shape = str(rng.choice(["full", "h", "w", "hw", "channel", "channel_hw"]))
        return elementwise(rng, blocks, int(rng.integers(0, 4)), shape, known, bool(rng.integers(0, 2)))
    if choice == 4:
        return resize(rng, blocks, bool(rng.integers(0, 2)), known)
    if choice == 5:
        return copy(rng, blocks)
    if choice == 6:
        return fold(rng, int(rng.integers(1, 5)), bool(rng.integers(0, 2)))
    return network(rng, int(rng.integers(1, 6)))
