"""Generates `npu_isa.hpp` (layout for HLS code and simulator, no arithmetic) and `docs/isa.md` from the instruction table.

python -m npuforge.hw_kernels.isa.generate --header .native-build/npu_isa.hpp --docs docs/isa.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from npuforge.hw_kernels.isa.codec import field_range, used_masks
from npuforge.hw_kernels.isa.instructions import (
    BF16_RECORD,
    HEADER,
    INSTRUCTION_BYTES,
    INSTRUCTION_WORDS,
    INSTRUCTIONS,
    ISA_VERSION,
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
    needs_bf16,
)

RECORDS = (
    ("RequantRecord", REQUANT_RECORD),
    ("OperandRecord", OPERAND_RECORD),
    ("ResizeRecord", RESIZE_RECORD),
    ("Bf16Record", BF16_RECORD),
    ("ResizeBf16Record", RESIZE_BF16_RECORD),
)
_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "float32": 4}


def type_name(name: str) -> str:
    """`LOAD_FOLD` -> `LoadFold`."""
    return "".join(part.capitalize() for part in name.split("_"))


def field_names() -> list[str]:
    """Every distinct field name, in order of first appearance (values of `FieldId`, from 1)."""
    seen: dict[str, None] = {}
    for instruction in INSTRUCTIONS:
        for field in instruction.all_fields:
            seen.setdefault(field.name)
    return list(seen)


def _enum(name: str, members: Iterator[tuple[str, int]], doc: str) -> Iterator[str]:
    yield f"/// {doc}"
    yield f"enum class {name} : uint32_t {{"
    for member, value in members:
        yield f"    {member} = {value},"
    yield "};"
    yield ""


def _extract(field: Field) -> str:
    if field.width == 32:
        return f"words[{field.word}]" if not field.signed else f"(int32_t)words[{field.word}]"
    if field.signed:
        return f"sign_extend(words[{field.word}] >> {field.lsb}, {field.width})"
    return f"(words[{field.word}] >> {field.lsb}) & 0x{(1 << field.width) - 1:x}u"


def _struct(instruction: Instruction) -> Iterator[str]:
    name = type_name(instruction.name)
    yield f"/// {instruction.name}: {instruction.meaning}"
    yield f"struct {name} {{"
    yield f"    static constexpr Opcode OPCODE = Opcode::{instruction.name};"
    yield f"    static constexpr Engine ENGINE = Engine::{instruction.engine.name};"
    for field in instruction.all_fields:
        if field.name == "opcode":
            continue
        low, high = field_range(field)
        doc = f" {field.doc}" if field.doc else ""
        span = f"[{low}, {high}]" if field.width < 32 else ""
        comment = f"  ///<{doc} {span}".rstrip() if doc or span else ""
        yield f"    {'int32_t' if field.signed else 'uint32_t'} {field.name} = 0;{comment}"
    yield ""
    yield f"    static {name} decode(const uint32_t* words) {{"
    yield f"        {name} i;"
    for field in instruction.all_fields:
        if field.name != "opcode":
            yield f"        i.{field.name} = {_extract(field)};"
    yield "        return i;"
    yield "    }"
    yield "};"
    yield ""


def _member(kind: str) -> str:
    """C++ type of a record member: floats are kept as their bits, since this header has no arithmetic."""
    return "uint32_t" if kind == "float32" else "int32_t"


def _record(name: str, record: tuple[tuple[str, str, str], ...]) -> Iterator[str]:
    size = sum(_WIDTHS[kind] for _, kind, _ in record)
    yield f"/// Parameter record of {size} bytes, little-endian, one per lane (resize: per output row or column)."
    yield f"struct {name} {{"
    yield f"    static constexpr uint32_t BYTES = {size};"
    for field, kind, doc in record:
        yield f"    {_member(kind)} {field} = 0;  ///< {kind}{' bits' if kind == 'float32' else ''}: {doc}"
    yield ""
    yield f"    static {name} decode(const uint8_t* bytes) {{"
    yield f"        {name} r;"
    offset = 0
    for field, kind, _ in record:
        width = _WIDTHS[kind]
        parts = " | ".join(f"(uint32_t)bytes[{offset + k}]" + (f" << {8 * k}" if k else "") for k in range(width))
        yield (
            f"        r.{field} = {parts};"
            if kind == "float32"
            else f"        r.{field} = sign_extend({parts}, {8 * width});"
        )
        offset += width
    yield "        return r;"
    yield "    }"
    yield "};"
    yield ""


def _switch(signature: str, cases: Iterator[tuple[str, str]], default: str, doc: str) -> Iterator[str]:
    yield f"/// {doc}"
    yield f"inline {signature} {{"
    yield "    switch (opcode) {"
    for case, result in cases:
        yield f"        case {case}: return {result};"
    yield f"        default: return {default};"
    yield "    }"
    yield "}"
    yield ""


def _reserved() -> Iterator[str]:
    yield "/// Bits of word `word` that belong to a field of `opcode`; all others are reserved and must be 0. 0 for an unknown opcode."
    yield "inline uint32_t used_bits(uint32_t opcode, uint32_t word) {"
    yield "    switch (opcode) {"
    for instruction in INSTRUCTIONS:
        yield f"        case 0x{instruction.opcode:02x}u:  // {instruction.name}"
        yield "            switch (word) {"
        for word, mask in enumerate(used_masks(instruction)):
            if mask:
                yield f"                case {word}: return 0x{mask:08x}u;"
        yield "                default: return 0u;"
        yield "            }"
    yield "        default: return 0u;"
    yield "    }"
    yield "}"
    yield ""
    yield "/// First word of the instruction with a reserved bit set, INSTRUCTION_WORDS if there is none."
    yield "inline uint32_t first_reserved_word(const uint32_t* words) {"
    yield "    const uint32_t opcode = words[0] & 0xffu;"
    yield "    for (uint32_t w = 0; w < INSTRUCTION_WORDS; ++w) {"
    yield "        if ((words[w] & ~used_bits(opcode, w)) != 0u) return w;"
    yield "    }"
    yield "    return INSTRUCTION_WORDS;"
    yield "}"
    yield ""


def _field_value() -> Iterator[str]:
    yield "/// Value of a field of any instruction, 0 if the opcode does not have it (for messages)."
    yield "inline int64_t field_value(const uint32_t* words, FieldId field) {"
    yield "    switch (opcode_of(words)) {"
    for instruction in INSTRUCTIONS:
        yield f"        case 0x{instruction.opcode:02x}u: {{  // {instruction.name}"
        yield f"            const {type_name(instruction.name)} i = {type_name(instruction.name)}::decode(words);"
        yield "            switch (field) {"
        for field in instruction.all_fields:
            value = "opcode_of(words)" if field.name == "opcode" else f"i.{field.name}"
            yield f"                case FieldId::{field.name}: return {value};"
        yield "                default: return 0;"
        yield "            }"
        yield "        }"
    yield "        default: return field == FieldId::opcode ? opcode_of(words) : 0;"
    yield "    }"
    yield "}"
    yield ""


def header_text() -> str:
    """The whole of `npu_isa.hpp`."""
    lines = [
        "// Generated by hw_kernels/isa/generate.py from hw_kernels/isa/instructions.py. Do not edit.",
        "// Owns the layout of instructions and parameter records; it has no arithmetic, so that simulator and HLS code may share it.",
        "#pragma once",
        "",
        "#include <stdint.h>",
        "",
        "namespace npuforge {",
        "namespace isa {",
        "",
        f"constexpr uint32_t ISA_VERSION = {ISA_VERSION};",
        f"constexpr uint32_t INSTRUCTION_WORDS = {INSTRUCTION_WORDS};",
        f"constexpr uint32_t INSTRUCTION_BYTES = {INSTRUCTION_BYTES};",
        f"constexpr uint32_t ENGINE_COUNT = {len(Engine)};",
        "",
    ]
    lines += _enum(
        "Engine", ((e.name, int(e)) for e in Engine), "Instruction queues; the value is the bit in `pop` and `push`."
    )
    lines += _enum("Region", ((r.name, int(r)) for r in Region), "DDR regions addressed by LOAD and STORE.")
    lines += _enum("Stage", ((s.name, int(s)) for s in Stage), "Output stage kinds.")
    lines += _enum("EltwiseKind", ((k.name, int(k)) for k in EltwiseKind), "Functions of ELTWISE.")
    lines += _enum("PoolKind", ((k.name, int(k)) for k in PoolKind), "Functions of POOL.")
    lines += _enum("Opcode", ((i.name, i.opcode) for i in INSTRUCTIONS), "Bits 0..7 of word 0.")
    lines += _enum(
        "FieldId",
        iter([("none", 0), *((n, k) for k, n in enumerate(field_names(), 1))]),
        "Names of fields, for refusals.",
    )
    lines += [
        "/// Two's complement value of the low `width` bits.",
        "inline int32_t sign_extend(uint32_t value, int width) {",
        "    const uint32_t sign = 1u << (width - 1);",
        "    const uint32_t low = value & ((sign << 1) - 1u);",
        "    return (int32_t)((low ^ sign) - sign);",
        "}",
        "",
        f"constexpr uint32_t HEADER_POP_LSB = {HEADER[1].lsb};",
        f"constexpr uint32_t HEADER_PUSH_LSB = {HEADER[2].lsb};",
        "inline uint32_t opcode_of(const uint32_t* words) { return words[0] & 0xffu; }",
        f"inline uint32_t pop_of(const uint32_t* words) {{ return (words[0] >> {HEADER[1].lsb}) & 0xfu; }}",
        f"inline uint32_t push_of(const uint32_t* words) {{ return (words[0] >> {HEADER[2].lsb}) & 0xfu; }}",
        "",
    ]
    lines += _switch(
        "bool known_opcode(uint32_t opcode)",
        ((f"0x{i.opcode:02x}u", "true") for i in INSTRUCTIONS),
        "false",
        "Whether `opcode` names an instruction.",
    )
    lines += _switch(
        "int engine_of(uint32_t opcode)",
        ((f"0x{i.opcode:02x}u", f"{int(i.engine)}") for i in INSTRUCTIONS),
        "-1",
        "Queue that executes `opcode` (an `Engine`), -1 for an unknown one.",
    )
    lines += _switch(
        "bool needs_bf16(uint32_t opcode)",
        ((f"0x{i.opcode:02x}u", "true") for i in INSTRUCTIONS if needs_bf16(i.name)),
        "false",
        "Whether `opcode` exists only on an arch with the feature bf16.",
    )
    lines += _switch(
        "const char* opcode_name(uint32_t opcode)",
        ((f"0x{i.opcode:02x}u", f'"{i.name}"') for i in INSTRUCTIONS),
        '"?"',
        "Name of `opcode` as in the instruction table.",
    )
    lines += [
        "/// Name of a field as in the instruction table.",
        "inline const char* field_name(FieldId field) {",
        "    switch (field) {",
        *(f'        case FieldId::{n}: return "{n}";' for n in field_names()),
        '        default: return "none";',
        "    }",
        "}",
        "",
    ]
    lines += _reserved()
    for name, record in RECORDS:
        lines += _record(name, record)
    for instruction in INSTRUCTIONS:
        lines += _struct(instruction)
    lines += _field_value()
    lines += ["}  // namespace isa", "}  // namespace npuforge", ""]
    return "\n".join(lines)


REFUSALS = """\
## What is refused

