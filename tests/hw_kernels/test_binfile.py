"""The `.bin` container: layout as documented, two-phase writing, every damage refused with its own error."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.errors import FormatError
from npuforge.hw_kernels.isa import disasm
from npuforge.hw_kernels.isa.binfile import BinWriter, Dtype, parse_bin, read_bin, refresh_crc
from npuforge.hw_kernels.isa.codec import encode

ROOT = Path(__file__).resolve().parents[2]
WEIGHT = bytes(range(48))


def small() -> bytes:
    """Three sections, one of them filled after the layout, one sized only at the end."""
    writer = BinWriter()
    writer.add("meta", Dtype.JSON)
    writer.add("instructions", Dtype.INSTRUCTIONS, size=256)
    writer.add("L0000_weight", Dtype.INT8, WEIGHT)
    offsets = writer.layout()
    writer.fill("instructions", encode("LOAD", ddr_addr=offsets["L0000_weight"], chunk=48) + encode("HALT"))
    writer.fill("meta", json.dumps({"layers": [{"id": "L0000", "name": "first", "first_instruction": 0}]}).encode())
    return writer.to_bytes()


def test_layout_as_documented() -> None:
    """Read with `struct` only: header, table at 0x10, data from 0x100, alignment, CRC."""
    image = small()
    assert struct.unpack_from("<4I", image) == (0xAABBCCDD, 1, 3, len(image))
    entries = [struct.unpack_from("<32s3I", image, 0x10 + 44 * i) for i in range(3)]
    assert [e[0].rstrip(b"\0") for e in entries] == [b"meta", b"instructions", b"L0000_weight"]
    assert [e[3] for e in entries] == [8, 7, 2]
    assert entries[1][1:3] == (0x100, 256) and entries[2][1:3] == (0x200, 48)
    assert entries[0][1] == 0x240 and all(e[1] % 64 == 0 for e in entries)
    assert image[0x200:0x230] == WEIGHT
    assert struct.unpack_from("<I", image, 0x100 + 8)[0] == 0x200  # LOAD.ddr_addr holds the file offset
    assert struct.unpack("<I", image[-4:])[0] == zlib.crc32(image[:-4])


def test_long_table_moves_the_first_section() -> None:
    writer = BinWriter()
    for index in range(21):
        writer.add(f"S{index}", Dtype.INT16, struct.pack("<h", index))
    binary = parse_bin(writer.to_bytes())
    assert min(s.offset for s in binary.sections.values()) == 0x3C0  # 0x10 + 21*44 = 0x3ac, rounded up
    assert [int(s.array()[0]) for s in binary.sections.values()] == list(range(21))


def test_every_flipped_byte_is_refused() -> None:
    image = small()
    for position in range(len(image)):
        for bit in (0x01, 0x80, 0xFF):
            damaged = bytearray(image)
            damaged[position] ^= bit
            with pytest.raises(FormatError, match="0x"):
                parse_bin(bytes(damaged))


def test_every_truncation_and_extension_is_refused() -> None:
    image = small()
    for length in range(len(image)):
        with pytest.raises(FormatError):
            parse_bin(image[:length])
    with pytest.raises(FormatError, match="size expected"):
        parse_bin(image + b"\0")


def _patched(offset: int, value: int) -> bytes:
    image = bytearray(small())
    struct.pack_into("<I", image, offset, value)
    return refresh_crc(bytes(image))


ENTRY = 0x10 + 44 * 2  # L0000_weight


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0x0, 0, "at 0x0: magic"),
        (0x4, 2, "at 0x4: version"),
        (0xC, 99, "at 0xc: size"),
        (0x8, 1 << 20, "at 0x8: 1048576 sections"),
        (0x8, 0xFFFFFFFF, "at 0x8"),
        (ENTRY, 0, r"0x68: section name"),
        (ENTRY, 0x6E0A6E41, r"0x68: section name"),
        (ENTRY + 32, 0x210, "L0000_weight: offset 0x210 is not 64-byte aligned"),
        (ENTRY + 32, 0x80, "L0000_weight: offset expected from 0x100, found 0x80"),
        (ENTRY + 32, 0x100, "overlaps"),
        (ENTRY + 32, 0x100000, "L0000_weight: ends at"),
        (ENTRY + 36, 0xFFFFFFFF, "L0000_weight: ends at"),
        (ENTRY + 36, 0x4F, "overlaps"),
        (ENTRY + 40, 0, "dtype expected 1..9, found 0"),
        (ENTRY + 40, 10, "dtype expected 1..9, found 10"),
        (0x10 + 44 + 36, 255, "instructions: 255 bytes is no multiple of 128"),
        (0xA0, 5, "at 0xa0: padding expected 0"),
        (0x200, 1, None),
    ],
)
def test_each_check_has_its_own_error(offset: int, value: int, message: str | None) -> None:
    """With the CRC made right again each fault still meets its check; a changed parameter byte alone is legal."""
    if message is None:
        assert parse_bin(_patched(offset, value))["L0000_weight"].data != WEIGHT
        return
    with pytest.raises(FormatError, match=message):
        parse_bin(_patched(offset, value))


def test_double_name_is_refused() -> None:
    image = bytearray(small())
    image[0x10 : 0x10 + 32] = b"instructions".ljust(32, b"\0")
    with pytest.raises(FormatError, match="section instructions occurs twice"):
        parse_bin(refresh_crc(bytes(image)))


def test_writer_refuses_misuse() -> None:
    writer = BinWriter()
    writer.add("a", Dtype.INT8, b"x")
    for arguments, message in [
        (("a", Dtype.INT8, b"x"), "added twice"),
        (("b" * 33, Dtype.INT8, b"x"), "1..32"),
        (("", Dtype.INT8, b"x"), "1..32"),
        (("ä", Dtype.INT8, b"x"), "ASCII"),
        (("c", Dtype.INT32, b"xyz"), "no multiple of 4"),
    ]:
        with pytest.raises(FormatError, match=message):
            writer.add(*arguments)
    writer.add("late", Dtype.INT8, size=4)
    writer.add("unsized", Dtype.JSON)
    with pytest.raises(FormatError, match="size not known yet"):
        writer.offset("unsized")
    with pytest.raises(FormatError, match="after layout"):
        writer.add("more", Dtype.INT8, b"x")
    with pytest.raises(FormatError, match="laid out with 4 bytes, filled with 3"):
        writer.fill("late", b"abc")
    with pytest.raises(FormatError, match="has no data"):
        writer.to_bytes()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(Dtype)), st.integers(0, 300), st.booleans()), max_size=9), st.randoms())
def test_round_trip(sections: list[tuple[Dtype, int, bool]], random: Any) -> None:
    sizes = {1: 4, 2: 1, 3: 1, 4: 4, 5: 2, 6: 2, 7: 128, 8: 1, 9: 2}
    writer, data = BinWriter(), {}
    for index, (dtype, count, late) in enumerate(sections):
        data[f"s{index}"] = random.randbytes(count * sizes[dtype])
        writer.add(
            f"s{index}", dtype, None if late else data[f"s{index}"], size=len(data[f"s{index}"]) if late else None
        )
    offsets = writer.layout()
    for index, (_, _, late) in enumerate(sections):
        if late:
            writer.fill(f"s{index}", data[f"s{index}"])
    binary = parse_bin(writer.to_bytes())
    assert {name: section.data for name, section in binary.sections.items()} == data
    assert {name: section.offset for name, section in binary.sections.items()} == offsets
    assert [s.dtype for s in binary.sections.values()] == [dtype for dtype, _, _ in sections]


def test_write_is_all_or_nothing(tmp_path: Path) -> None:
    writer = BinWriter()
    writer.add("a", Dtype.INT8, b"x")
    writer.write(tmp_path / "m.bin")
    assert read_bin(tmp_path / "m.bin")["a"].data == b"x"
    (tmp_path / "folder").mkdir()
    with pytest.raises(FormatError, match="cannot be written"):
        writer.write(tmp_path / "folder")
    with pytest.raises(FormatError, match="cannot be written"):
        writer.write(tmp_path / "absent" / "m.bin")
    with pytest.raises(FormatError, match="cannot be read"):
        read_bin(tmp_path / "none.bin")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "m.bin"]


def test_documented_reader_reads_it(tmp_path: Path) -> None:
    """The reader printed in docs/formats.md, run as it stands there."""
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found and len(found[1].splitlines()) <= 32
    scope: dict[str, Any] = {"__name__": "reader"}
    exec(found[1], scope)
    (tmp_path / "m.bin").write_bytes(small())
    sections = scope["read"](tmp_path / "m.bin")
    assert sections["L0000_weight"] == ("int8", WEIGHT)
    assert list(sections) == ["meta", "instructions", "L0000_weight"]
    (tmp_path / "m.bin").write_bytes(small()[:-1])
    with pytest.raises(ValueError, match="truncated"):
        scope["read"](tmp_path / "m.bin")


def test_disassembly_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.bin").write_bytes(small())
    assert disasm.main([str(tmp_path / "m.bin")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "; L0000  first" and "ddr_addr=0x200" in lines[1] and "HALT" in lines[2]
    assert disasm.main([str(tmp_path / "m.bin"), "--sections"]) == 0
    assert "L0000_weight" in capsys.readouterr().out
    (tmp_path / "m.bin").write_bytes(small()[:-1])
    assert disasm.main([str(tmp_path / "m.bin")]) == 1
    assert "truncated" in capsys.readouterr().err


def test_arrays() -> None:
    writer = BinWriter()
    values = np.array([1, -2, 3], np.int16)
    writer.add("v", Dtype.INT16, values.tobytes())
    assert np.array_equal(parse_bin(writer.to_bytes())["v"].array(), values)
