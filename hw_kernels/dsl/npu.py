"""The typed builder behind every operator's program: `Npu.conv(...)` and its kin check their tiles and append one instruction each.

An instruction here has symbolic addresses (`Ref`) and the bytes it reads and writes; the memory plan and the code generator make words of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from npuforge.hw_kernels.dsl.fields import Fields
from npuforge.hw_kernels.dsl.instr import Instr
from npuforge.hw_kernels.dsl.npu_bf16 import Bf16Instructions
from npuforge.hw_kernels.dsl.npu_int8 import Int8Instructions
from npuforge.hw_kernels.dsl.npu_transfers import Transfers
from npuforge.hw_kernels.dsl.tile import SRAM, Buffer, Dtype, Footprint, Ref, Tile


@dataclass
class Npu(Transfers, Int8Instructions, Bf16Instructions):
    """Collects the instructions of a program; `layer` is stamped on each."""

    layer: int = -1
    instructions: list[Instr] = field(default_factory=list)
    maps: int = 0

    def _emit(self, name: str, fields: Fields, reads: list[Footprint], writes: list[Footprint]) -> Instr:
        instr = Instr(
            name, {k: v if isinstance(v, Ref) else int(v) for k, v in fields.items()}, reads, writes, self.layer
        )
        self.instructions.append(instr)
        return instr

    def map(
        self, rows: int, cols: int, blocks: int, dtype: Dtype, first_row: int = 0, height: int | None = None
    ) -> Tile:
        """Rows of a map of its own in SRAM, for values inside a program; the memory plan gives it its place while it is used."""
        pixel = dtype.block_bytes * blocks
        self.maps += 1
        buffer = Buffer(f"temporary{self.maps}", rows * cols * pixel, SRAM)
        return Tile(buffer, 0, rows, cols, blocks, cols * pixel, pixel, first_row, height or rows, dtype)
