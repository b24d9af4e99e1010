"""Encoder, decoder and disassembler of instructions, and numpy dtypes of the parameter records. Owns no layout: that is `instructions.py`.

`encode` and `decode` are exact inverses on legal words: a value that does not fit its field, an unknown opcode and a set reserved bit are
each an `InstructionError` that names the field. What an engine further refuses (bounds, alignment, stage) is the engine's to check.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.isa.instructions import (
    BF16_RECORD,
    BY_NAME,
    BY_OPCODE,
    INSTRUCTION_BYTES,
    INSTRUCTION_WORDS,
    OPERAND_RECORD,
    REQUANT_RECORD,
    RESIZE_BF16_RECORD,
    RESIZE_RECORD,
    EltwiseKind,
    Engine,
    Field,
    Instruction,
    PoolKind,
    Region,
    Stage,
)

_WORDS = struct.Struct(f"<{INSTRUCTION_WORDS}I")
_DTYPES = {"int8": "i1", "int16": "<i2", "int32": "<i4", "float32": "<f4"}


def field_range(field: Field) -> tuple[int, int]:
    """Smallest and largest value that `field` holds."""
    if field.signed:
        return -(1 << (field.width - 1)), (1 << (field.width - 1)) - 1
    return 0, (1 << field.width) - 1


def used_masks(instruction: Instruction) -> tuple[int, ...]:
    """Per word, the bits that belong to a field; all others are reserved and must be zero."""
    masks = [0] * INSTRUCTION_WORDS
    for field in instruction.all_fields:
        masks[field.word] |= ((1 << field.width) - 1) << field.lsb
    return tuple(masks)


_MASKS = {instruction.name: used_masks(instruction) for instruction in BY_NAME.values()}


def encode(name: str, **fields: int) -> bytes:
    """The 128 bytes of instruction `name`. A field that is not given is 0.

    >>> len(encode("HALT", pop=int(2)))
    128
    """
    if name not in BY_NAME:
        raise InstructionError(f"instruction {name!r}: no such instruction; known: {', '.join(BY_NAME)}")
    instruction = BY_NAME[name]
    words = [0] * INSTRUCTION_WORDS
    words[0] = instruction.opcode
    known = {field.name: field for field in instruction.all_fields if field.name != "opcode"}
    for key, raw in fields.items():
        if key not in known:
            raise InstructionError(f"{name}.{key}: no such field; known: {', '.join(known)}")
        try:
            value = raw.__index__()
        except AttributeError:
            raise InstructionError(f"{name}.{key}: expected an integer, found {raw!r}") from None
        field = known[key]
        low, high = field_range(field)
        if not low <= value <= high:
            raise InstructionError(f"{name}.{key}: expected {low}..{high} ({field.width} bits), found {value}")
        words[field.word] |= (value & ((1 << field.width) - 1)) << field.lsb
    return _WORDS.pack(*words)


def _extract(words: tuple[int, ...], field: Field) -> int:
    value = (words[field.word] >> field.lsb) & ((1 << field.width) - 1)
    return value - (1 << field.width) if field.signed and value >> (field.width - 1) else value


def decode(data: bytes) -> tuple[Instruction, dict[str, int]]:
    """Instruction and all its fields (`opcode` left out) of 128 bytes."""
    if len(data) != INSTRUCTION_BYTES:
        raise InstructionError(f"instruction: expected {INSTRUCTION_BYTES} bytes, found {len(data)}")
    words = _WORDS.unpack(data)
    opcode = words[0] & 0xFF
    if opcode not in BY_OPCODE:
        known = ", ".join(f"0x{code:02x} {i.name}" for code, i in BY_OPCODE.items())
        raise InstructionError(f"opcode: expected one of {known}, found 0x{opcode:02x}")
    instruction = BY_OPCODE[opcode]
    for index, (word, mask) in enumerate(zip(words, _MASKS[instruction.name], strict=True)):
        if word & ~mask:
            raise InstructionError(f"{instruction.name} word {index}: reserved bits 0x{word & ~mask:08x} must be zero")
    return instruction, {f.name: _extract(words, f) for f in instruction.all_fields if f.name != "opcode"}


def split(data: bytes) -> Iterator[bytes]:
    """The 128-byte instructions of an instruction section."""
    if len(data) % INSTRUCTION_BYTES:
        raise InstructionError(f"instructions: expected a multiple of {INSTRUCTION_BYTES} bytes, found {len(data)}")
    for start in range(0, len(data), INSTRUCTION_BYTES):
        yield data[start : start + INSTRUCTION_BYTES]


def engines_of(mask: int) -> str:
    """Token mask as words: `LOAD+CONV`, `-` for none."""
    return "+".join(engine.name for engine in Engine if mask >> engine & 1) or "-"


def _kind(instruction: Instruction, value: int) -> str:
    kinds: type[EltwiseKind] | type[PoolKind] = EltwiseKind if instruction.name.startswith("ELTWISE") else PoolKind
    return kinds(value).name.lower() if value in list(kinds) else f"?{value}"


def _pair(values: dict[str, int], key: str) -> str:
    return f"{values[key + '_h']}x{values[key + '_w']}"


def _operands(instruction: Instruction, values: dict[str, int]) -> Iterator[str]:
    """Readable operands in the order of the table; pairs are joined, zero fields of optional features are left out."""
    pairs = {"in_h": "in", "kernel_h": "kernel", "stride_h": "stride", "dilation_h": "dilation", "out_h": "out"}
    skip = {"pop", "push"} | {f"{name}_w" for name in pairs.values()}
    if instruction.name == "CONV" and values["residual"] == 0:
        skip |= {
            "residual",
            "sum_stage",
            "sum_requant_addr",
            "operand_addr",
            "b_addr",
            "b_row_stride",
            "b_pixel_stride",
        }
    quiet = {
        "tail_low",
        "tail_high",
        "tail_low_is_input",
        "tail_high_is_input",
        "fraction_bits",
        "broadcast_b",
        "single",
    }
    for field in instruction.fields:
        name, value = field.name, values[field.name]
        if name in skip or (name in quiet and value == 0):
            continue
        if name in pairs:
            yield f"{pairs[name]}={_pair(values, pairs[name])}"
        elif name in ("stage", "sum_stage"):
            yield f"{name}={Stage(value).name.lower() if value in list(Stage) else f'?{value}'}"
        elif name == "region":
            yield f"region={Region(value).name.lower() if value in list(Region) else f'?{value}'}"
        elif name == "kind":
            yield f"kind={_kind(instruction, value)}"
        elif name.endswith("addr") or name == "pad_bytes":
            yield f"{name}=0x{value:x}"
        else:
            yield f"{name}={value}"


def disassemble_one(data: bytes, index: int = 0) -> str:
    """One line: index, engine, name, tokens waited for and given, operands."""
    instruction, values = decode(data)
    tokens = f"wait:{engines_of(values['pop'])} give:{engines_of(values['push'])}"
    head = f"{index:6d}  {instruction.engine.name:<6} {instruction.name:<9} {tokens:<34}"
    return f"{head} {' '.join(_operands(instruction, values))}".rstrip()


def disassemble(data: bytes, first_index: int = 0) -> str:
    """One line per instruction of a whole stream. Errors name the index."""
    lines = []
    for index, one in enumerate(split(data), first_index):
        try:
            lines.append(disassemble_one(one, index))
        except InstructionError as error:
            raise InstructionError(f"instruction {index}: {error}") from None
    return "\n".join(lines)


def record_dtype(record: tuple[tuple[str, str, str], ...]) -> np.dtype:
    """numpy structured dtype (packed, little-endian) of a parameter record."""
    return np.dtype([(name, _DTYPES[kind]) for name, kind, _ in record])


REQUANT_DTYPE = record_dtype(REQUANT_RECORD)
OPERAND_DTYPE = record_dtype(OPERAND_RECORD)
RESIZE_DTYPE = record_dtype(RESIZE_RECORD)
BF16_DTYPE = record_dtype(BF16_RECORD)
RESIZE_BF16_DTYPE = record_dtype(RESIZE_BF16_RECORD)

__all__ = [
    "BF16_DTYPE",
    "OPERAND_DTYPE",
    "REQUANT_DTYPE",
    "RESIZE_BF16_DTYPE",
    "RESIZE_DTYPE",
    "decode",
    "disassemble",
    "disassemble_one",
    "encode",
    "engines_of",
    "field_range",
    "record_dtype",
    "split",
    "used_masks",
]
