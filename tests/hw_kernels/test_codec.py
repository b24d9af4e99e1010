"""Instruction codec, generated header and generated page: exact inverses, every refusal, and no drift from the table."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.isa import codec, generate
from npuforge.hw_kernels.isa.instructions import BY_NAME, BY_OPCODE, INSTRUCTION_BYTES, INSTRUCTIONS, Instruction

ROOT = Path(__file__).resolve().parents[2]


@st.composite
def any_instruction(draw: st.DrawFn) -> tuple[Instruction, dict[str, int]]:
    instruction = draw(st.sampled_from(INSTRUCTIONS))
    values = {}
    for field in instruction.all_fields:
        if field.name != "opcode":
            low, high = codec.field_range(field)
            values[field.name] = draw(st.one_of(st.sampled_from([low, high, 0]), st.integers(low, high)))
    return instruction, values


@settings(max_examples=300, deadline=None)
@given(any_instruction())
def test_decode_inverts_encode(case: tuple[Instruction, dict[str, int]]) -> None:
    instruction, values = case
    data = codec.encode(instruction.name, **values)
    assert len(data) == INSTRUCTION_BYTES == 128
    found, decoded = codec.decode(data)
    assert found is instruction
    assert decoded == values


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=128, max_size=128), st.sampled_from(INSTRUCTIONS))
def test_encode_inverts_decode_or_it_is_refused(data: bytes, instruction: Instruction) -> None:
    """Random words with the reserved bits cleared decode to fields that encode to the same words; uncleared ones are refused."""
    words = np.frombuffer(data, "<u4").copy()
    masks = np.array(codec.used_masks(instruction), "<u4")
    words[0] = words[0] & ~np.uint32(0xFF) | instruction.opcode
    if (words & ~masks).any():
        with pytest.raises(InstructionError, match="reserved bits"):
            codec.decode(words.tobytes())
    legal = (words & masks).tobytes()
    found, values = codec.decode(legal)
    assert codec.encode(found.name, **values) == legal


def test_known_bytes() -> None:
    """Layout written out by hand from the table's documentation."""
    data = codec.encode(
        "CONV",
        pop=0b0001,
        push=0b1000,
        stage=1,
        fraction_bits=9,
        tail_low=-2,
        tail_high=3,
        kernel_h=3,
        kernel_w=1,
        pad_top=-1,
        pad_left=2,
    )
    words = np.frombuffer(data, "<u4")
    assert words[0] == 0x20 | 1 << 8 | 8 << 12 | 1 << 16 | 9 << 18
    assert words[1] == 0xFFFE | 3 << 16
    assert words[7] == 3 | 1 << 16
    assert words[9] == 0xFFFF | 2 << 16
    assert not words[10:].any()


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
def test_values_just_outside_are_refused(instruction: Instruction) -> None:
    for field in instruction.all_fields:
        if field.name == "opcode":
            continue
        low, high = codec.field_range(field)
        for value in (low - 1, high + 1):
            with pytest.raises(InstructionError, match=rf"{instruction.name}\.{field.name}: expected .*found {value}"):
                codec.encode(instruction.name, **{field.name: value})


def test_wrong_names_types_and_lengths_are_refused() -> None:
    with pytest.raises(InstructionError, match="FROB"):
        codec.encode("FROB")
    with pytest.raises(InstructionError, match=r"HALT\.kernel_h"):
        codec.encode("HALT", kernel_h=1)
    with pytest.raises(InstructionError, match=r"LOAD\.rows: expected an integer"):
        codec.encode("LOAD", rows=1.5)  # type: ignore[arg-type]
    with pytest.raises(InstructionError, match="128 bytes, found 127"):
        codec.decode(bytes(127))
    with pytest.raises(InstructionError, match="multiple of 128"):
        list(codec.split(bytes(130)))


def test_unknown_opcodes_are_refused() -> None:
    for opcode in set(range(256)) - set(BY_OPCODE):
        with pytest.raises(InstructionError, match=f"found 0x{opcode:02x}"):
            codec.decode(bytes([opcode]) + bytes(127))


def test_table_is_sound() -> None:
    """No two fields of one instruction share a bit, none leaves its word, opcodes and names are unique."""
    assert len(BY_NAME) == len(BY_OPCODE) == len(INSTRUCTIONS)
    for instruction in INSTRUCTIONS:
        taken: set[tuple[int, int]] = set()
        for field in instruction.all_fields:
            assert 0 <= field.word < 32 and field.lsb + field.width <= 32, (instruction.name, field.name)
            bits = {(field.word, bit) for bit in range(field.lsb, field.lsb + field.width)}
            assert not bits & taken, (instruction.name, field.name)
            taken |= bits


