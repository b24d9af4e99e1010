"""The ladder can fail: one changed instruction field or parameter byte (CRC made right again) changes the output or is refused, csim and sim agree
on it, and wrong integer semantics do not pass. What legitimately cannot matter is in `ladder_meaning.py` and `ladder_parameters.py` with its reason.

By default a fixed sample of every field and section; `-m full` changes every bit of every instruction and every parameter byte.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from ladder import POLICIES, Arrays, compare, csim_pool, read_tensor, sim_pool, visible
from ladder_meaning import SAME, harmless
from ladder_mutation import Subject, csim_verdict, disagreement, noticed, sim_verdict, subject
from ladder_parameters import dead_bytes, dead_offsets, sections

from npuforge.board_runtime import _native
from npuforge.hw_kernels import arithmetic, operator
from npuforge.hw_kernels.isa.codec import REQUANT_DTYPE
from npuforge.hw_kernels.isa.instructions import BY_NAME, HEADER, Field, Instruction

NAMES = sorted(BY_NAME)


@pytest.fixture(scope="module")
def whole() -> Subject:
    """The network under mutation."""
    return subject()


def test_unchanged_network_passes_and_exercises_everything(whole: Subject) -> None:
    for number, (pool, golden) in enumerate(zip(whole.pools, whole.golden, strict=True)):
        assert sim_pool(whole.binary.image, whole.binary.meta, pool) == golden
        expected = whole.quantised.integers(whole.feeds[number])
        for name in whole.binary.meta["outputs"]:
            found = read_tensor(whole.binary, golden, name)
            np.testing.assert_array_equal(found, expected[name], err_msg=name)
            assert len(np.unique(found)) >= 20, f"{name} is nearly constant: changes would not show"
    assert {i.name for i, _ in whole.instructions} == {name for name in BY_NAME if not name.endswith("_BF16")}
    kinds = {(i.name, v.get("stage"), v.get("kind")) for i, v in whole.instructions}
    assert kinds >= {("CONV", 0, None), ("CONV", 1, None), ("DEPTHWISE", 0, None), ("DEPTHWISE", 1, None)}
    assert kinds >= {("POOL", None, k) for k in (0, 1)} | {("ELTWISE", 2, k) for k in (0, 2)}
    assert {v["kind"] for i, v in whole.instructions if i.name == "ELTWISE"} == {0, 1, 2, 3}
    assert {(v["residual"], v["sum_stage"]) for i, v in whole.instructions if i.name == "CONV"} == {
        (0, 0),
        (1, 0),
        (1, 2),
    }
    assert {v["broadcast_b"] for i, v in whole.instructions if i.name == "ELTWISE"} == {0, 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_token_policy_and_instruction_set_gives_the_same_pool(whole: Subject, policy: str) -> None:
    for seed in range(1, 6 if policy == "random" else 2):
        for fill in (0, 0xA5):
            assert csim_pool(whole.binary.image, whole.pools[0], policy, seed, fill) == whole.golden[0]
    for level in _native.sim.levels():
        for threads in (1, 2, 3):
            found = sim_pool(whole.binary.image, whole.binary.meta, whole.pools[0], threads, level)
            assert found == whole.golden[0], (level, threads)


# ---- instruction fields
def kinds(whole: Subject, name: str) -> list[int]:
    """The first instruction of every stage, kind and region of an opcode."""
    first: dict[tuple[Any, ...], int] = {}
    for index, (instruction, v) in enumerate(whole.instructions):
        if instruction.name == name:
            key = tuple(v.get(f) for f in ("stage", "kind", "broadcast_b", "single", "region", "residual", "sum_stage"))
            first.setdefault(key, index)
    return list(first.values())


def requant(whole: Subject, index: int) -> np.ndarray | None:
    """The records of the layer that an instruction belongs to."""
    for layer in whole.binary.meta["layers"]:
        section = f"{layer['id']}_requant"
        if layer["first_instruction"] <= index <= layer["last_instruction"] and section in whole.parsed.sections:
            return np.frombuffer(whole.parsed[section].data, REQUANT_DTYPE)
    return None


def change_fields(
    whole: Subject, indices: Iterable[int], bits: Callable[[int, Field], Iterable[int]]
) -> tuple[list[str], Counter[str]]:
    """Flips bits of every field of these instructions. What went unnoticed without a reason or divided the devices; reasons of the others."""
    wrong: list[str] = []
    reasons: Counter[str] = Counter()
    for index in indices:
        instruction, values = whole.instructions[index]
        for field in instruction.all_fields:
            before = instruction.opcode if field.name == "opcode" else values[field.name]
            for bit in bits(index, field):
                raw = (before & ((1 << field.width) - 1)) ^ (1 << bit)
                image = whole.with_field(index, field, raw)
                what = f"instruction {index} ({instruction.name}).{field.name} {before:#x}, bit {bit}"
                csim = csim_verdict(whole, image)
                if unlike := disagreement(csim, sim_verdict(whole, image)):
                    wrong.append(f"{what}: {unlike}")
                reason = _reason(whole, index, instruction, values, field, raw)
                if not noticed(whole, image, csim):
                    reasons[reason] += 1
                    if not reason:
                        wrong.append(f"{what}: not noticed")
                elif reason == SAME and not csim.refusal:
                    wrong.append(f"{what}: means the same, but gives other bytes")
    return wrong, reasons


def _reason(
    whole: Subject, index: int, instruction: Instruction, values: dict[str, int], field: Field, raw: int
) -> str:
    if field in HEADER:
        return ""
    signed = raw - (1 << field.width) if field.signed and raw >> (field.width - 1) else raw
    halves = values.get("sram_col_stride") == 64 and values.get("chunk") == 32 and raw ^ values[field.name] == 32
    if instruction.name == "STORE" and field.name == "sram_addr" and halves:
        return "`sum` lies twice in `twice`, a tensor joined with itself: the other half holds the same bytes"
    one_lane = any(
        layer["first_instruction"] <= index <= layer["last_instruction"] and layer["trace"]["lanes"] == [0]
        for layer in whole.binary.meta["layers"]
    )
    after = values | {field.name: signed}
    return harmless(instruction.name, values, after, requant(whole, index), one_lane, never_matter())


@lru_cache(maxsize=1)
def never_matter() -> frozenset[int]:
    """File offsets of bytes that cannot matter."""
    return dead_offsets(subject())


def few_bits(index: int, field: Field) -> list[int]:
    """The lowest bit, the lowest above the alignment, the highest and a drawn one; all of opcode and tokens."""
    if field in HEADER:
        return list(range(field.width))
    drawn = random.Random(f"{index} {field.name}").randrange(field.width)
    return sorted({0, min(4, field.width - 1), field.width - 1, drawn})


@pytest.mark.parametrize("name", NAMES)
def test_changed_field_is_noticed(whole: Subject, name: str) -> None:
    wrong, _ = change_fields(whole, kinds(whole, name), few_bits)
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_every_changed_bit_is_noticed(whole: Subject, name: str) -> None:
    indices = [i for i, (instruction, _) in enumerate(whole.instructions) if instruction.name == name]
    wrong, reasons = change_fields(whole, indices, lambda index, field: range(field.width))
    assert not wrong, "\n".join(wrong)
    print(name, dict(reasons))


def test_every_changed_token_is_noticed(whole: Subject) -> None:
    """Of all instructions: a token more or less is a deadlock, or left at the end; both devices say so."""
    for index, (instruction, values) in enumerate(whole.instructions):
        for field in HEADER[1:]:
            for bit in range(field.width):
                image = whole.with_field(index, field, values[field.name] ^ (1 << bit))
                assert csim_verdict(whole, image).refusal, (index, instruction.name, field.name, bit)
                assert sim_verdict(whole, image).refusal, (index, instruction.name, field.name, bit)


# ---- parameter bytes
def change_bytes(whole: Subject, section: str, offsets: Iterable[int]) -> list[str]:
    """Changes one byte after the other, by its highest bit, then all bits, then others, until it is noticed; what was not, or divided the devices.
    Bytes that cannot matter are changed as well, once, to compare the devices."""
    where, dead, wrong = whole.parsed[section], dead_bytes(whole, section), []
    for offset in offsets:
        seen = False
        for flipped in (0x80, 0xFF, 0x7F, 0x40, 0x01):
            image = whole.with_bytes(where.offset + offset, bytes([where.data[offset] ^ flipped]))
            csim = csim_verdict(whole, image)
            if unlike := disagreement(csim, sim_verdict(whole, image)):
                wrong.append(f"{section} byte {offset} ^ {flipped:#x}: {unlike}")
            seen = offset in dead or noticed(whole, image, csim)
            if seen:
                break
        if not seen:
            wrong.append(f"{section} ({whole.binary.meta['sections'][section]}) byte {offset}: not noticed")
    return wrong


def test_changed_parameter_byte_is_noticed(whole: Subject) -> None:
    names, wrong = list(sections(whole)), []
    assert {n.rpartition("_")[2] for n in names} >= {
        "weight",
        "bias",
        "requant",
        "table",
        "operand",
        "pad",
        "rows",
        "sum",
    }
    for name in names:
        size = whole.parsed[name].size
        wrong += change_bytes(whole, name, random.Random(name).sample(range(size), min(size, 10)))
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
def test_every_changed_parameter_byte_is_noticed(whole: Subject) -> None:
    wrong = [w for name in sections(whole) for w in change_bytes(whole, name, range(whole.parsed[name].size))]
    assert not wrong, "\n".join(wrong)


# ---- wrong semantics
def plain_shift(x: np.ndarray, shift: np.ndarray | int) -> np.ndarray:
    """A shift that has forgotten to round."""
    return np.asarray(x, np.int64) >> shift


def test_integer_semantics_without_rounding_are_caught(whole: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    records = whole.binary.trace("sim", 1, whole.feeds[0])
    wanted = visible(whole.quantised, whole.binary)
    assert compare("sim", records, whole.quantised.integers(whole.feeds[0]), wanted) == []
    monkeypatch.setattr(arithmetic, "rounding_shift", plain_shift)
    found = compare("sim", records, whole.quantised.integers(whole.feeds[0]), [])
    layers = " ".join(d.layer for d in found)
    for name in ("stem", "curve", "depth", "depth_curve", "sum", "gated", "affine", "up", "inner", "leaky_residual"):
        assert f"({name})" in layers


@pytest.mark.parametrize(
    "name",
    [
        "stem",
        "depth",
        "largest",
        "mean",
        "sum",
        "gated",
        "affine",
        "linear",
        "nearest",
        "up",
        "inner",
        "leaky_residual",
    ],
)
def test_one_wrong_value_of_one_operator_is_caught(whole: Subject, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest bit of one value: the difference is found on both devices and names the layer."""
    kind = type(operator.get(whole.quantised.qgraph.graph.node(name)))
    right = kind.integer

    def wrong(self: Any, node: Any, inputs: Any, qgraph: Any) -> np.ndarray:
        result = np.array(right(self, node, inputs, qgraph))
        if node.name == name:
            result[0, -1, -1, -1] ^= 1
        return result

    monkeypatch.setattr(kind, "integer", wrong)
    expected = whole.quantised.integers(whole.feeds[0])
    for device in ("csim", "sim"):
        found = compare(device, whole.binary.trace(device, 1, whole.feeds[0]), expected, [])
        assert found and f"({name})" in found[0].layer and found[0].bits == 1


def test_comparison_sees_pad_lanes_and_missing_layers(whole: Subject) -> None:
    records = whole.binary.trace("csim", 1, whole.feeds[0])
    expected: Arrays = whole.quantised.integers(whole.feeds[0])
    assert compare("csim", records, expected, ["stem"]) == []
    (pad,) = compare("csim", [replace(records[0], pad_lane_errors=1), *records[1:]], expected, ["stem"])
    assert "pad lanes" in str(pad)
    (missing,) = compare("csim", records[1:], expected, [records[0].tensor])
    assert "not in the trace" in str(missing)
    (shape,) = compare("csim", [replace(records[0], data=records[0].data[:, 1:])], expected, [])
    assert shape.bits > 0
