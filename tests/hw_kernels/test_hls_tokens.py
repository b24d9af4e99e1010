"""Tokens: a double-buffered load -> convolution -> element-wise -> store pipeline gives the same bytes in whatever order engines are served, and
leaving out any one token shows, as other bytes or as a deadlock that is reported (never a hang)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hls_support import LOAD_FIRST, PROGRAM_ORDER, RANDOM, STORE_LAST, Outcome, run

from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE, encode

LOAD, CONV, VECTOR, STORE = range(4)
ROUNDS = 6
SIDE = 4  # pixels of a row; one block of 16 lanes
MAP = SIDE * SIDE * 16
X, Y, Z, PARAMETERS = 0, 2 * MAP, 4 * MAP, 6 * MAP
SRAM = 8192
ORDERS = [(PROGRAM_ORDER, 1), (LOAD_FIRST, 1), (STORE_LAST, 1), *((RANDOM, seed) for seed in range(1, 41))]


@dataclass
class Step:
    """One instruction and its tokens, before encoding."""

    name: str
    engine: int
    fields: dict[str, int]
    pop: list[int] = field(default_factory=list)
    push: list[int] = field(default_factory=list)

    def encode(self) -> bytes:
        return encode(self.name, pop=sum(1 << e for e in self.pop), push=sum(1 << e for e in self.push), **self.fields)


def parameters(random: np.random.Generator) -> bytes:
    """Weights, bias, requantisation and operand records, border bytes; one block each."""
    weights = random.integers(-127, 128, (16, 16)).astype(np.int8)
    bias = random.integers(-3000, 3000, 16).astype(np.int32)
    requant, operand = np.zeros(16, REQUANT_DTYPE), np.zeros(16, OPERAND_DTYPE)
    requant["m0"] = requant["m1"] = 16384
    requant["s0"], requant["a"], requant["b"] = 21, -128, 127
    operand["ma"], operand["mb"] = 90, 51
    return weights.tobytes() + bias.tobytes() + requant.tobytes() + operand.tobytes() + bytes(16)


def pipeline(parameter_bytes: int) -> list[Step]:
    strides = {f"{p}_{s}": v for p in ("in", "out") for s, v in (("row_stride", SIDE * 16), ("pixel_stride", 16))}
    size = {"out_h": SIDE, "out_w": SIDE, "blocks_out": 1}
    window = {f"{n}_{a}": 1 for n in ("kernel", "stride", "dilation") for a in "hw"}
    weights, bias, requant, operand, border = (PARAMETERS + offset for offset in (0, 256, 320, 448, 576))
    steps = [Step("LOAD", LOAD, {"region": 0, "rows": 1, "cols": 1, "chunk": parameter_bytes, "sram_addr": PARAMETERS})]
    for k in range(ROUNDS):
        even, later, more = (k % 2) * MAP, k >= 2, k + 2 < ROUNDS
        transfer = {"region": 1, "rows": 1, "cols": 1, "chunk": MAP}
        load = Step("LOAD", LOAD, transfer | {"ddr_addr": k * MAP, "sram_addr": X + even}, [CONV] * later, [CONV])
        fields = (
            strides
            | size
            | window
            | {"in_addr": X + even, "out_addr": Y + even, "in_h": SIDE, "in_w": SIDE, "blocks_in": 1}
        )
        fields |= {"weight_addr": weights, "bias_addr": bias, "requant_addr": requant, "pad_addr": border}
        conv = Step("CONV", CONV, fields, [LOAD, *[VECTOR] * later], [VECTOR, *[LOAD] * more])
        fields = (
            strides
            | size
            | {"in_addr": Y + even, "out_addr": Z + even, "operand_addr": operand, "requant_addr": requant, "stage": 0}
        )
        fields |= {"b_addr": Y + even, "b_row_stride": SIDE * 16, "b_pixel_stride": 16}
        add = Step("ELTWISE", VECTOR, fields, [CONV, *[STORE] * later], [STORE, *[CONV] * more])
        store = Step(
            "STORE",
            STORE,
            transfer | {"ddr_addr": (ROUNDS + k) * MAP, "sram_addr": Z + even},
            [VECTOR],
            [VECTOR] * more,
        )
        steps += [load, conv, add, store]
    return steps


RANDOM_BYTES = np.random.default_rng(5)
DATA = parameters(RANDOM_BYTES)
POOL = RANDOM_BYTES.integers(-128, 128, 2 * ROUNDS * MAP).astype(np.int8)


def execute(steps: list[Step], policy: int, seed: int, fill: int = 0) -> Outcome:
    sram = np.full(SRAM, fill, np.int8)
    return run([s.encode() for s in steps], data=DATA, pool=POOL, sram=sram, policy=policy, seed=seed)


def expected() -> np.ndarray:
    """The pool after the run, in plain numpy."""
    weights = np.frombuffer(DATA[:256], np.int8).reshape(16, 16).astype(np.int64)
    bias = np.frombuffer(DATA[256:320], np.int32)
    pool = POOL.copy()
    for k in range(ROUNDS):
        x = POOL[k * MAP : (k + 1) * MAP].reshape(-1, 16).astype(np.int64)
        y = np.clip(((x @ weights.T + bias) * 16384 + (1 << 20)) >> 21, -128, 127)
        z = np.clip(((y * 90 + y * 51) * 16384 + (1 << 20)) >> 21, -128, 127)
        pool[(ROUNDS + k) * MAP : (ROUNDS + k + 1) * MAP] = z.reshape(-1)
    return pool


@pytest.mark.parametrize(("policy", "seed"), ORDERS)
def test_same_bytes_in_every_order(policy: int, seed: int) -> None:
    for fill in (0, 0x5A):
        outcome = execute(pipeline(len(DATA)), policy, seed, fill)
        assert outcome.code == "OK"
        assert np.array_equal(outcome.pool, expected())


def caught(steps: list[Step]) -> str:
    """How a faulty program shows: DEADLOCK, TOKEN_LEFT, or OTHER BYTES in some order; empty if it does not."""
    right = expected()
    for policy, seed in ORDERS:
        outcome = execute(steps, policy, seed)
        if outcome.code in ("DEADLOCK", "TOKEN_LEFT"):
            return outcome.code
        assert outcome.code == "OK"
        if not np.array_equal(outcome.pool, right):
            return "OTHER BYTES"
    return ""


TOKENS = [
    (i, kind, engine) for i, s in enumerate(pipeline(0)) for kind in ("pop", "push") for engine in getattr(s, kind)
]


@pytest.mark.parametrize(("index", "kind", "engine"), TOKENS)
def test_one_missing_token_is_caught(index: int, kind: str, engine: int) -> None:
    steps = pipeline(len(DATA))
    getattr(steps[index], kind).remove(engine)
    result = caught(steps)
    assert result == "DEADLOCK" if kind == "push" else result in ("OTHER BYTES", "DEADLOCK", "TOKEN_LEFT")


def pairs() -> list[tuple[int, int]]:
    """(giver, taker) of every token, by counting in program order."""
    given: dict[tuple[int, int], list[int]] = {}
    found = []
    for index, step in enumerate(pipeline(0)):
        for source in step.pop:
            found.append((given[source, step.engine].pop(0), index))
        for target in step.push:
            given.setdefault((step.engine, target), []).append(index)
    assert not any(given.values())
    return found


@pytest.mark.parametrize(("giver", "taker"), pairs())
def test_a_missing_dependency_is_caught(giver: int, taker: int) -> None:
    """Both ends of one token left out, as a compiler would that overlooks a dependency: nothing hangs, the bytes are wrong in some order."""
    steps = pipeline(len(DATA))
    steps[giver].push.remove(steps[taker].engine)
    steps[taker].pop.remove(steps[giver].engine)
    assert caught(steps) == "OTHER BYTES"


def test_deadlock_names_the_oldest_waiting_instruction() -> None:
    steps = pipeline(len(DATA))
    steps[3].pop.append(STORE)
    for policy, seed in ORDERS:
        outcome = execute(steps, policy, seed)
        assert (outcome.code, outcome.field) == ("DEADLOCK", "pop")
        assert outcome.instruction == 3


def test_token_counter_overflow_is_refused() -> None:
    one = Step("LOAD", LOAD, {"region": 1, "rows": 1, "cols": 1, "chunk": 16}, [], [STORE]).encode()
    assert execute_raw([one] * 65535).code == "TOKEN_LEFT"  # no overflow yet, but nobody took them
    outcome = execute_raw([one] * 65536)
    assert (outcome.code, outcome.field, outcome.instruction) == ("TOKEN_OVERFLOW", "push", 65535)


def execute_raw(instructions: list[bytes]) -> Outcome:
    return run(instructions, pool=POOL, sram=np.zeros(SRAM, np.int8))