def test_disassembly_is_one_line_with_symbols() -> None:
    stream = codec.encode("LOAD", push=2, region=1, rows=2, cols=3, chunk=32, ddr_addr=0x40)
    stream += codec.encode("ELTWISE", pop=3, push=8, stage=2, kind=2, broadcast_b=1, out_h=4, out_w=5)
    stream += codec.encode("HALT")
    lines = codec.disassemble(stream, first_index=7).splitlines()
    assert len(lines) == 3
    assert re.match(
        r"\s*7  LOAD +LOAD +wait:- give:CONV .*region=pool.*ddr_addr=0x40.*rows=2 cols=3 chunk=32", lines[0]
    )
    assert re.match(
        r"\s*8  VECTOR ELTWISE +wait:LOAD\+CONV give:STORE .*stage=direct.*kind=mul.*broadcast_b=1.*out=4x5", lines[1]
    )
    assert re.match(r"\s*9  LOAD +HALT", lines[2])


@settings(max_examples=200, deadline=None)
@given(any_instruction())
def test_disassembly_takes_any_decodable_instruction(case: tuple[Instruction, dict[str, int]]) -> None:
    line = codec.disassemble_one(codec.encode(case[0].name, **case[1]))
    assert "\n" not in line and case[0].name in line


def test_bad_instruction_in_a_stream_names_its_index() -> None:
    with pytest.raises(InstructionError, match="instruction 1: opcode"):
        codec.disassemble(codec.encode("HALT") + b"\xee" + bytes(127))


def test_record_layouts() -> None:
    assert codec.REQUANT_DTYPE.itemsize == codec.OPERAND_DTYPE.itemsize == codec.RESIZE_DTYPE.itemsize == 8
    record = np.zeros(1, codec.REQUANT_DTYPE)
    record["m0"], record["m1"], record["s0"], record["z"], record["a"], record["b"] = 0x0201, -1, 5, -6, 7, -8
    assert record.tobytes() == bytes([1, 2, 0xFF, 0xFF, 5, 0xFA, 7, 0xF8])


def test_generated_page_is_current() -> None:
    page = ROOT / "docs" / "isa.md"
    remedy = "run python -m npuforge.hw_kernels.isa.generate --docs docs/isa.md"
    assert page.read_text(encoding="utf-8") == generate.docs_text(), remedy


def _cpp_probe() -> str:
    """A program that reads 128-byte instructions on stdin and prints name, engine, reserved word and every field."""
    body = []
    for instruction in INSTRUCTIONS:
        name = generate.type_name(instruction.name)
        fields = [f.name for f in instruction.all_fields if f.name != "opcode"]
        prints = "".join(f'std::printf(" %lld", (long long)i.{f});' for f in fields)
        body.append(f"case 0x{instruction.opcode:x}: {{ auto i = isa::{name}::decode(w); (void)i; {prints} break; }}")
    return f"""
#include <cstdio>
#include "npu_isa.hpp"
namespace isa = npuforge::isa;
int main() {{
    uint32_t w[isa::INSTRUCTION_WORDS];
    while (std::fread(w, 4, isa::INSTRUCTION_WORDS, stdin) == isa::INSTRUCTION_WORDS) {{
        uint32_t op = isa::opcode_of(w);
        std::printf("%s %d %u", isa::opcode_name(op), isa::engine_of(op), isa::first_reserved_word(w));
        switch (op) {{ {" ".join(body)} }}
        std::printf("\\n");
    }}
    uint8_t bytes[8] = {{1, 2, 0xff, 0xff, 5, 0xfa, 7, 0xf8}};
    auto r = isa::RequantRecord::decode(bytes);
    std::printf("%d %d %d %d %d %d\\n", r.m0, r.m1, r.s0, r.z, r.a, r.b);
    return 0;
}}
"""


def test_generated_header_decodes_as_the_codec(tmp_path: Path) -> None:
    """The C++ structs against `codec.decode` on extreme and random fields, and the reserved-bit check on every single bit of a word."""
    generate.main(["--header", str(tmp_path / "npu_isa.hpp")])
    (tmp_path / "probe.cpp").write_text(_cpp_probe())
    command = [
        "g++",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        str(tmp_path),
        str(tmp_path / "probe.cpp"),
        "-o",
        str(tmp_path / "probe"),
    ]
    subprocess.run(command, check=True)
    random = np.random.default_rng(1)
    stream, expected = b"", []
    for instruction in INSTRUCTIONS:
        for mode in ("low", "high", "random", "random"):
            values = {}
            for field in instruction.all_fields:
                low, high = codec.field_range(field)
                values[field.name] = {"low": low, "high": high}.get(mode, int(random.integers(low, high + 1)))
            values.pop("opcode")
            stream += codec.encode(instruction.name, **values)
            expected.append([instruction.name, str(int(instruction.engine)), "32", *(str(v) for v in values.values())])
        masks = codec.used_masks(instruction)
        for word in range(32):
            for bit in range(32):
                if not masks[word] >> bit & 1:
                    words = np.frombuffer(codec.encode(instruction.name), "<u4").copy()
                    words[word] |= np.uint32(1 << bit)
                    stream += words.tobytes()
                    zeros = ["0"] * (len(instruction.all_fields) - 1)
                    expected.append([instruction.name, str(int(instruction.engine)), str(word), *zeros])
    found = (
        subprocess.run([tmp_path / "probe"], input=stream, capture_output=True, check=True).stdout.decode().splitlines()
    )
    assert [line.split() for line in found[:-1]] == expected
    assert found[-1] == "513 -1 5 -6 7 -8"
