"""Single-layer NPU programs for the simulator's tests, and what they must compute: DESIGN section 4 in int64 numpy, written from the text.

Nothing here calls the kit's integer semantics or code generator: instructions are encoded from the instruction table, the oracle is its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuforge.board_runtime import _native
from npuforge.hw_kernels.isa.codec import encode

REQUANT = np.dtype([("m0", "<i2"), ("m1", "<i2"), ("s0", "i1"), ("z", "i1"), ("a", "i1"), ("b", "i1")])
OPERAND = np.dtype([("ma", "<i2"), ("mb", "<i2"), ("za", "i1"), ("zb", "i1"), ("reserved", "<i2")])
RESIZE = np.dtype([("i0", "<i2"), ("i1", "<i2"), ("w1", "<i2"), ("reserved", "<i2")])

PWL, TABLE, DIRECT = 0, 1, 2


def shift_round(value: np.ndarray, shift: np.ndarray | int) -> np.ndarray:
    """(value + 2^(shift-1)) >> shift, the rounding term being 0 where shift is 0."""
    shift = np.asarray(shift, dtype=np.int64)
    rounding = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    return (value.astype(np.int64) + rounding) >> shift


@dataclass
class Stage:
    """Output stage of an engine: requantisation records and, for the table stage, its 257 values, fraction bits and tails."""

    kind: int
    records: np.ndarray  # REQUANT [lanes]
    table: np.ndarray | None = None
    fraction_bits: int = 0
    low: int | None = 0  # tail value, None: the input
    high: int | None = 0

    def fields(self) -> dict[str, int]:
        """Instruction fields without addresses."""
        if self.kind != TABLE:
            return {"stage": self.kind}
        return {
            "stage": TABLE,
            "fraction_bits": self.fraction_bits,
            "tail_low_is_input": int(self.low is None),
            "tail_high_is_input": int(self.high is None),
            "tail_low": self.low or 0,
            "tail_high": self.high or 0,
        }

    def apply(self, acc: np.ndarray) -> np.ndarray:
        """int8 of int64 accumulators [..., lanes]."""
        r = {n: self.records[n].astype(np.int64) for n in REQUANT.names}
        if self.kind == TABLE:
            f = self.fraction_bits
            t = np.clip(shift_round(acc * r["m0"], r["s0"]), -32768, 32767)
            inside = (t >= -8 * 2**f) & (t < 8 * 2**f)
            k = np.where(inside, t >> (f - 4), 0)
            rest = np.where(inside, t & (2 ** (f - 4) - 1), 0)
            table = self.table.astype(np.int64)
            u = table[k + 128] + (((table[k + 129] - table[k + 128]) * rest + 2 ** (f - 5)) >> (f - 4))
            u = np.where(t < -8 * 2**f, t if self.low is None else self.low, u)
            u = np.where(t >= 8 * 2**f, t if self.high is None else self.high, u)
            return np.clip(shift_round(u * r["m1"], r["a"]) + r["z"], -128, 127).astype(np.int8)
        scaled = acc * np.where(acc < 0, r["m1"], r["m0"]) if self.kind == PWL else acc
        return np.clip(shift_round(scaled, r["s0"]) + r["z"], r["a"], r["b"]).astype(np.int8)


@dataclass
class Place:
    """Where a feature map lies in SRAM: address and strides of pixels and rows."""

    address: int
    row_stride: int
    pixel_stride: int
    shape: tuple[int, int, int]

    def fields(self, prefix: str) -> dict[str, int]:
        """Address and stride fields with a prefix such as `in`."""
        return {
            f"{prefix}_addr": self.address,
            f"{prefix}_row_stride": self.row_stride,
            f"{prefix}_pixel_stride": self.pixel_stride,
        }


@dataclass
class Builder:
    """Collects image bytes, pool bytes and instructions of one program."""

    rng: np.random.Generator
    known: bool = True  # parameters come from the image (known at load), else from the pool
    image: bytearray = field(default_factory=lambda: bytearray(b"\x5a" * 64))
    pool: bytearray = field(default_factory=bytearray)
    code: list[bytes] = field(default_factory=list)
    sram: int = 0
    arena: int | None = None  # where the next parameter goes, if not to a fresh place

    def emit(self, name: str, **fields: int) -> None:
        """Appends an instruction."""
        self.code.append(encode(name, **fields))

    def allocate(self, size: int) -> int:
        """SRAM bytes, 16-byte aligned, after a random gap."""
        address = self.sram + 16 * int(self.rng.integers(0, 3))
        self.sram = address + -(-size // 16) * 16
        return address

    def _append(self, store: bytearray, data: bytes) -> int:
        store.extend(b"\0" * (-len(store) % 64))
        offset = len(store)
        store.extend(data + b"\0" * (-len(data) % 16))
        return offset

    def parameter(self, data: np.ndarray, *, known: bool | None = None) -> int:
        """Bytes in SRAM, loaded from the image or the pool, in one or two pieces."""
        raw = np.ascontiguousarray(data).tobytes()
        known = self.known if known is None else known
        offset = self._append(self.image if known else self.pool, raw)
        size = -(-len(raw) // 16) * 16
        if self.arena is None:
            address = self.allocate(size)
        else:
            address, self.arena = self.arena, self.arena + size
        cut = size if size <= 16 or self.rng.integers(0, 4) else 16 * int(self.rng.integers(1, size // 16))
        for start, stop in ((0, cut), (cut, size)):
            if start < stop:
                self.emit(
                    "LOAD",
                    region=0 if known else 1,
                    ddr_addr=offset + start,
                    rows=1,
                    cols=1,
                    chunk=stop - start,
                    sram_addr=address + start,
                )
        return address

    def place(self, h: int, w: int, lanes: int) -> Place:
        """A free feature map, dense or a view with gaps between pixels and rows."""
        pixel = lanes + 16 * int(self.rng.integers(0, 2)) * int(self.rng.integers(0, 3))
        row = w * pixel + 16 * int(self.rng.integers(0, 2)) * int(self.rng.integers(0, 3))
        return Place(self.allocate(h * row), row, pixel, (h, w, lanes))

    def feature(self, data: np.ndarray) -> Place:
        """An int8 map [h, w, lanes] that is loaded from the pool."""
        h, w, lanes = data.shape
        offset = self._append(self.pool, data.tobytes())
        place = self.place(h, w, lanes)
        self.emit(
            "LOAD",
            region=1,
            ddr_addr=offset,
            ddr_row_stride=w * lanes,
            ddr_col_stride=lanes,
            rows=h,
            cols=w,
            chunk=lanes,
            sram_addr=place.address,
            sram_row_stride=place.row_stride,
            sram_col_stride=place.pixel_stride,
        )
        return place

    def stage(self, stage: Stage) -> dict[str, int]:
        """Loads the stage's parameters; returns the instruction fields."""
        fields = stage.fields() | {"requant_addr": self.parameter(stage.records)}
        if stage.kind == TABLE:
            fields["table_addr"] = self.parameter(stage.table.astype("<i2"))
        return fields

    def finish(self, out: Place) -> Program:
        """Stores the result and ends the program."""
        h, w, lanes = out.shape
        offset = self._append(self.pool, b"\x77" * (h * w * lanes))
        self.emit(
            "STORE",
            region=1,
            ddr_addr=offset,
            ddr_row_stride=w * lanes,
            ddr_col_stride=lanes,
            rows=h,
            cols=w,
            chunk=lanes,
            sram_addr=out.address,
            sram_row_stride=out.row_stride,
            sram_col_stride=out.pixel_stride,
        )
        self.emit("HALT")
        return Program(bytes(self.image), bytes(self.pool), b"".join(self.code), self.sram + 64, offset, out.shape)


