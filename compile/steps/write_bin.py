"""Step `write_bin`: the compiled network as a `.bin` file, which appears whole or not at all."""

from __future__ import annotations

import json
import os

from npuforge.compile.ir.errors import VerifyError
from npuforge.compile.steps.generate import CompiledProgram
from npuforge.hw_kernels.isa.binfile import BinWriter, Dtype


def _writer(compiled: CompiledProgram) -> BinWriter:
    writer = BinWriter()
    for name, dtype, data in compiled.sections:
        writer.add(name, dtype, data)
    writer.add("instructions", Dtype.INSTRUCTIONS, compiled.instructions)
    writer.add("pool", Dtype.JSON)
    writer.add("meta", Dtype.JSON)
    offsets = writer.layout()
    for name, offset in compiled.file_offsets.items():
        if offsets.get(name) != offset:
            raise VerifyError(
                f"write_bin: section {name} lies at {offsets.get(name)}, the instructions expect it at {offset}"
            )
    writer.fill("pool", json.dumps(compiled.pool, allow_nan=False).encode())
    writer.fill("meta", json.dumps(compiled.meta, allow_nan=False).encode())
    return writer


def to_bytes(compiled: CompiledProgram) -> bytes:
    """The whole file."""
    return _writer(compiled).to_bytes()


def write_bin(compiled: CompiledProgram, path: str | os.PathLike[str]) -> None:
    """Writes the file (temporary file, then rename)."""
    _writer(compiled).write(path)


run = write_bin
