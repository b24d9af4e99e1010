"""Drawn bf16 instructions on three levels with arithmetic of their own: numpy semantics, HLS code (integer logic), simulator (floating-point
instructions, every level). Whole memories are compared, so that a stray write is found as well as a wrong result.

`test_bf16_arithmetic.py` holds the numpy semantics to exact fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hls_support import SRAM_BYTES, Memory, View, reserve_view, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.bf16 import Bf16Stage, Bf16Tail
from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.isa.codec import BF16_DTYPE, RESIZE_BF16_DTYPE, encode
from npuforge.hw_kernels.isa.instructions import BY_NAME, Engine

native = pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
CASES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEED = st.integers(0, 2**32 - 1)
EDGES = np.array(
    [0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x8080, 0x3F80, 0xBF80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF], np.uint16
)
Random = np.random.Generator
Case = tuple[str, dict[str, int], Memory, View, np.ndarray]


def values(random: Random, *shape: int) -> np.ndarray:
    """bf16 bits: ordinary numbers, tiny ones whose products are denormal, any pattern, edges."""
    kind = random.integers(0, 5)
    if kind <= 1:
        return bf16.from_float32(random.normal(0.0, 2.0, shape).astype(np.float32))
    if kind == 2:
        return bf16.from_float32(
            (random.normal(0.0, 1.0, shape) * 2.0 ** random.integers(-126, -50, shape)).astype(np.float32)
        )
    if kind == 3:
        return random.integers(0, 2**16, shape).astype(np.uint16)
    some = bf16.from_float32(random.normal(0.0, 2.0, shape).astype(np.float32))
    return np.where(random.random(shape) < 0.05, random.choice(EDGES, shape), some)


def cancelling(random: Random, sign: float, *shape: int) -> np.ndarray:
    """Small values beside 2^12, the large ones of lanes 8..15 those of lanes 0..7 times `sign`: products of 2^24 swallow small ones, then cancel,
    and what is left depends on the order of the sum."""
    magnitude = random.choice(np.array([1.0, 3.0, 2.0**12]), shape)
    value = (magnitude * random.choice([-1.0, 1.0], shape)).reshape(*shape[:-1], -1, 2, 8)
    first, second = value[..., 0, :], value[..., 1, :]
    second[...] = np.where(np.abs(first) > 3.0, sign * first, np.where(np.abs(second) > 3.0, 1.0, second))
    return bf16.from_float32(value.reshape(shape).astype(np.float32))


def floats(random: Random, *shape: int) -> np.ndarray:
    """float32 parameters, some of them extreme."""
    usual = random.normal(0.0, 2.0, shape).astype(np.float32)
    edges = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-40, -3e38], np.float32)
    return np.where(random.random(shape) < (0.1 if random.random() < 0.5 else 0.0), random.choice(edges, shape), usual)


def put_map(memory: Memory, bits: np.ndarray) -> View:
    h, w, lanes = bits.shape
    view = reserve_view(memory, h, w, lanes // 8)
    memory.bytes[view.indices()] = np.ascontiguousarray(bits).view(np.int8).reshape(h, w, 2 * lanes)
    return view


def draw_stage(random: Random, memory: Memory, lanes: int) -> tuple[Bf16Stage, dict[str, int]]:
    low, high = np.sort(floats(random, 2, lanes), axis=0)
    dead = random.random(lanes) < 0.1
    low, high = np.where(dead, np.float32(0), low), np.where(dead, np.float32(0), high)
    if random.random() < 0.5:
        low, high = np.full(lanes, -np.inf, np.float32), np.full(lanes, np.inf, np.float32)
    records = np.zeros(lanes, BF16_DTYPE)
    records["bias"], records["slope"], records["low"], records["high"] = (
        floats(random, lanes),
        floats(random, lanes),
        low,
        high,
    )
    fields = {"record_addr": memory.put(records)}
    stage = Bf16Stage("pwl", records["bias"], records["slope"], records["low"], records["high"])
    if random.random() < 0.4:
        table = floats(random, 3, 256)
        inputs = random.random(2) < 0.5
        tails = [0 if i else int(values(random, 1)[0]) for i in inputs]
        stage.kind, stage.table = "table", table
        stage.tail_low, stage.tail_high = Bf16Tail(bool(inputs[0]), tails[0]), Bf16Tail(bool(inputs[1]), tails[1])
        fields |= {"stage": 1, "table_addr": memory.put(table), "tail_low": tails[0], "tail_high": tails[1]}
        fields |= {"tail_low_is_input": int(inputs[0]), "tail_high_is_input": int(inputs[1])}
    return stage, fields


def draw_window(random: Random, kernel: int = 4) -> tuple[dict[str, int], tuple[int, int], bf16.Geometry]:
    k, s, d = (
        (int(a), int(b))
        for a, b in (random.integers(1, kernel + 1, 2), random.integers(1, 4, 2), random.integers(1, 4, 2))
    )
    pads = (int(random.integers(-2, 5)), int(random.integers(-2, 5)))
    out = (int(random.integers(1, 6)), int(random.integers(1, 12)))
    names = {"kernel": k, "stride": s, "dilation": d, "out": out}
    fields = {f"{name}_{axis}": pair[n] for name, pair in names.items() for n, axis in enumerate("hw")}
    return fields | {"pad_top": pads[0], "pad_left": pads[1]}, k, (out, s, pads, d)


def finish(memory: Memory, fields: dict[str, int], shape: tuple[int, ...]) -> View:
    out = reserve_view(memory, shape[0], shape[1], shape[2] // 8)
    fields |= out.fields("out") | {"blocks_out": shape[2] // 16}
    return out


def conv(random: Random) -> Case:
    memory = Memory(random)
    depthwise = random.random() < 0.4
    fields, kernel, geometry = draw_window(random)
    size, blocks_in = random.integers(1, 10, 2), int(random.integers(1, 4))
    blocks_out = blocks_in if depthwise else int(random.integers(1, 3))
    order_matters = random.random() < 0.5

    def draw(sign: float, *shape: int) -> np.ndarray:
        return cancelling(random, sign, *shape) if order_matters else values(random, *shape)

    x = draw(-1.0, *size, 16 * blocks_in)
    stage, more = draw_stage(random, memory, 16 * blocks_out)
    fields |= more | put_map(memory, x).fields("in") | {"in_h": int(size[0]), "in_w": int(size[1])}
    if depthwise:
        weight = draw(1.0, *kernel, 16 * blocks_out)
        acc = bf16.depthwise(x, weight, geometry)
    else:
        weight = draw(1.0, 16 * blocks_out, *kernel, 16 * blocks_in)
        acc = bf16.convolve(x, weight, geometry)
        fields["blocks_in"] = blocks_in
    fields["weight_addr"] = memory.put(weight)
    result = bf16.apply_stage(acc, stage)
    return "DEPTHWISE_BF16" if depthwise else "CONV_BF16", fields, memory, finish(memory, fields, result.shape), result


def pool(random: Random) -> Case:
    memory = Memory(random)
    while True:
        fields, kernel, geometry = draw_window(random)
        size = tuple(int(v) for v in random.integers(1, 10, 2))
        count = np.zeros(geometry[0], np.int64)
        for _, _, target, _ in bf16.taps(size, geometry[0], kernel, *geometry[1:]):
            count[target] += 1
        if count.min() > 0:
            break
    x = values(random, *size, 16 * int(random.integers(1, 3)))
    fields |= put_map(memory, x).fields("in") | {"in_h": size[0], "in_w": size[1]}
    if random.random() < 0.5:
        result = bf16.max_pool(x, kernel, geometry)
    else:
        single = bool(count.min() == count.max()) and random.random() < 0.5
        factor = floats(random, 1 if single else kernel[0] * kernel[1])
        fields |= {"kind": 1, "single": int(single), "weight_addr": memory.put(factor)}
        result = bf16.average_pool(x, kernel, geometry, factor, single)
    return "POOL_BF16", fields, memory, finish(memory, fields, result.shape), result


def eltwise(random: Random) -> Case:
    memory = Memory(random)
    h, w, blocks, kind = (
        *(int(v) for v in random.integers(1, 7, 2)),
        int(random.integers(1, 4)),
        int(random.integers(0, 4)),
    )
    a = values(random, h, w, 16 * blocks)
    stage, fields = draw_stage(random, memory, 16 * blocks)
    fields |= put_map(memory, a).fields("in") | {"kind": kind, "out_h": h, "out_w": w}
    left = bf16.to_float32(a)
    if kind == 3:
        factor = floats(random, 16 * blocks)
        fields["operand_addr"] = memory.put(factor)
        d = bf16.multiply(left, factor)
    else:
        rows, cols = 1 if random.random() < 0.3 else h, 1 if random.random() < 0.3 else w
        b = values(random, rows, cols, 16 * blocks)
        view = put_map(memory, b)
        fields |= {
            "b_addr": view.address,
            "b_row_stride": view.row_stride if rows == h else 0,
            "b_pixel_stride": view.pixel_stride if cols == w else 0,
        }
        if random.random() < 0.3:
            lane = int(random.integers(0, 16))
            fields |= {"broadcast_b": 1, "b_addr": view.address + 2 * lane}
            b = b[..., lane : lane + 1]
        right = bf16.to_float32(b)
        d = (bf16.add, bf16.subtract, bf16.multiply)[kind](left, np.broadcast_to(right, (h, w, right.shape[2])))
    result = bf16.apply_stage(d, stage)
    return "ELTWISE_BF16", fields, memory, finish(memory, fields, result.shape), result


def resize(random: Random) -> Case:
    memory = Memory(random)
    size = tuple(int(v) for v in random.integers(1, 7, 2))
    x = values(random, *size, 16 * int(random.integers(1, 3)))
    fields = put_map(memory, x).fields("in") | {"in_h": size[0], "in_w": size[1]}
    tables = []
    for axis, key in enumerate(("row_table_addr", "col_table_addr")):
        records = np.zeros(int(random.integers(1, 9)), RESIZE_BF16_DTYPE)
        records["i0"], records["i1"] = random.integers(0, size[axis], (2, len(records)))
        records["w1"] = np.where(random.random(len(records)) < 0.3, np.float32(1e-40), random.random(len(records)))
        fields |= {key: memory.put(records), ("out_h", "out_w")[axis]: len(records)}
        tables.append((records["i0"], records["i1"], records["w1"]))
    result = bf16.resize(x, *tables)
    return "RESIZE_BF16", fields, memory, finish(memory, fields, result.shape), result


def program(name: str, fields: dict[str, int], region: int) -> list[bytes]:
    """Fill on-chip memory from the `.bin` (0: parameters known at load) or the pool (1), the instruction, memory to the pool."""
    engine = BY_NAME[name].engine
    whole = {"rows": 1, "cols": 1, "chunk": SRAM_BYTES}
    other = int(engine != Engine.LOAD)
    fill = encode("LOAD", region=region, push=other << engine, **whole)
    one = encode(name, **fields, pop=other << Engine.LOAD, push=1 << Engine.STORE)
    return [fill, one, encode("STORE", region=1, pop=1 << engine, **whole)]


def check(case: Case) -> None:
    name, fields, memory, out, result = case
    before = memory.bytes
    expected = before.copy()
    expected[out.indices()] = np.ascontiguousarray(result).view(np.int8).reshape(*result.shape[:2], -1)
    data = before.tobytes()
    for region in (0, 1):
        instructions = program(name, fields, region)
        given = np.zeros(SRAM_BYTES, np.int8) if region == 0 else before
        ours = run(instructions, pool=given, data=data)
        assert ours.code == "OK", (ours.code, ours.field)
        assert not np.flatnonzero(ours.pool != expected).size, f"{name}: HLS code"
        stream = b"".join(instructions) + encode("HALT")
        for level in native.sim.levels() if region == 0 else ["auto"]:
            device = native.sim.Simulation(stream, data + stream, SRAM_BYTES, SRAM_BYTES, 1, level)
            theirs = np.frombuffer(device.run(given.tobytes())[0], np.int8)
            wrong = np.flatnonzero(theirs != expected)
            assert not wrong.size, f"{name}: simulator {level}: {wrong.size} bytes, first at {wrong[0]}"


@pytest.mark.parametrize("draw", [conv, pool, eltwise, resize], ids=lambda f: f.__name__)
@CASES
@given(seed=SEED)
def test_engine(draw: Callable[[Random], Case], seed: int) -> None:
    check(draw(np.random.default_rng(seed)))


def _in_line(x: np.ndarray, weight: np.ndarray, arithmetic: Any) -> np.ndarray:
    total = arithmetic.weigh(x[0][:, None], weight[0][None, :])
    for lane in range(1, bf16.LANES):
        total = arithmetic.add(total, arithmetic.weigh(x[lane][:, None], weight[lane][None, :]))
    return np.asarray(total)


def test_another_order_of_the_sum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes added one after the other instead of as a tree: the drawn convolutions tell."""
    monkeypatch.setattr(bf16, "tree", _in_line)
    seen = 0
    for seed in range(20):
        case = conv(np.random.default_rng(seed))
        try:
            check(case)
        except AssertionError:
            seen += 1
    assert seen >= 4