Simulator (`board_runtime/src/sim/check.cpp`) and hardware (`hw_kernels/hls/checks.hpp`) refuse the same instructions, naming the field, before they
touch memory; `tests/hw_kernels/test_hls_equals_sim.py` compares them on mutated instructions.

* *Every instruction*: an unknown opcode; a reserved bit that is set. The last instruction of a partition must be HALT, and no other.
* *Counts* (`rows`, `cols`, `in_h`, `in_w`, `out_h`, `out_w`, `blocks_in`, `blocks_out`, kernel, stride, dilation): at least 1. `chunk`: a positive
  multiple of 16.
* *Alignment*: every address and stride is a multiple of 16, in SRAM and DDR; except `ddr_addr` and `ddr_row_stride` of LOAD_FOLD, and `b_addr`
  where `broadcast_b` is set.
* *Bounds*: every byte that an instruction can address lies in SRAM or in its DDR region; parameters included, the last byte exactly.
* *Output*: pixels and rows do not share bytes. Where there is more than one column, `out_pixel_stride` is at least 16·`blocks_out`; where there is
  more than one row, `out_row_stride` is at least (`out_w` − 1)·`out_pixel_stride` + 16·`blocks_out`.
* *Stage*: CONV and DEPTHWISE take pwl or table, ELTWISE also direct. Table: `fraction_bits` 5..11, a tail value is 0 where that tail is the input.
  Other stages: `fraction_bits`, tails and `table_addr` are 0.
