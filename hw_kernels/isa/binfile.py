"""The `.bin` container (DESIGN section 6): layout, writer and checking reader. Knows sections, not what is in them.

Writing is two-phase, because instructions hold the file offsets of parameter sections: `add` every section (with its bytes, or with only its
size), `layout()` fixes all offsets, `fill` supplies what was missing, `write`. A section added without bytes and without size (`meta`) is
laid out after all others, when its bytes are known.
"""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.plain_text import DuplicateKeyError, parse_json

MAGIC = 0xAABBCCDD
VERSION = 1
HEADER = struct.Struct("<4I")
ENTRY = struct.Struct("<32s3I")
TABLE_OFFSET = 0x10
FIRST_DATA = 0x100
ALIGNMENT = 64
CRC_BYTES = 4
MAX_SECTIONS = 65536
MAX_SIZE = (1 << 32) - 1
assert HEADER.size == TABLE_OFFSET and ENTRY.size == 44


class Dtype(IntEnum):
    """Section element types; the value is what the file holds."""

    FLOAT32 = 1
    INT8 = 2
    UINT8 = 3
    INT32 = 4
    BF16 = 5
    UINT16 = 6
    INSTRUCTIONS = 7
    JSON = 8
    INT16 = 9


ITEM_BYTES = {
    Dtype.FLOAT32: 4,
    Dtype.INT8: 1,
    Dtype.UINT8: 1,
    Dtype.INT32: 4,
    Dtype.BF16: 2,
    Dtype.UINT16: 2,
    Dtype.INSTRUCTIONS: 128,
    Dtype.JSON: 1,
    Dtype.INT16: 2,
}
_NUMPY = {
    Dtype.FLOAT32: "<f4",
    Dtype.INT8: "i1",
    Dtype.UINT8: "u1",
    Dtype.INT32: "<i4",
    Dtype.BF16: "<u2",
    Dtype.UINT16: "<u2",
    Dtype.INSTRUCTIONS: "<u4",
    Dtype.JSON: "u1",
    Dtype.INT16: "<i2",
}


