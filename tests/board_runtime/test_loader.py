"""The `.bin` loader refuses every damaged file with its own error, and the JSON reader agrees with Python's."""

from __future__ import annotations

import copy
import json
import math
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from tiny_model import TinyModel

from npuforge.board_runtime import _native
from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import ArchError, FormatError, NpuforgeError
from npuforge.hw_kernels import arch as arches
from npuforge.hw_kernels.isa.binfile import parse_bin, refresh_crc

IMAGE = TinyModel(second=True).build()


def load(image: bytes) -> Any:
    return _native.Program.parse(image)


def test_every_flipped_byte_is_refused() -> None:
    """One bit of every byte of the file, each on its own."""
    assert load(IMAGE).name == "tiny"
    generator = random.Random(1)
    accepted = []
    for position in range(len(IMAGE)):
        damaged = bytearray(IMAGE)
        damaged[position] ^= 1 << generator.randrange(8)
        try:
            load(bytes(damaged))
            accepted.append(position)
        except FormatError as error:
            assert "0x" in str(error) and "\n" not in str(error)
    assert accepted == []


def test_every_truncation_is_refused() -> None:
    for size in [0, 1, 15, 16, 200, 259, *range(260, len(IMAGE), 97), len(IMAGE) - 1]:
        with pytest.raises(FormatError):
            load(IMAGE[:size])
    with pytest.raises(FormatError):
        load(IMAGE + b"\0")


def patched(offset: int, value: int, image: bytes = IMAGE) -> bytes:
    """A 32-bit field changed, the CRC made right again: only the field's own check can refuse it."""
    return refresh_crc(image[:offset] + struct.pack("<I", value) + image[offset + 4 :])


