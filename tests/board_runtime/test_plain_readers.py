"""The two readers that anyone can copy: the C header for bare-metal loaders and the plain Python of docs/formats.md, against our own on good and bad files."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from tiny_model import TinyModel

from npuforge.compile.ir.errors import FormatError
from npuforge.hw_kernels.isa.binfile import BinFile, parse_bin, refresh_crc

ROOT = Path(__file__).parents[2]
IMAGE = TinyModel(second=True).build()


@pytest.fixture(scope="module")
def lister(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program, with every warning an error and both sanitizers."""
    program = tmp_path_factory.mktemp("c") / "list_bin"
    flags = [
        "-std=c99",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wconversion",
        "-Werror",
        "-fsanitize=address,undefined",
    ]
    include = ROOT / "board_runtime" / "include"
    source = Path(__file__).with_name("c") / "list_bin.c"
    command = ["gcc", *flags, "-fno-sanitize-recover=all", "-I", include, source, "-o", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return program


@pytest.fixture(scope="module")
def snippet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of docs/formats.md as a file."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "formats.md").read_text(), re.DOTALL)
    path = tmp_path_factory.mktemp("python") / "read_bin.py"
    path.write_text(code)
    return path


def listing(binary: BinFile) -> list[str]:
    return [f"{s.name} {s.offset} {s.size} {int(s.dtype)} {zlib.crc32(s.data):08x}" for s in binary.sections.values()]


def damaged(count: int) -> list[bytes]:
    """Files with changes in header, table, padding and length; all but some with a right CRC."""
    rng = random.Random(5)
    table = 16 + 44 * len(parse_bin(IMAGE).sections)
    files = []
    for number in range(count):
        image = bytearray(IMAGE)
        for _ in range(rng.randint(1, 3)):
            at = 4 * rng.randrange(table // 4)
            image[at : at + 4] = struct.pack(
                "<I", rng.choice((0, 1, 3, 64, 255, 1 << 31, 0xFFFFFFC0, 0xFFFFFFFF, rng.getrandbits(32)))
            )
        if number % 4 == 0:
            image = bytearray(IMAGE)
            image[rng.randrange(table, len(image))] ^= 1 << rng.randrange(8)
        if number % 9 == 0:
            image = image[: rng.randrange(len(image))]
        files.append(bytes(image) if number % 5 == 0 or len(image) < 260 else refresh_crc(bytes(image)))
    return files


def accepted(image: bytes) -> bool:
    try:
        parse_bin(image)
    except FormatError:
        return False
    return True


def test_c_header_lists_a_file(lister: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(IMAGE)
    lines = subprocess.run([lister, path], check=True, capture_output=True, text=True).stdout.splitlines()
    binary = parse_bin(IMAGE)
    assert lines == [*listing(binary), f"meta at {binary.sections['meta'].offset}"]


def test_c_header_accepts_what_our_reader_accepts(lister: Path, tmp_path: Path) -> None:
    images = [IMAGE, b"", IMAGE[:100], IMAGE + b"\0", *damaged(600)]
    paths = []
    for number, image in enumerate(images):
        paths.append(tmp_path / f"{number}.bin")
        paths[-1].write_bytes(image)
    done = subprocess.run([lister, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.splitlines())
    refused: dict[str, int] = {}
    for image in images:
        if accepted(image):
            binary = parse_bin(image)
            expected = [
                *listing(binary),
                *(f"meta at {s.offset}" for s in binary.sections.values() if s.name == "meta"),
            ]
            assert [next(lines) for _ in expected] == expected
        else:
            word, status = next(lines).split()
            assert word == "refused"
            refused[status] = refused.get(status, 0) + 1
    assert next(lines, None) is None
    assert set(refused) >= {"1", "2", "3", "4", "5", "6", "7", "8", "9"}, refused  # every rule has been reached


def test_header_compiles_as_cpp(tmp_path: Path) -> None:
    source = tmp_path / "use.cpp"
    source.write_text(
        '#include "npuforge/bin_format.h"\nint main() { return npuforge_bin_item_bytes(7) == 128 ? 0 : 1; }\n'
    )
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "board_runtime" / "include"]
    subprocess.run(["g++", *flags, source, "-o", tmp_path / "use"], check=True)
    subprocess.run([tmp_path / "use"], check=True)


def test_documented_python_lists_a_file(snippet: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(IMAGE)
    done = subprocess.run([sys.executable, snippet, path], check=True, capture_output=True, text=True)
    found = [line.split() for line in done.stdout.splitlines()]
    assert found == [[s.name, s.dtype.name.lower(), str(s.size)] for s in parse_bin(IMAGE).sections.values()]
    lines = [line for line in snippet.read_text().splitlines() if line.strip()]
    assert len(lines) <= 32


def test_documented_python_refuses_bad_files(snippet: Path, tmp_path: Path) -> None:
    """Whatever our reader takes it takes, with the same bytes; wrong length, magic, version, CRC and sections outside the file it refuses."""
    scope: dict[str, object] = {"__name__": "snippet"}
    exec(compile(snippet.read_text(), str(snippet), "exec"), scope)
    read = scope["read"]
    assert callable(read)
    path = tmp_path / "model.bin"
    refused = 0
    for image in [IMAGE, *damaged(300)]:
        path.write_bytes(image)
        try:
            sections = read(path)
        except (ValueError, KeyError, UnicodeDecodeError):
            assert not accepted(image)
            refused += 1
            continue
        assert all(isinstance(data, bytes) for _, data in sections.values())
        if accepted(image):
            assert {name: data for name, (_, data) in sections.items()} == {
                s.name: bytes(s.data) for s in parse_bin(image).sections.values()
            }
    assert refused > 200