* *LOAD, STORE, LOAD_FOLD*: `region` 0 or 1; STORE only 1. LOAD_FOLD: 1..4 channels, dilations 1, kernel_h·kernel_w·channels at most
  16·`blocks_out`, `pad_bytes` 0 above the last channel.
* *POOL*: every window has at least one valid tap. Average: `shift` 0..47; `single` only where all windows have the same number of valid taps.
  Maximum: `weight_addr`, `requant_addr`, `operand_addr`, `shift`, `single` are 0.
* *CONV*: without `residual`, `sum_stage`, `sum_requant_addr`, `operand_addr`, `b_addr`, `b_row_stride`, `b_pixel_stride` are 0; with it, `sum_stage` is
  0 (pwl) or 2 (direct).
* *ELTWISE*: affine has `broadcast_b`, `b_addr`, `b_row_stride`, `b_pixel_stride` 0; the others have `bias_addr` 0.
* *Parameter records* (checked when the instruction runs): shifts 0..47; the unused last byte of a table-stage record and reserved members 0; resize
  coordinates inside the rows or columns held, weights 0..256.
* *bf16*: an instruction whose name ends in _BF16 is an unknown opcode on an arch without the feature. Where the text above says 16·`blocks_out`
  bytes, read 32. `ddr_addr` and `ddr_row_stride` of LOAD_FOLD_BF16, and `b_addr` where `broadcast_b` is set, are multiples of 2. The stage is pwl or
  table; pwl: tails and `table_addr` 0; a tail value is 0 where that tail is the input. Maximum pooling: `weight_addr` and `single` 0. `operand_addr` is 0
  unless the function is affine. Resize weights lie in 0..1.
