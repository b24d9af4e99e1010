"""What the engines' tests draw (windows, extreme bytes, output stages, biases), and the comparison of whole memories behind one instruction."""

from __future__ import annotations

import hls_oracle as oracle
import numpy as np
from hls_support import Memory, Outcome, View, run
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from npuforge.hw_kernels.isa.codec import REQUANT_DTYPE

CASES = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEED = st.integers(0, 2**32 - 1)
PIXELS = st.sampled_from([1, 2, 8])


@st.composite
def windows(draw: st.DrawFn, kernel: int = 5) -> oracle.Window:
    pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))  # noqa: E731
    return oracle.Window(pair(1, kernel), pair(1, 3), pair(1, 3), pair(-3, 5))


def window_fields(window: oracle.Window) -> dict[str, int]:
    pairs = {"kernel": window.kernel, "stride": window.stride, "dilation": window.dilation}
    fields = {f"{name}_{axis}": pair[k] for name, pair in pairs.items() for k, axis in enumerate("hw")}
    return fields | {"pad_top": window.pad[0], "pad_left": window.pad[1]}


def int8(random: np.random.Generator, *shape: int, low: int = -128) -> np.ndarray:
    """Noise, or the extremes only, or all the same extreme."""
    kind = random.integers(0, 4)
    if kind == 0:
        return random.choice(np.array([low, 127], np.int8), shape)
    if kind == 1:
        return np.full(shape, random.choice([low, 127]), np.int8)
    return random.integers(low, 128, shape, dtype=np.int8)


def lane_values(random: np.random.Generator, lanes: int, extremes: list[int], low: int, high: int) -> list[int]:
    return [
        int(random.choice(extremes)) if random.random() < 0.4 else int(random.integers(low, high + 1))
        for _ in range(lanes)
    ]


def draw_stage(random: np.random.Generator, kind: int, lanes: int) -> oracle.Stage:
    """Random parameters, extremes included; shifts near those that give results inside int8 as well as any others."""
    factors = [0, 1, -1, 32767, -32767, -32768]
    shifts = [0, 47, 20, 24, 30, 38]
    stage = oracle.Stage(
        kind,
        lane_values(random, lanes, factors, -32767, 32767),
        lane_values(random, lanes, factors, -32767, 32767),
        lane_values(random, lanes, shifts, 0, 47),
        lane_values(random, lanes, [-128, 127, 0], -128, 127),
        lane_values(random, lanes, [-128, 0], -128, 127),
        lane_values(random, lanes, [127, 6], -128, 127),
    )
    if kind == 1:
        stage.fraction = int(random.integers(5, 12))
        stage.table = random.integers(-32768, 32768, 257).tolist()
        stage.a = lane_values(random, lanes, [0, 47, 7, 12], 0, 47)
        stage.b = [0] * lanes
        stage.low_is_input, stage.high_is_input = bool(random.integers(0, 2)), bool(random.integers(0, 2))
        stage.low, stage.high = (
            0 if unused else int(random.integers(-32768, 32768)) for unused in (stage.low_is_input, stage.high_is_input)
        )
        stage.s0 = [min(s, 47) if random.random() < 0.3 else int(random.integers(14, 34)) for s in stage.s0]
    return stage


def stage_fields(memory: Memory, stage: oracle.Stage) -> dict[str, int]:
    record = np.zeros(len(stage.m0), REQUANT_DTYPE)
    for name in ("m0", "m1", "s0", "z", "a", "b"):
        record[name] = getattr(stage, name)
    fields = {"stage": stage.kind, "requant_addr": memory.put(record)}
    if stage.kind == 1:
        fields |= {"table_addr": memory.put(np.array(stage.table, np.int16)), "fraction_bits": stage.fraction}
        fields |= {"tail_low": stage.low, "tail_high": stage.high}
        fields |= {"tail_low_is_input": int(stage.low_is_input), "tail_high_is_input": int(stage.high_is_input)}
    return fields


def check(memory: Memory, instruction: bytes, out: View, expected: np.ndarray, pixels: int = 2) -> Outcome:
    """Runs one instruction; the whole memory must be as before, but for the output."""
    before = memory.bytes.copy()
    before[out.indices()] = expected
    outcome = run([instruction], sram=memory.bytes, pixels=pixels)
    assert (outcome.code, outcome.field) == ("OK", "none")
    wrong = np.flatnonzero(outcome.sram != before)
    assert not wrong.size, f"{wrong.size} bytes differ, first at {wrong[0]}"
    return outcome


def draw_bias(random: np.random.Generator, w: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Any bias that keeps |bias| + sum|w|*128 below 2^31; at the very limit in some lanes."""
    limit = 2**31 - 1 - np.abs(w.astype(np.int64)).sum(axis=axes) * 128
    kind = random.integers(0, 3, limit.shape)
    small = random.integers(-20000, 20001, limit.shape)
    anything = (random.random(limit.shape) * 2 - 1) * limit
    edge = np.where(random.random(limit.shape) < 0.5, limit, -limit)
    return np.where(kind == 0, small, np.where(kind == 1, anything.astype(np.int64), edge)).astype(np.int64)


BLOCKS = st.integers(1, 5)
SIZE = st.tuples(st.integers(1, 7), st.integers(1, 7))