def entry(name: str) -> int:
    """File offset of a section's table entry."""
    return 0x10 + 44 * list(parse_bin(IMAGE).sections).index(name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: patched(0, 0x46554646), "at 0x0: magic expected"),
        (lambda: patched(4, 2), "at 0x4: version expected 1, found 2"),
        (lambda: patched(8, 70000), "at 0x8: 70000 sections need a table of"),
        (lambda: patched(12, len(IMAGE) - 64), "at 0xc: size expected"),
        (lambda: patched(entry("C0000") + 32, 0x111), "section C0000: offset 0x111 is not 64-byte aligned"),
        (lambda: patched(entry("C0000") + 32, 0x40), "section C0000: offset expected from 0x100, found 0x40"),
        (lambda: patched(entry("C0000") + 36, 1 << 30), "section C0000: ends at 0x"),
        (lambda: patched(entry("C0000") + 36, 5), "section C0000: 5 bytes is no multiple of 4"),
        (lambda: patched(entry("C0000") + 40, 77), "section C0000: dtype expected 1..9, found 77"),
        (
            lambda: patched(entry("C0001") + 32, parse_bin(IMAGE)["C0000"].offset),
            "section C0000 overlaps section C0001, which ends at 0x",
        ),
        (lambda: patched(entry("C0000"), 0), "name expected as zero-padded printable ASCII"),
        (lambda: patched(len(IMAGE) - 8, 1), "padding expected 0, found 0x1"),
        (lambda: IMAGE[:-4] + b"\0\0\0\0", "CRC-32 expected"),
    ],
)
def test_container_checks(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load(make())


def test_python_and_cpp_readers_agree_on_damage() -> None:
    """Random fields of header and table with a right CRC: both readers accept or both refuse, with the same offset."""
    generator = random.Random(3)
    table = 0x10 + 44 * len(parse_bin(IMAGE).sections)
    refused = 0
    for _ in range(600):
        position = generator.randrange(4, table // 4) * 4
        image = patched(
            position,
            generator.choice([0, 1, 64, 0x100, len(IMAGE), generator.getrandbits(32), generator.getrandbits(12)]),
        )
        results = []
        for reader in (load, parse_bin):
            try:
                reader(image)
                results.append("")
            except FormatError as error:
                results.append(str(error).split(": ")[0])
        if results[1]:  # the container is refused: by both, for the same place
            refused += 1
            assert results[0] == results[1], (position, results)
    assert refused > 300


def changed(path: str, value: Any) -> bytes:
    """The tiny model with one value of its meta section changed (`None` in a path's place removes nothing)."""
    model = TinyModel(second=True)
    meta = copy.deepcopy(model.meta())
    target: Any = meta
    *parents, last = path.split(".")
    for key in parents:
        target = target[int(key)] if isinstance(target, list) else target[key]
    if value is ...:
        del target[last]
    elif isinstance(target, list):
        target[int(last)] = value
    else:
        target[last] = value
    return TinyModel(second=True, meta_changes=meta).build()


PIECE = {"address": 4096, "row_stride": 96, "pixel_stride": 16, "first_row": 1, "rows": 2, "first_lane": 0}
PIECE |= {"lane_count": 16, "after_instruction": 1}
PIECES = {"space": "before_sum", "h": 4, "w": 6, "lanes": [3, 0, 7, 1, 12], "lane_count": 16, "pieces": [PIECE]}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", 2, "meta.format: expected 1..1, found 2"),
        ("name", 5, "meta.name: expected a string, found an integer"),
        ("mode", "int4", "meta.mode: expected fine, pow2 or bf16, found int4"),
        ("pool_size", -1, "meta.pool_size"),
        ("pool_size", 3000, r"meta.tensors\['z'\].npu: ends at byte 3456, the pool has 3000"),
        ("outputs", [], "meta.outputs: expected at least one"),
        ("outputs", ["nothing"], "tensor 'nothing' is missing"),
        ("tensors.x.shape", [1, 5, -1, 6], "dimension expected"),
        ("tensors.x.shape", [1, 6, 4, 6], "h, w, c do not match the shape"),
        ("tensors.x.npu.lanes", [3, 3, 7, 1, 12], "lane 3 is used by two channels"),
        ("tensors.x.npu.lanes", [3, 0, 7, 1], "need one entry for each of 5 channels"),
        ("tensors.x.npu.scale", [0.1, 0.1, 0.0, 0.1, 0.1], "expected positive numbers"),
        ("tensors.y.npu", None, "tensor 'y' crosses the NPU's border but has no place in the pool"),
        ("tensors.x.npu.offset", 1 << 30, "ends at byte"),
        ("partitions.0.device", "GPU", "expected NPU or CPU, found GPU"),
        ("partitions.0.instruction_count", 3, "must tile the instruction stream in order"),
        ("partitions.2.first_instruction", 6, "instructions 6 \\+ 4 of 8"),
        ("partitions.1.nodes", [], "tensor 'n' is read before anything writes it"),
        ("partitions.1.outputs", ["nothing"], "tensor 'nothing' is missing"),
        ("constants.constant.shape", [1, 5, 3], "expected 60 bytes, found 40"),
        ("constants.constant.dtype", "float64", "found float64"),
        ("constants.constant.section", "C0007", "section C0007 is missing"),
        ("constants.x", {"section": "C0000", "shape": [1, 5, 2], "dtype": "float32"}, "'x' is also an input"),
        ("layers.0.trace.address", 1 << 31, "ends at byte .*, the SRAM has"),
        ("layers.1.trace.after_instruction", 99, "expected below 8"),
        ("layers.0.trace.lane_count", 4, "lane_count 4 is below the highest lane 12"),
        ("layers.0.trace.space", "flash", "expected sram, pool or before_sum, found flash"),
        ("layers.0.trace.space", "before_sum", "the key 'pieces' is missing"),
        ("layers.0.trace", PIECES | {"pieces": []}, "expected at least one"),
        ("layers.0.trace", PIECES | {"pieces": [PIECE | {"rows": 4}]}, "expected rows and lanes of the tensor"),
        ("layers.0.trace", PIECES | {"pieces": [PIECE | {"rows": 0}]}, "expected rows and lanes of the tensor"),
        ("layers.0.trace", PIECES | {"pieces": [PIECE | {"first_lane": 16}]}, "expected rows and lanes of the tensor"),
        ("layers.0.trace", PIECES | {"pieces": [PIECE | {"after_instruction": 8}]}, "expected below 8"),
        ("layers.0.trace", PIECES | {"pieces": [PIECE, PIECE | {"address": 1 << 31}]}, "pieces.1.: .*ends at byte"),
        ("input_layout.x", "HWCN", "expected NCHW or NHWC, found HWCN"),
        ("tensors", ..., "the key 'tensors' is missing"),
        ("arch", ..., "the key 'arch' is missing"),
    ],
)
def test_meta_checks(path: str, value: Any, message: str) -> None:
    image = changed(path, value) if value is not ... else removed(path)
    with pytest.raises(FormatError, match=message):
        load(image)


