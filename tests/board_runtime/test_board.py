"""Descriptions of boards: made from the register header that Vitis HLS writes, and read by the C++ runtime, which refuses anything else by its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from board_stand_in import ARCH, HEADER, StandIn
from tiny_model import TinyModel

from npuforge.board_runtime.board import describe, registers_of_header
from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import ArchError, DeviceError, FormatError, InputError, NpuforgeError, UsageError
from npuforge.hw_kernels import arch as arches

IMAGE = TinyModel(arch=ARCH).build()
REGISTERS = {
    **{"control": 0, "global_interrupt_enable": 4, "interrupt_enable": 8, "interrupt_status": 12},
    **{"bin": 0x10, "bin_bytes": 0x1C, "pool": 0x24, "pool_bytes": 0x30, "instruction_addr": 0x38, "count": 0x40},
    **{"status": [0x50, 0x54, 0x58, 0x5C], "address_bits": 64, "ap_continue": False},
}


def test_header() -> None:
    assert registers_of_header(HEADER, "xnpu_top_hw.h") == REGISTERS


def test_other_forms_of_the_header() -> None:
    """32 address bits; a register for each status word; upper-case bundle names and four digits, as older tools write; ap_ctrl_chain."""
    text = (
        HEADER.replace("_CONTROL_", "_AXILITES_").replace("BIN_R", "BIN_V").replace("_DATA            64", "_DATA 32")
    )
    text = text.replace("_DATA             64", "_DATA\t32").replace("0x10\n", "0x0010\n")
    text = text.replace("bit 7 ", "bit 4  - ap_continue (Read/Write/SC)\n//        bit 7 ")
    lines = [line for line in text.splitlines() if "STATUS" not in line]
    lines += [f"#define XNPU_TOP_AXILITES_ADDR_STATUS_{i}_DATA {0x60 + 16 * i:#x}" for i in range(4)]
    expected = REGISTERS | {"address_bits": 32, "ap_continue": True, "status": [0x60, 0x70, 0x80, 0x90]}
    assert registers_of_header("\n".join(lines), "hw.h") == expected


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("#define", "//", "hw.h: no register is defined in it; expected xnpu_top_hw.h"),
        ("XNPU_TOP", "XVADD", "registers XVADD_CONTROL_… of another kernel"),
        ("CONTROL_ADDR_COUNT", "CONTROL_R_ADDR_COUNT", r"2 AXI-lite interfaces \(XNPU_TOP_CONTROL, XNPU_TOP_CONTROL_R\)"),
        ("ADDR_POOL_BYTES_DATA", "ADDR_POOL_SIZE_DATA", "hw.h: no register ADDR_POOL_BYTES_DATA"),
        ("ADDR_IER", "ADDR_IXR", "no register ADDR_IER"),
        ("STATUS", "STATE", "no register ADDR_STATUS_BASE"),
        ("DEPTH_STATUS               4", "DEPTH_STATUS 3", "status: expected 4 words of 32 bits, found 3 of 32"),
        ("BITS_POOL_DATA             64", "BITS_POOL_DATA 32", "expected both of 32 or both of 64 bits"),
    ],
)  # fmt: skip
def test_headers_refused(old: str, new: str, words: str) -> None:
    assert old in HEADER
    with pytest.raises(InputError, match=words) as error:
        registers_of_header(HEADER.replace(old, new), "hw.h")
    assert "\n" not in str(error.value)


def test_description(tmp_path: Path) -> None:
    header = tmp_path / "xnpu_top_hw.h"
    header.write_text(HEADER)
    arch = arches.load("nf-b1024")
    found = describe(header, arch, "/dev/uio4", "/dev/udmabuf1", name="npu_top", interrupt=True, timeout_ms=7)
    assert found["uio"] == {
        **{"node": "/dev/uio4", "sysfs": "/sys/class/uio/uio4", "name": "npu_top", "interrupt": "/dev/uio4"}
    }
    assert found["memory"] == {"node": "/dev/udmabuf1", "sysfs": "/sys/class/u-dma-buf/udmabuf1", "cache": "sync"}
    assert (found["arch"], found["registers"], found["timeout_ms"]) == (arch.to_json(), REGISTERS, 7)
    with pytest.raises(UsageError, match="cache wild: expected one of sync, off"):
        describe(header, arch, cache="wild")
    with pytest.raises(InputError, match=r"none\.h: cannot be read \(No such file"):
        describe(tmp_path / "none.h", arch)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, r"board\.json\.format: expected 1, found 2; another version of npuforge wrote it"),
        ({"colour": 1}, "board.json: unknown key 'colour'; expected format, arch, isa_version, uio"),
        ({"uio__nod": "x"}, "board.json.uio: unknown key 'nod'"),
        ({"memory__cache": "on"}, "memory.cache: expected sync or off, found 'on'"),
        ({"memory__node": ""}, "memory.node: expected a path, found an empty text"),
        ({"registers__bin": 18}, "registers.bin: expected a multiple of 4, found 18"),
        ({"registers__count": 0x14}, "registers.count: offset 20 is taken by .*registers.bin; expected as Vitis HLS"),
        ({"registers__status": [80, 84, 88]}, "registers.status: expected 4 offsets .*, found 3"),
        ({"registers__status": [80, 84, 88, 64]}, r"registers.status\[3\]: offset 64 is taken by .*registers.count"),
        ({"registers__address_bits": 48}, "address_bits: expected 32 or 64, found 48"),
        ({"registers__pool": -4}, "registers.pool"),
        ({"registers__pool": "0x24"}, "registers.pool"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"registers": None}, "registers"),
        ({"arch": "nf-b4096"}, "board.json.arch"),
    ],
)  # fmt: skip
def test_malformed(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    board = StandIn(tmp_path)
    with pytest.raises(FormatError, match=words) as error:
        Session(IMAGE, device="uio", board=board.write(**changes))
    assert "\n" not in str(error.value)


def test_every_key_is_needed(tmp_path: Path) -> None:
    """But for `name` and `interrupt`, and ap_continue, whose absence means no."""
    board, optional = StandIn(tmp_path), {"name", "ap_continue"}
    whole = board.description()
    for section, keys in [("", list(whole)), *((s, list(whole[s])) for s in ("uio", "registers", "memory"))]:
        for key in keys:
            less = json.loads(json.dumps(whole))
            (less[section] if section else less).pop(key)
            board.board.write_text(json.dumps(less))
            expected = DeviceError if key in optional else FormatError  # a description that can be read: no hardware
            with pytest.raises(expected, match="has not answered|is not idle" if key in optional else key):
                Session(IMAGE, device="uio", board=board.board)


def test_no_json(tmp_path: Path) -> None:
    for content in (b"", b"{", b"\xff\xfe", b"[]", b"{}", b'{"format": 1}'):
        (tmp_path / "board.json").write_bytes(content)
        with pytest.raises(NpuforgeError, match=r"board\.json"):
            Session(IMAGE, device="uio", board=tmp_path / "board.json")
    with pytest.raises(DeviceError, match="cannot be read"):
        Session(IMAGE, device="uio", board=tmp_path)


def test_names_of_the_arch_stay_on_one_line(tmp_path: Path) -> None:
    board = StandIn(tmp_path / "board")
    found = board.description()
    found["arch"] = {"\n": None, "\x01b\r": 1, "lanes": 1}
    board.board.write_text(json.dumps(found))
    with pytest.raises(ArchError) as error:
        Session(IMAGE, device="uio", board=board.board)
    message = str(error.value)
    assert "\\n expected null, found absent" in message and message.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_place(data: st.DataObject, tmp_path: Path) -> None:
    """A typed error of one line, whatever stands in the file: the nodes are not there, so none can succeed."""
    folder = tmp_path / "board"
    board = StandIn(folder) if not folder.exists() else StandIn.__new__(StandIn)
    board.folder, board.interrupt = folder, None
    (folder / "registers").unlink(missing_ok=True)
    found = board.description()
    section = data.draw(st.sampled_from(["", "uio", "registers", "memory"]))
    place = found[section] if section else found
    place[data.draw(st.sampled_from(list(place)))] = data.draw(JSON)
    board.board.write_text(json.dumps(found))
    with pytest.raises((FormatError, DeviceError, ArchError)) as error:
        Session(IMAGE, device="uio", board=board.board)
    assert "\n" not in str(error.value)
