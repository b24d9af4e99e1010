"""Readable listing of a `.bin`: section table, then one line per instruction under the layer it belongs to.

python -m npuforge.hw_kernels.isa.disasm model.bin
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from npuforge.compile.ir.errors import InstructionError, NpuforgeError
from npuforge.hw_kernels.isa.binfile import BinFile, read_bin
from npuforge.hw_kernels.isa.codec import disassemble_one, split


def section_lines(binary: BinFile) -> list[str]:
    """One line per section."""
    return [f"0x{s.offset:08x} {s.size:>10} {s.dtype.name.lower():<12} {s.name}" for s in binary.sections.values()]


def _layer_starts(meta: Any) -> dict[int, str]:
    layers = meta.get("layers", []) if isinstance(meta, dict) else []
    return {layer["first_instruction"]: f"{layer['id']} {layer.get('op', '')} {layer['name']}" for layer in layers}


def instruction_lines(binary: BinFile) -> list[str]:
    """One line per instruction; a comment line opens each layer that `meta` names."""
    starts = _layer_starts(binary.json()) if "meta" in binary.sections else {}
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
