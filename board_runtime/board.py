"""Descriptions of boards for the device `uio`: `describe` makes one from the register header that Vitis HLS writes for `npu_top`.

The schema, and who reads it, is board_runtime/src/uio/board.cpp's; docs/board.md explains it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npuforge.compile.ir.errors import InputError, UsageError
from npuforge.hw_kernels.arch import Arch
from npuforge.hw_kernels.isa.instructions import ISA_VERSION

FORMAT = 1
CACHES = ("sync", "off")
TIMEOUT_MS = 2000
_DEFINE = re.compile(r"^\s*#define\s+(X\w+?)_(ADDR|BITS|WIDTH|DEPTH)_(\w+)\s+(0[xX][0-9a-fA-F]+|\d+)\b", re.MULTILINE)
_CONTROL = {
    "control": "AP_CTRL",
    "global_interrupt_enable": "GIE",
    "interrupt_enable": "IER",
    "interrupt_status": "ISR",
}
_ARGUMENTS = ("bin", "bin_bytes", "pool", "pool_bytes", "instruction_addr", "count")
_SUFFIXES = ("", "_R", "_V")  # HLS renames arguments whose names are words of its own languages
_STATUS_WORDS = 4
_KERNEL = "XNPU_TOP_"


def registers_of_header(text: str, where: str) -> dict[str, Any]:
    """`registers` of a board description from the text of `xnpu_top_hw.h`: byte offsets by name.

    Raises InputError where it is the header of another kernel, a register is missing, or they lie behind two AXI-lite interfaces.
    """
    found: dict[str, dict[str, int]] = {}
    for prefix, kind, name, value in _DEFINE.findall(text):
        found.setdefault(prefix, {})[f"{kind}_{name}"] = int(value, 0)
    if not found:
        raise InputError(f"{where}: no register is defined in it; expected xnpu_top_hw.h as Vitis HLS writes it")
    foreign = [prefix for prefix in found if not prefix.startswith(_KERNEL)]
    if foreign:
        raise InputError(
            f"{where}: registers {foreign[0]}_… of another kernel; expected {_KERNEL}…, of xnpu_top_hw.h as Vitis HLS writes it"
        )
    if len(found) > 1:
        raise InputError(
            f"{where}: registers behind {len(found)} AXI-lite interfaces ({', '.join(found)}); expected one, synthesise npu_top with one bundle"
        )
    (defined,) = found.values()
    registers: dict[str, Any] = {key: _offset(defined, f"ADDR_{name}", where) for key, name in _CONTROL.items()}
    for key in _ARGUMENTS:
        registers[key] = _offset(defined, f"ADDR_{_spelled(defined, key)}_DATA", where)
    registers["status"] = _status(defined, where)
    bits = {defined.get(f"BITS_{_spelled(defined, key)}_DATA") for key in ("bin", "pool")}
    if bits not in ({32}, {64}):
        raise InputError(f"{where}: the addresses bin and pool: expected both of 32 or both of 64 bits, found {bits}")
    registers["address_bits"] = bits.pop()
    registers["ap_continue"] = "ap_continue" in text
    return registers


def _spelled(defined: Mapping[str, int], argument: str) -> str:
    name = argument.upper()
    return next((name + s for s in _SUFFIXES if f"ADDR_{name}{s}_DATA" in defined), name)


def _offset(defined: Mapping[str, int], name: str, where: str) -> int:
    if name not in defined:
        raise InputError(f"{where}: no register {name}; expected xnpu_top_hw.h of hw_kernels/hls/npu_top.cpp")
    return defined[name]


def _status(defined: Mapping[str, int], where: str) -> list[int]:
    """An array on AXI-lite is a memory; a tool may also make a register of each element."""
    for suffix in _SUFFIXES:
        base = defined.get(f"ADDR_STATUS{suffix}_BASE")
        if base is None:
            continue
        shape = (defined.get(f"WIDTH_STATUS{suffix}"), defined.get(f"DEPTH_STATUS{suffix}"))
        if shape != (32, _STATUS_WORDS):
            raise InputError(f"{where}: status: expected 4 words of 32 bits, found {shape[1]} of {shape[0]}")
        return [base + 4 * i for i in range(_STATUS_WORDS)]
    if "ADDR_STATUS_0_DATA" in defined:
        return [_offset(defined, f"ADDR_STATUS_{i}_DATA", where) for i in range(_STATUS_WORDS)]
    raise InputError(f"{where}: no register ADDR_STATUS_BASE; expected xnpu_top_hw.h of hw_kernels/hls/npu_top.cpp")


def describe(
    header: Path,
    arch: Arch,
    uio: str = "/dev/uio0",
    memory: str = "/dev/udmabuf0",
    *,
    name: str = "",
    interrupt: bool = False,
    cache: str = "sync",
    timeout_ms: int = TIMEOUT_MS,
) -> dict[str, Any]:
    """A board description for JSON. `header`: xnpu_top_hw.h of the overlay; `arch`: what it was built for; `uio`, `memory`: its device nodes.

    The attributes are taken to be in /sys/class under the nodes' names. Raises InputError for the header, UsageError for the rest.
    """
    if cache not in CACHES:
        raise UsageError(f"cache {cache}: expected one of {', '.join(CACHES)}")
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(
            f"{header}: cannot be read ({error.strerror}); give xnpu_top_hw.h as Vitis HLS writes it"
        ) from error
    node: dict[str, Any] = {"node": uio, "sysfs": f"/sys/class/uio/{Path(uio).name}"}
    node |= {"name": name} if name else {}
    node |= {"interrupt": uio} if interrupt else {}
    return {
        "format": FORMAT,
        "arch": arch.to_json(),
        "isa_version": ISA_VERSION,
        "uio": node,
        "registers": registers_of_header(text, str(header)),
        "memory": {"node": memory, "sysfs": f"/sys/class/u-dma-buf/{Path(memory).name}", "cache": cache},
        "timeout_ms": timeout_ms,
    }
