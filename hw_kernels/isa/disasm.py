"""Readable listing of a `.bin`: section table, then one line per instruction under the layer it belongs to.

python -m npuforge.hw_kernels.isa.disasm model.bin
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from npuforge.compile.ir.errors import InstructionError, NpuforgeError
from npuforge.hw_kernels.isa.binfile import BinFile, read_bin
from npuforge.hw_kernels.isa.codec import decode, disassemble_one, split
from npuforge.hw_kernels.isa.instructions import INSTRUCTION_BYTES, Engine, Instruction


def section_lines(binary: BinFile) -> list[str]:
    """One line per section."""
    return [f"0x{s.offset:08x} {s.size:>10} {s.dtype.name.lower():<12} {s.name}" for s in binary.sections.values()]


def _layers(binary: BinFile) -> list[dict[str, Any]]:
    meta = binary.json() if "meta" in binary.sections else None
    return meta.get("layers", []) if isinstance(meta, dict) else []


def _decode(data: bytes, index: int) -> tuple[Instruction, dict[str, int]]:
    try:
        return decode(data)
    except InstructionError as error:
        raise InstructionError(f"instruction {index}: {error}") from None


def section_objects(binary: BinFile) -> list[dict[str, Any]]:
    """The section table as plain values. `offset` and `size` in bytes."""
    return [
        {"name": s.name, "offset": s.offset, "size": s.size, "dtype": s.dtype.name.lower()}
        for s in binary.sections.values()
    ]


def instruction_objects(binary: BinFile) -> list[dict[str, Any]]:
    """The instructions as plain values: place, engine, fields as integers, tokens as names of engines, and the layer they belong to."""
    section = binary["instructions"]
    layers = {layer["first_instruction"]: layer for layer in _layers(binary)}
    found, layer = [], None
    for index, data in enumerate(split(section.data)):
        layer = layers.get(index, layer)
        instruction, fields = _decode(data, index)
        found.append(
            {
                "index": index,
                "offset": section.offset + index * INSTRUCTION_BYTES,
                "opcode": instruction.name,
                "engine": instruction.engine.name,
                "pop": _engines(fields.pop("pop")),
                "push": _engines(fields.pop("push")),
                "fields": fields,
                "layer": None if layer is None else {key: layer.get(key, "") for key in ("id", "op", "name")},
            }
        )
    return found


def _engines(mask: int) -> list[str]:
    return [engine.name for engine in Engine if mask >> engine & 1]


def instruction_lines(binary: BinFile) -> list[str]:
    """One line per instruction; a comment line opens each layer that `meta` names."""
    starts = {y["first_instruction"]: f"{y['id']} {y.get('op', '')} {y['name']}" for y in _layers(binary)}
    lines = []
    for index, data in enumerate(split(binary["instructions"].data)):
        if index in starts:
            lines.append(f"; {starts[index]}")
        try:
            lines.append(disassemble_one(data, index))
        except InstructionError as error:
            raise InstructionError(f"instruction {index}: {error}") from None
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="disasm", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("bin", help="the .bin file")
    parser.add_argument("--sections", action="store_true", help="list the sections only")
    chosen = parser.parse_args(arguments)
    try:
        binary = read_bin(chosen.bin)
        print("\n".join(section_lines(binary) if chosen.sections else instruction_lines(binary)))
    except NpuforgeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