@dataclass
class Program:
    """A complete program; `shape` int8 values at `offset` of the pool are its result."""

    image: bytes
    pool: bytes
    code: bytes
    sram: int
    offset: int
    shape: tuple[int, int, int]

    def run(self, level: str, threads: int, trace: frozenset[int] = frozenset()) -> np.ndarray:
        """The result on one code path of the simulator."""
        simulation = _native.sim.Simulation(
            self.code, self.image, len(self.pool), self.sram, threads=threads, level=level
        )
        pool, _ = simulation.run(self.pool, trace=set(trace))
        again, _ = simulation.run(self.pool)
        assert again == pool, "a second run in the same context differs"
        h, w, lanes = self.shape
        return np.frombuffer(pool, dtype=np.int8, count=h * w * lanes, offset=self.offset).reshape(self.shape)

    def check(self, expected: np.ndarray) -> None:
        """Every level and thread count must give the expected bytes."""
        for level in _native.sim.levels():
            for threads in (1, 2):
                got = self.run(level, threads)
                wrong = np.argwhere(got != expected)
                assert wrong.size == 0, (
                    f"{level}, {threads} threads: {len(wrong)} of {got.size} bytes differ, first at {wrong[0].tolist()}: "
                    f"{got[tuple(wrong[0])]} instead of {expected[tuple(wrong[0])]}"
                )


# --- random data ------------------------------------------------------------------------------------------------------------------------


def random_int8(rng: np.random.Generator, shape: tuple[int, ...], low: int = -128) -> np.ndarray:
    """int8 values: uniform, small, or only extremes."""
    style = rng.integers(0, 4)
    if style == 0:
        return rng.choice(np.array([low, 127], dtype=np.int8), size=shape)
    if style == 1:
        return np.full(shape, rng.choice([low, 127, 0, -1]), dtype=np.int8)
    if style == 2:
        return rng.integers(-9, 10, size=shape).astype(np.int8)
    return rng.integers(low, 128, size=shape).astype(np.int8)