@CASES
@given(SEED, st.integers(1, 4))
def test_fold(seed: int, channels: int) -> None:
    random = np.random.default_rng(seed)
    memory = Memory(random)
    fields, kernel, (out, strides, pads, _) = draw_window(random, 3)
    h, w = (int(v) for v in random.integers(1, 8, 2))
    image = values(random, h, w, channels)
    lanes = -(-kernel[0] * kernel[1] * channels // 16) * 16
    result = np.zeros((*out, lanes), np.uint16)
    for ky, kx, target, source in bf16.taps((h, w), out, kernel, strides, pads, (1, 1)):
        start = (ky * kernel[1] + kx) * channels
        result[(*target, slice(start, start + channels))] = image[source]
    fields |= {"dilation_h": 1, "dilation_w": 1, "region": 0, "ddr_addr": 2, "ddr_row_stride": 2 * w * channels}
    fields |= {"in_h": h, "in_w": w, "channels": channels}
    view = finish(memory, fields, result.shape)
    data = (b"\0\0" + image.tobytes()).ljust(4096, b"\0")
    store = encode("STORE", region=1, rows=1, cols=1, chunk=SRAM_BYTES, pop=1)
    fill = encode("LOAD", region=1, rows=1, cols=1, chunk=SRAM_BYTES)
    instructions = [fill, encode("LOAD_FOLD_BF16", **fields, push=1 << Engine.STORE), store]
    expected = memory.bytes.copy()
    expected[view.indices()] = np.ascontiguousarray(result).view(np.int8).reshape(*out, -1)
    ours = run(instructions, pool=memory.bytes, data=data)
    assert ours.code == "OK" and np.array_equal(ours.pool, expected)
    stream = b"".join(instructions) + encode("HALT")
    theirs, _ = native.sim.Simulation(stream, data + stream, SRAM_BYTES, SRAM_BYTES).run(memory.bytes.tobytes())
    assert np.array_equal(np.frombuffer(theirs, np.int8), expected)


def test_an_arch_without_the_feature_refuses() -> None:
    case = conv(np.random.default_rng(3))
    stream = b"".join(program(case[0], case[1], 1)) + encode("HALT")
    with pytest.raises(InstructionError, match="no feature bf16"):
        native.sim.Simulation(stream, stream, SRAM_BYTES, SRAM_BYTES, bf16=False)
