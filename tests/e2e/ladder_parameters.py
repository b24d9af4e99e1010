"""Which parameter bytes of a `.bin` legitimately cannot matter, each with its reason. All others must be noticed when changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from ladder_meaning import meaning
from ladder_mutation import Subject

from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE, RESIZE_DTYPE
from npuforge.hw_kernels.isa.instructions import EltwiseKind, PoolKind, Stage

PARAMETERS = ("weight", "bias", "requant", "table", "operand", "pad", "rows", "cols", "sum")
Decoded = tuple[str, dict[str, int]]


def sections(subject: Subject) -> Iterator[str]:
    """Parameter sections, in file order."""
    return (name for name in subject.parsed.sections if name.rpartition("_")[2] in PARAMETERS and name[0] == "L")


def dead_bytes(subject: Subject, section: str) -> dict[int, str]:
    """Byte of the section -> why it cannot matter."""
    layer_id, _, kind = section.rpartition("_")
    layer = next(layer for layer in subject.binary.meta["layers"] if layer["id"] == layer_id)
    span = slice(layer["first_instruction"], layer["last_instruction"] + 1)
    work = [(i.name, v) for i, v in subject.instructions[span] if i.name not in ("LOAD", "STORE", "LOAD_FOLD")]
    fold = _fold(subject, layer["first_instruction"])
    size = subject.parsed[section].size
    found: dict[int, str] = {}
    lanes = layer["trace"]["lane_count"]
    pads = sorted(set(range(lanes)) - set(layer["trace"]["lanes"]))
    if kind in ("weight", "bias", "requant", "operand", "sum") and pads and work[0][0] == "CONV":
        each = size // lanes
        reason = "of a pad lane of the output, whose multipliers are 0"
        found |= {lane * each + byte: reason for lane in pads for byte in range(each)}
    if kind == "weight" and fold is not None:
        used = fold["kernel_h"] * fold["kernel_w"] * fold["channels"]
        blocks = 16 * work[0][1]["blocks_in"]
        found |= {b: "of a lane of the folded image that is always 0" for b in range(size) if b % blocks >= used}
    if kind == "sum" and work[0][1]["sum_stage"] == Stage.DIRECT:
        found |= _members(size, REQUANT_DTYPE, dict.fromkeys(("m0", "m1"), "the direct stage has no multipliers"))
    elif kind == "requant":
        found |= _members(size, REQUANT_DTYPE, _unused_requant(work))
    elif kind == "operand":
        found |= _members(size, OPERAND_DTYPE, _unused_operand(work))
    elif kind == "weight" and work[0][0] == "POOL":
        found |= _counts(work, size)
    elif kind == "pad" and not any(_reads_border(one) for one in work):
        found |= dict.fromkeys(range(size), "no instruction of the layer reads a border")
    elif kind in ("rows", "cols"):
        found |= _resize(subject, section, kind, work)
    return found


def dead_offsets(subject: Subject) -> frozenset[int]:
    """File offsets of all of them, and of the padding between sections."""
    live: set[int] = set()
    for section in subject.parsed.sections.values():
        dead = dead_bytes(subject, section.name) if section.name in set(sections(subject)) else {}
        live |= {section.offset + byte for byte in range(section.size) if byte not in dead}
    return frozenset(set(range(len(subject.binary.image))) - live)


def _fold(subject: Subject, first: int) -> dict[str, int] | None:
    """The LOAD_FOLD that made the input of the convolution at index `first`."""
    opcode, reader = subject.instructions[first]
    if opcode.name != "CONV":
        return None
    for instruction, v in reversed(subject.instructions[:first]):
        written = v.get("sram_addr") if instruction.name == "LOAD" else v.get("out_addr")
        if written == reader["in_addr"]:
            return v if instruction.name == "LOAD_FOLD" else None
    return None


def _members(size: int, dtype: np.dtype[Any], unused: dict[str, str]) -> dict[int, str]:
    fields = dtype.fields
    assert fields is not None
    return {
        record + fields[member][1] + byte: reason
        for record in range(0, size, dtype.itemsize)
        for member, reason in unused.items()
        for byte in range(fields[member][0].itemsize)
    }


def _unused_requant(work: list[Decoded]) -> dict[str, str]:
    name, v = work[0]
    if name == "POOL":
        return dict.fromkeys(("m0", "m1", "s0", "a", "b"), "average pooling reads z only")
    if v["stage"] == Stage.DIRECT:
        return dict.fromkeys(("m0", "m1"), "the direct stage has no multipliers")
    return {}


def _unused_operand(work: list[Decoded]) -> dict[str, str]:
    name, v = work[0]
    if name == "POOL":
        return dict.fromkeys(("ma", "mb", "zb"), "average pooling reads za only")
    if name == "CONV":
        return {}
    if v["kind"] == EltwiseKind.MUL:
        return {"mb": "a product has one multiplier"}
    if v["kind"] == EltwiseKind.AFFINE:
        return dict.fromkeys(("mb", "zb"), "an affine layer has one operand")
    return {}


def _counts(work: list[Decoded], size: int) -> dict[int, str]:
    """Rows of multipliers for numbers of valid taps that do not occur."""
    seen: set[int] = set()
    for name, v in work:
        assert v["kind"] == PoolKind.AVERAGE
        if v["single"]:
            return {}
        rows, columns = meaning(name, v)[1:3]  # type: ignore[index]
        seen |= {len(r) * len(c) for r in rows for c in columns}
    row = 2 * 16 * work[0][1]["blocks_out"]
    return {b: "no window has so many valid taps" for b in range(size) if b // row + 1 not in seen}


def _reads_border(one: Decoded) -> bool:
    return "pad_addr" in dict(meaning(*one)[-1])  # type: ignore[index]


def _resize(subject: Subject, section: str, kind: str, work: list[Decoded]) -> dict[int, str]:
    """Between the bands' tables, and weights of a record whose two coordinates are one."""
    data, field = subject.parsed[section].data, "row" if kind == "rows" else "col"
    tables = {v[f"{field}_table_addr"]: v["out_h" if kind == "rows" else "out_w"] for _, v in work}
    first = min(tables)
    used = {a - first + byte for a, count in tables.items() for byte in range(RESIZE_DTYPE.itemsize * count)}
    found = {b: "alignment between two bands" for b in range(len(data)) if b not in used}
    records = np.frombuffer(data, RESIZE_DTYPE)
    for number in np.flatnonzero(records["i0"] == records["i1"]):
        for byte in (4, 5):
            found.setdefault(8 * int(number) + byte, "both coordinates are the same, so that weights do not matter")
    return found