* *Tokens*: a program in which every engine waits is a deadlock, not a hang; a counter beyond 65,535 and a token left at the end are refused too.

Not checked by hardware: an output that overwrites input bytes still to be read by the same instruction. ELTWISE and COPY may work in place (same address
and strides), and so may CONV on the skip tensor of its residual stage; the simulator refuses everything else. Accumulators are int32 and wrap; the compiler refuses layers that could.
"""


def _field_table(fields: tuple[Field, ...]) -> Iterator[str]:
    yield "| field | word | bits | values | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for field in fields:
        low, high = field_range(field)
        bits = f"{field.lsb + field.width - 1}..{field.lsb}" if field.width > 1 else f"{field.lsb}"
        yield f"| `{field.name}` | {field.word} | {bits} | {low}..{high} | {field.doc} |"
    yield ""


def docs_text() -> str:
    """The whole of `docs/isa.md`."""
    lines = [
        "# Instruction set",
        "",
        "Generated from `hw_kernels/isa/instructions.py` by `python -m npuforge.hw_kernels.isa.generate --docs docs/isa.md`; do not edit.",
        "",
        f"ISA version {ISA_VERSION}. An instruction is {INSTRUCTION_WORDS} little-endian 32-bit words ({INSTRUCTION_BYTES} bytes). Bits that an "
        "opcode does not use are reserved: they must be 0, else the instruction is refused.",
        "",
        "Engines run concurrently, each from its own in-order queue. Bit *e* of `pop` waits for, and takes, one token that engine *e* gave to this "
        "engine before the instruction starts; bit *e* of `push` gives one token to engine *e* once it has finished. Token counters have 16 bits.",
        "",
        "SRAM is one byte-addressed on-chip memory. DDR has two regions: 0, the `.bin` file image (read only); 1, the pool. Pixel (y, x) of a "
        "feature map lies at address + y·row_stride + x·pixel_stride and holds 16·blocks lanes of int8, or of bf16 (2 bytes) for instructions whose name "
        "ends in _BF16. Those exist only on an arch with the feature `bf16`; LOAD, STORE and COPY move bytes of either. Multi-byte values are "
        "little-endian.",
        "",
        "| engine | bit | instructions |",
        "| --- | --- | --- |",
    ]
    for engine in Engine:
        names = ", ".join(f"`{i.name}`" for i in INSTRUCTIONS if i.engine == engine)
        lines.append(f"| {engine.name} | {int(engine)} | {names} |")
    lines += ["", "## Header of every instruction", "", *_field_table(HEADER)]
    for instruction in INSTRUCTIONS:
        lines += [f"## {instruction.name}", "", f"Opcode 0x{instruction.opcode:02x}, engine {instruction.engine.name}."]
        lines += [f"Meaning: {instruction.meaning}.", ""]
        if instruction.fields:
            lines += _field_table(instruction.fields)
    lines += [*REFUSALS.splitlines(), ""]
    lines += ["## Parameter records", ""]
    for name, record in RECORDS:
        size = sum(_WIDTHS[kind] for _, kind, _ in record)
        per = "output row or column" if name.startswith("Resize") else "lane"
        lines += [
            f"### {name}: {size} bytes per {per}",
            "",
            "| byte | member | type | meaning |",
            "| --- | --- | --- | --- |",
        ]
        offset = 0
        for field, kind, doc in record:
            lines.append(f"| {offset} | `{field}` | {kind} | {doc} |")
            offset += _WIDTHS[kind]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _write(path: Path, text: str) -> None:
    """Writes only when it differs, so that a build does not recompile without need."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="generate", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--header", type=Path, help="write the C++ header here")
    parser.add_argument("--docs", type=Path, help="write the Markdown page here")
    chosen = parser.parse_args(arguments)
    if not chosen.header and not chosen.docs:
        parser.error("give --header or --docs")
    if chosen.header:
        _write(chosen.header, header_text())
    if chosen.docs:
        _write(chosen.docs, docs_text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