def align(value: int) -> int:
    """`value` rounded up to the section alignment."""
    return (value + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


@dataclass
class Section:
    """One section: where it lies and its bytes."""

    name: str
    dtype: Dtype
    offset: int
    size: int
    data: bytes

    def array(self) -> np.ndarray:
        """Read-only numpy view of the elements (bf16 as uint16, instructions as uint32 words)."""
        return np.frombuffer(self.data, dtype=_NUMPY[self.dtype])


@dataclass
class BinFile:
    """A checked `.bin`; `image` is the whole file (DDR region 0)."""

    version: int
    sections: dict[str, Section]
    image: bytes

    def __getitem__(self, name: str) -> Section:
        if name not in self.sections:
            raise FormatError(f".bin: section {name!r} is missing; found: {', '.join(self.sections)}")
        return self.sections[name]

    def json(self, name: str = "meta") -> Any:
        """A JSON section, parsed."""
        section = self[name]
        try:
            return parse_json(section.data.decode(), f"section {name}")
        except (ValueError, DuplicateKeyError) as error:
            raise FormatError(f".bin section {name} at 0x{section.offset:x}: not JSON ({error})") from None


@dataclass
class _Pending:
    name: str
    dtype: Dtype
    size: int | None
    data: bytes | None
    offset: int | None = None


class BinWriter:
    """Collects sections and writes them; the table is in the order of `add`."""

    def __init__(self) -> None:
        self._sections: dict[str, _Pending] = {}
        self._frozen = False
        self._end = 0

    def add(self, name: str, dtype: Dtype, data: bytes | None = None, *, size: int | None = None) -> None:
        """One more section: its bytes, or its size (bytes follow by `fill`), or neither (laid out last, at `write`)."""
        encoded = name.encode("ascii", "replace")
        if self._frozen:
            raise FormatError(f".bin section {name!r}: added after layout(), which has fixed the offsets")
        if not 1 <= len(encoded) <= 32 or any(not 0x21 <= byte <= 0x7E for byte in encoded) or not name.isascii():
            raise FormatError(f".bin section {name!r}: expected 1..32 printable ASCII characters")
        if name in self._sections:
            raise FormatError(f".bin section {name!r}: added twice")
        if data is not None:
            data = bytes(data)
            if size is not None and size != len(data):
                raise FormatError(f".bin section {name!r}: expected {size} bytes, found {len(data)}")
            size = len(data)
        if size is not None:
            self._check_size(name, Dtype(dtype), size)
        self._sections[name] = _Pending(name, Dtype(dtype), size, data)

    @staticmethod
    def _check_size(name: str, dtype: Dtype, size: int) -> None:
        if size < 0 or size % ITEM_BYTES[dtype]:
            raise FormatError(
                f".bin section {name!r}: {size} bytes is no multiple of {ITEM_BYTES[dtype]} ({dtype.name})"
            )

    def layout(self) -> dict[str, int]:
        """Fixes and returns the file offset of every section whose size is known. No `add` afterwards."""
        if not self._frozen:
            self._frozen = True
            self._end = max(FIRST_DATA, align(TABLE_OFFSET + ENTRY.size * len(self._sections)))
            for section in self._sections.values():
                if section.size is not None:
                    self._place(section, section.size)
        return {s.name: s.offset for s in self._sections.values() if s.offset is not None}

    def _place(self, section: _Pending, size: int) -> None:
        section.offset, section.size = self._end, size
        self._end = align(self._end + size)
        if self._end + CRC_BYTES > MAX_SIZE:
            raise FormatError(f".bin section {section.name!r}: the file would exceed {MAX_SIZE} bytes")

    def offset(self, name: str) -> int:
        """File offset of a section (= its address in DDR region 0)."""
        offset = self.layout().get(name)
        if offset is None:
            raise FormatError(
                f".bin section {name!r}: {'size not known yet' if name in self._sections else 'never added'}"
            )
        return offset

    def fill(self, name: str, data: bytes) -> None:
        """The bytes of a section that was added without them."""
        self.layout()
        section = self._sections.get(name)
        if section is None:
            raise FormatError(f".bin section {name!r}: never added")
        data = bytes(data)
        if section.size is None:
            self._check_size(name, section.dtype, len(data))
            self._place(section, len(data))
        elif section.size != len(data):
            raise FormatError(f".bin section {name!r}: laid out with {section.size} bytes, filled with {len(data)}")
        section.data = data

    def to_bytes(self) -> bytes:
        """The whole file."""
        self.layout()
        for section in self._sections.values():
            if section.data is None:
                raise FormatError(f".bin section {section.name!r}: has no data; call fill()")
        total = self._end + CRC_BYTES
        image = bytearray(total)
        HEADER.pack_into(image, 0, MAGIC, VERSION, len(self._sections), total)
        for index, section in enumerate(self._sections.values()):
            assert section.offset is not None and section.size is not None and section.data is not None
            where = TABLE_OFFSET + index * ENTRY.size
            ENTRY.pack_into(image, where, section.name.encode(), section.offset, section.size, section.dtype)
            image[section.offset : section.offset + section.size] = section.data
        struct.pack_into("<I", image, total - CRC_BYTES, zlib.crc32(memoryview(image)[: total - CRC_BYTES]))
        return bytes(image)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the file; it appears whole or not at all."""
        image = self.to_bytes()
        target = Path(path)
        try:
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        except OSError as error:
            raise FormatError(f"{target}: cannot be written ({error.strerror})") from None
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(image)
            umask = os.umask(0)
            os.umask(umask)
            Path(temporary).chmod(0o666 & ~umask)
            Path(temporary).replace(target)
        except OSError as error:
            raise FormatError(f"{target}: cannot be written ({error.strerror})") from None
        finally:
            Path(temporary).unlink(missing_ok=True)


def refresh_crc(image: bytes) -> bytes:
    """`image` with its last four bytes made right again (tests that alter a field on purpose)."""
    return image[:-CRC_BYTES] + struct.pack("<I", zlib.crc32(image[:-CRC_BYTES]))


def _section_name(raw: bytes, where: int) -> str:
    name = raw.rstrip(b"\0")
    if not name or any(not 0x21 <= byte <= 0x7E for byte in name):
        raise FormatError(f".bin at 0x{where:x}: section name expected as zero-padded printable ASCII, found {raw!r}")
    return name.decode()


def parse_bin(image: bytes) -> BinFile:
    """Checks everything (magic, version, sizes, names, types, alignment, bounds, overlaps, padding, CRC), then gives the sections."""
    if len(image) < FIRST_DATA + CRC_BYTES:
        raise FormatError(
            f".bin at 0x0: expected at least {FIRST_DATA + CRC_BYTES} bytes, found {len(image)}; truncated?"
        )
    magic, version, count, total = HEADER.unpack_from(image, 0)
    if magic != MAGIC:
        raise FormatError(f".bin at 0x0: magic expected 0x{MAGIC:08x}, found 0x{magic:08x}; not a .bin file")
    if version != VERSION:
        raise FormatError(f".bin at 0x4: version expected {VERSION}, found {version}; recompile with this npuforge")
    if total != len(image):
        raise FormatError(
            f".bin at 0xc: size expected {total} as the header says, found {len(image)} bytes; truncated?"
        )
    table_end = TABLE_OFFSET + count * ENTRY.size
    if count > MAX_SECTIONS or table_end > total - CRC_BYTES:
        raise FormatError(f".bin at 0x8: {count} sections need a table of {table_end} bytes, the file has {total}")
    first_data = max(FIRST_DATA, align(table_end))
    sections: dict[str, Section] = {}
    for index in range(count):
        where = TABLE_OFFSET + index * ENTRY.size
        raw, offset, size, code = ENTRY.unpack_from(image, where)
        name = _section_name(raw, where)
        if name in sections:
            raise FormatError(f".bin at 0x{where:x}: section {name} occurs twice")
        if code not in list(Dtype):
            raise FormatError(f".bin at 0x{where + 40:x}: section {name}: dtype expected 1..9, found {code}")
        dtype = Dtype(code)
        if offset % ALIGNMENT:
            raise FormatError(
                f".bin at 0x{where + 32:x}: section {name}: offset 0x{offset:x} is not {ALIGNMENT}-byte aligned"
            )
        if offset < first_data:
            raise FormatError(
                f".bin at 0x{where + 32:x}: section {name}: offset expected from 0x{first_data:x}, found 0x{offset:x}"
            )
        if offset + size > total - CRC_BYTES:
            end = offset + size
            raise FormatError(
                f".bin at 0x{where + 36:x}: section {name}: ends at 0x{end:x}, data ends at 0x{total - CRC_BYTES:x}"
            )
        if size % ITEM_BYTES[dtype]:
            raise FormatError(
                f".bin at 0x{where + 36:x}: section {name}: {size} bytes is no multiple of {ITEM_BYTES[dtype]} ({dtype.name})"
            )
        sections[name] = Section(name, dtype, offset, size, image[offset : offset + size])
    _check_gaps(image, sections, table_end, total - CRC_BYTES)
    (stored,) = struct.unpack_from("<I", image, total - CRC_BYTES)
    actual = zlib.crc32(memoryview(image)[: total - CRC_BYTES])
    if stored != actual:
        raise FormatError(
            f".bin at 0x{total - CRC_BYTES:x}: CRC-32 expected 0x{actual:08x}, found 0x{stored:08x}; damaged file"
        )
    return BinFile(version, sections, image)


def _check_gaps(image: bytes, sections: dict[str, Section], table_end: int, data_end: int) -> None:
    """Sections do not overlap, and what lies between them is zero."""
    position, previous = table_end, "the section table"
    for section in sorted(sections.values(), key=lambda s: (s.offset, s.size)):
        if section.offset < position:
            raise FormatError(
                f".bin at 0x{section.offset:x}: section {section.name} overlaps {previous}, which ends at 0x{position:x}"
            )
        _check_zero(image, position, section.offset)
        position, previous = section.offset + section.size, f"section {section.name}"
    _check_zero(image, position, data_end)


def _check_zero(image: bytes, start: int, end: int) -> None:
    gap = image[start:end]
    if gap.count(0) != len(gap):
        where = start + next(i for i, byte in enumerate(gap) if byte)
        raise FormatError(f".bin at 0x{where:x}: padding expected 0, found 0x{image[where]:02x}")


def read_bin(path: str | os.PathLike[str]) -> BinFile:
    """Reads and checks a `.bin`."""
    try:
        image = Path(path).read_bytes()
    except OSError as error:
        raise FormatError(f"{os.fspath(path)}: cannot be read ({error.strerror})") from None
    try:
        return parse_bin(image)
    except FormatError as error:
        raise FormatError(f"{os.fspath(path)}: {error}") from None
