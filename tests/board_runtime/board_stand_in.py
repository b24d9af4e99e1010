"""A stand-in for a board with our overlay: register file, memory and sysfs attributes as plain files, and behind them npu_stand_in.cpp, which runs
the HLS code `npu_top`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from npuforge.board_runtime.board import describe
from npuforge.hw_kernels import arch as arches
from npuforge.hw_kernels.isa.generate import header_text

ROOT = Path(__file__).resolve().parents[2]
HLS = ROOT / "hw_kernels" / "hls"
ARCH = "nf-b4096"
PHYSICAL = 0x70000000
REGISTER_BYTES = 1 << 16
MEMORY_BYTES = 16 << 20
ATTRIBUTES = ("sync_offset", "sync_size", "sync_direction", "sync_for_device", "sync_for_cpu")

# As Vitis HLS lays out npu_top's arguments and names them; written by hand, no tool was at hand.
HEADER = """// ==============================================================
// control
// 0x00 : Control signals
//        bit 0  - ap_start (Read/Write/COH)
//        bit 1  - ap_done (Read/COR)
//        bit 2  - ap_idle (Read)
//        bit 3  - ap_ready (Read/COR)
//        bit 7  - auto_restart (Read/Write)
//        bit 9  - interrupt (Read)
//        others - reserved
// 0x50 ~
// 0x5f : Memory 'status' (4 * 32b)
//        Word n : bit [31:0] - status[n]
// (SC = Self Clear, COR = Clear on Read, TOW = Toggle on Write, COH = Clear on Handshake)

#define XNPU_TOP_CONTROL_ADDR_AP_CTRL               0x00
#define XNPU_TOP_CONTROL_ADDR_GIE                   0x04
#define XNPU_TOP_CONTROL_ADDR_IER                   0x08
#define XNPU_TOP_CONTROL_ADDR_ISR                   0x0c
#define XNPU_TOP_CONTROL_ADDR_BIN_R_DATA            0x10
#define XNPU_TOP_CONTROL_BITS_BIN_R_DATA            64
#define XNPU_TOP_CONTROL_ADDR_BIN_BYTES_DATA        0x1c
#define XNPU_TOP_CONTROL_BITS_BIN_BYTES_DATA        32
#define XNPU_TOP_CONTROL_ADDR_POOL_DATA             0x24
#define XNPU_TOP_CONTROL_BITS_POOL_DATA             64
#define XNPU_TOP_CONTROL_ADDR_POOL_BYTES_DATA       0x30
#define XNPU_TOP_CONTROL_BITS_POOL_BYTES_DATA       32
#define XNPU_TOP_CONTROL_ADDR_INSTRUCTION_ADDR_DATA 0x38
#define XNPU_TOP_CONTROL_BITS_INSTRUCTION_ADDR_DATA 32
#define XNPU_TOP_CONTROL_ADDR_COUNT_DATA            0x40
#define XNPU_TOP_CONTROL_BITS_COUNT_DATA            32
#define XNPU_TOP_CONTROL_ADDR_STATUS_BASE           0x50
#define XNPU_TOP_CONTROL_ADDR_STATUS_HIGH           0x5f
#define XNPU_TOP_CONTROL_WIDTH_STATUS               32
#define XNPU_TOP_CONTROL_DEPTH_STATUS               4
"""


@lru_cache(maxsize=1)
def program() -> Path:
    """The stand-in, built once per state of the sources and user; shared by parallel test workers."""
    source = Path(__file__).parent / "board" / "npu_stand_in.cpp"
    digest = hashlib.sha256(header_text().encode())
    for path in [source, HLS / "npu_top.cpp", *sorted(HLS.glob("*.hpp"))]:
        digest.update(path.read_bytes())
    cache = Path(tempfile.gettempdir()) / f"npuforge-tests-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise PermissionError(f"{cache} belongs to somebody else")
    built = cache / f"npu_stand_in_{digest.hexdigest()[:16]}"
    if not built.exists():
        arch = arches.load(ARCH)
        defines = [
            f"-DNPU_PIXEL_PARALLEL={arch.pixel_parallel}",
            f"-DNPU_SRAM_BYTES={arch.sram_bytes}",
            "-DNPU_BF16=0",
        ]
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            (Path(folder) / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
            flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-I", folder, "-I", str(HLS), *defines]
            output = Path(folder) / "stand_in"
            subprocess.run(["g++", *flags, str(source), str(HLS / "npu_top.cpp"), "-o", str(output)], check=True)
            output.replace(built)
    return built


@dataclass
class StandIn:
    """Files of a board that nobody drives yet, in `folder`."""

    folder: Path
    interrupt: Path | None = None  # a terminal in place of the node that tells of interrupts

    def __post_init__(self) -> None:
        for name in ("sys/uio/maps/map0", "sys/memory"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "registers").write_bytes(bytes(REGISTER_BYTES))
        with (self.folder / "memory").open("wb") as file:
            file.truncate(MEMORY_BYTES)
        self.say("uio/name", "npu_top")
        self.say("uio/maps/map0/size", f"{REGISTER_BYTES:#018x}")
        self.say("memory/size", MEMORY_BYTES)
        self.say("memory/phys_addr", f"{PHYSICAL:#018x}")
        self.say("memory/sync_mode", 2)
        for name in ATTRIBUTES:
            self.say(f"memory/{name}", 0)
        (self.folder / "xnpu_top_hw.h").write_text(HEADER)
        self.write()

    def say(self, attribute: str, value: object) -> None:
        """What an attribute in sysfs says."""
        (self.folder / "sys" / attribute).write_text(f"{value}\n")

    def said(self, attribute: str) -> str:
        """First line of an attribute in sysfs."""
        return (self.folder / "sys" / attribute).read_text().splitlines()[0]

    def description(self) -> dict[str, Any]:
        """The board's description, with the folder's files in place of device nodes."""
        found = describe(self.folder / "xnpu_top_hw.h", arches.load(ARCH), name="npu_top", timeout_ms=20_000)
        found["uio"] |= {"node": str(self.folder / "registers"), "sysfs": str(self.folder / "sys" / "uio")}
        found["uio"] |= {} if self.interrupt is None else {"interrupt": str(self.interrupt)}
        found["memory"] |= {"node": str(self.folder / "memory"), "sysfs": str(self.folder / "sys" / "memory")}
        return found

    @property
    def board(self) -> Path:
        """board.json."""
        return self.folder / "board.json"

    def write(self, **changes: Any) -> Path:
        """Writes board.json; `changes`: `section__key=value`, or `key=value` at the top."""
        found = self.description()
        for name, value in changes.items():
            section, _, key = name.rpartition("__")
            (found[section] if section else found)[key] = value
        self.board.write_text(json.dumps(found))
        return self.board


@contextlib.contextmanager
def running(folder: Path, *options: str, interrupt: bool = False) -> Iterator[StandIn]:
    """A stand-in whose hardware runs. `options`: of npu_stand_in.cpp. `interrupt`: it tells of finished jobs on a terminal."""
    folder.mkdir(parents=True, exist_ok=True)
    ends: tuple[int, ...] = ()
    words = list(options)
    if interrupt:
        ends = os.openpty()
        for end in ends:
            tty.setraw(end)
        words.append(f"interrupt={ends[0]}")
    board = StandIn(folder, Path(os.ttyname(ends[1])) if interrupt else None)
    command = [program(), folder / "registers", folder / "memory", hex(PHYSICAL), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=ends[:1], stderr=sys.stderr)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield board
    finally:
        process.terminate()
        process.communicate()
        for end in ends:
            os.close(end)