def removed(key: str) -> bytes:
    """The tiny model without one key of its meta section."""

    class Without(TinyModel):
        def meta(self) -> dict[str, Any]:
            return {k: v for k, v in super().meta().items() if k != key}

    return Without(second=True).build()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("partitions.1.nodes.0.op", "Mystery", "operator Mystery is not known to the CPU partition"),
        ("partitions.3.nodes.2.attrs", {}, "attribute axis is missing"),
        ("partitions.3.nodes.2.attrs", {"axis": 7}, "axis 7 is outside a tensor of rank 3"),
        ("partitions.3.nodes.2.attrs", {"axis": "two"}, "expected an integer, found a string"),
        ("tensors.o.shape", [1, 5, 27], "has shape 1x5x26, meta.tensors says 1x5x27"),
        ("tensors.o.dtype", "int64", "is float32, meta.tensors says int64"),
    ],
)
def test_session_checks_the_cpu_partition_before_it_runs(path: str, value: Any, message: str) -> None:
    with pytest.raises(NpuforgeError, match=message):
        Session(changed(path, value))


def test_random_damage_of_meta_never_crashes() -> None:
    """Characters of the JSON replaced, CRC right: either a typed error or a session that runs or fails with a typed error."""
    generator = random.Random(5)
    model = TinyModel()
    text = json.dumps(model.meta())
    offset = parse_bin(model.build())["meta"].offset
    for _ in range(1500):
        damaged = bytearray(model.build())
        for _ in range(generator.randrange(1, 3)):
            damaged[offset + generator.randrange(len(text))] = ord(generator.choice('0123456789"[]{},:-e.tnfa'))
        try:
            Session(refresh_crc(bytes(damaged)))
        except NpuforgeError as error:
            assert "\n" not in str(error)


def test_arch_mismatch_names_the_parameters() -> None:
    image = TinyModel(arch="nf-b1024").build()
    assert Session(image, expected_arch=arches.load("nf-b1024").to_json()).name == "tiny"
    with pytest.raises(
        ArchError, match=r"pixel_parallel expected 8, found 2.*sram_bytes expected 2097152, found 524288"
    ):
        Session(image, expected_arch=arches.load("nf-b4096").to_json())
    other = TinyModel(meta_changes={"fingerprint": "0123456789abcdef"}).build()
    with pytest.raises(ArchError, match="0123456789abcdef was written for another instruction set or arch"):
        Session(other)


def test_fingerprint_is_that_of_python() -> None:
    for name in arches.names():
        assert load(TinyModel(arch=name).build()).fingerprint == arches.load(name).fingerprint


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file"):
        Session(tmp_path / "none.bin")
    with pytest.raises(FormatError, match="cannot be read"):
        _native.Program.load(str(tmp_path / "none.bin"))
    page = tmp_path / "model.bin"
    page.write_text("<!DOCTYPE html><html>not a model</html>" * 20)
    with pytest.raises(FormatError, match="magic expected 0xaabbccdd"):
        Session(tmp_path)


# ---- the JSON reader
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def without_surrogates(value: Any) -> bool:
    return "\\ud" not in json.dumps(value)


@settings(max_examples=200, deadline=None)
@given(VALUES, st.booleans())
def test_json_values_survive(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1 if ascii_only else None)
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate has no UTF-8 form
    if not ascii_only or without_surrogates(value):
        assert json.loads(_native.parse_json(encoded)) == value


@settings(max_examples=300, deadline=None)
@given(VALUES, st.data())
def test_json_reader_is_as_strict_as_python(value: Any, data: st.DataObject) -> None:
    """A random byte changed: accepted only if Python accepts it too, and never a crash."""
    encoded = bytearray(json.dumps(value).encode())
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = json.loads(_native.parse_json(bytes(encoded)))
    except FormatError:
        return
    assert found == json.loads(bytes(encoded)) or math.isnan(found)


@pytest.mark.parametrize(
    "text",
    [
        *(
            '{"a":1,"a":2}',
            "[1,]",
            "[01]",
            "NaN",
            "Infinity",
            "-",
            "1.",
            ".5",
            "1e",
            '"\\x"',
            '"\\u12"',
            '"\\ud800"',
            '"\t"',
            "",
            "[1] 2",
        ),
        *("1e999", "tru", "'a'", "{a:1}", "[" * 100 + "]" * 100, '{"a"}', '"a', "\ufeff1"),
    ],
)
def test_json_reader_refuses(text: str) -> None:
    with pytest.raises(FormatError, match=r"JSON, byte \d+: expected"):
        _native.parse_json(text.encode())


@pytest.mark.parametrize(
    "raw", [b'"\xc3"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf5\x80\x80\x80"', b'"\xff"', b'"\x80"', b'"\xe2\x82"']
)
def test_json_reader_refuses_bad_utf8(raw: bytes) -> None:
    with pytest.raises(FormatError, match="expected valid UTF-8"):
        _native.parse_json(raw)