def random_multiplier(rng: np.random.Generator, lanes: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """(M, S) near `scale` in the normal form, sometimes any legal pair."""
    if rng.integers(0, 4) == 0:
        return rng.integers(-32767, 32768, size=lanes), rng.integers(0, 48, size=lanes)
    real = scale * 2.0 ** rng.uniform(-3, 3, size=lanes) * rng.choice([1, 1, 1, -1], size=lanes)
    shift = np.clip(np.floor(np.log2(32767 / np.abs(real))), 0, 47).astype(np.int64)
    return np.clip(np.round(real * 2.0**shift), -32767, 32767).astype(np.int64), shift


def random_table(rng: np.random.Generator, fraction_bits: int) -> tuple[np.ndarray, int | None, int | None]:
    """257 entries and the two tails: real activation functions, or noise."""
    x = np.arange(-128, 129) / 16
    one = 2**fraction_bits
    functions = [
        (x / (1 + np.exp(-x)), 0, None),
        (1 / (1 + np.exp(-x)), 0, one),
        (np.tanh(x), -one, one),
        (np.clip(1 / (1 + np.exp(-x)), 0.1, 0.9), int(np.floor(0.1 * one + 0.5)), int(np.floor(0.9 * one + 0.5))),
    ]
    choice = int(rng.integers(0, 6))
    if choice >= len(functions):
        size = 32768 if choice == 5 else 300
        noise = rng.integers(-size, size, size=257)
        return noise.astype(np.int16), int(rng.integers(-32768, 32768)), None
    values, low, high = functions[choice]
    return np.clip(np.floor(values * one + 0.5), -32768, 32767).astype(np.int16), low, high


def random_stage(rng: np.random.Generator, lanes: int, reach: float, kinds: tuple[int, ...]) -> Stage:
    """A stage for accumulators of about +-reach."""
    kind = int(rng.choice(kinds))
    records = np.zeros(lanes, dtype=REQUANT)
    records["z"] = random_int8(rng, (lanes,))
    used = lanes - int(rng.integers(0, 16))  # the rest are pad lanes
    if kind == TABLE:
        f = int(rng.integers(5, 12))
        table, low, high = random_table(rng, f)
        records["m0"], records["s0"] = random_multiplier(rng, lanes, 10 * 2.0**f / reach)
        records["m1"], records["a"] = random_multiplier(rng, lanes, 120 / (8 * 2.0**f))
        records[used:] = 0
        return Stage(TABLE, records, table, f, low, high)
    records["m0"], records["s0"] = random_multiplier(rng, lanes, 200 / reach)
    style = rng.integers(0, 4)
    slope = np.array([0, 1, 0.1, -0.7])[style]
    records["m1"] = np.round(records["m0"] * slope)
    if kind == DIRECT:
        records["m0"] = records["m1"] = 0
        records["s0"] = np.clip(rng.integers(-3, 3, size=lanes) + int(np.log2(max(reach, 1)) - 6), 0, 47)
    if rng.integers(0, 2):
        records["a"], records["b"] = -128, 127
    else:
        records["a"] = rng.integers(-128, 0, size=lanes)
        records["b"] = rng.integers(0, 128, size=lanes)
    records[used:] = 0
    return Stage(kind, records)


@dataclass
class Window:
    """Kernel, stride, dilation and leading pads, (h, w) each."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]

    def fields(self) -> dict[str, int]:
        """Instruction fields."""
        return {
            "kernel_h": self.kernel[0],
            "kernel_w": self.kernel[1],
            "stride_h": self.stride[0],
            "stride_w": self.stride[1],
            "dilation_h": self.dilation[0],
            "dilation_w": self.dilation[1],
            "pad_top": self.pad[0],
            "pad_left": self.pad[1],
        }

    def taps(self, x: np.ndarray, border: np.ndarray, out_h: int, out_w: int) -> tuple[np.ndarray, np.ndarray]:
        """Values [kh, kw, out_h, out_w, lanes] and validity [kh, kw, out_h, out_w] of every tap."""
        h, w, lanes = x.shape
        values = np.empty((*self.kernel, out_h, out_w, lanes), dtype=np.int64)
        valid = np.zeros((*self.kernel, out_h, out_w), dtype=bool)
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                iy = np.arange(out_h) * self.stride[0] - self.pad[0] + ky * self.dilation[0]
                ix = np.arange(out_w) * self.stride[1] - self.pad[1] + kx * self.dilation[1]
                inside = ((iy >= 0) & (iy < h))[:, None] & ((ix >= 0) & (ix < w))[None, :]
                picked = x[np.clip(iy, 0, h - 1)][:, np.clip(ix, 0, w - 1)].astype(np.int64)
                values[ky, kx] = np.where(inside[:, :, None], picked, border)
                valid[ky, kx] = inside
        return values, valid
