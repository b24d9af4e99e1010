"""The typed builder behind every operator's program: `Npu.conv(...)` and its kin check their tiles and append one instruction each.

An instruction here has symbolic addresses (`Ref`) and the bytes it reads and writes; the memory plan and the code generator make words of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from npuforge.hw_kernels.dsl.fields import Fields
from npuforge.hw_kernels.dsl.instr import Instr
from npuforge.hw_kernels.dsl.npu_bf16 import Bf16Instructions
from npuforge.hw_kernels.dsl.npu_int8 import Int8Instructions
from npuforge.hw_kernels.dsl.npu_transfers import Transfers
from npuforge.hw_kernels.dsl.tile import SRAM, Buffer, Footprint, Ref, Tile


@dataclass
class Npu(Transfers, Int8Instructions, Bf16Instructions):
    """Collects the instructions of a program; `layer` is stamped on each."""

    layer: int = -1
    instructions: list[Instr] = field(default_factory=list)

    def _emit(self, name: str, fields: Fields, reads: list[Footprint], writes: list[Footprint]) -> Instr:
        instr = Instr(
            name, {k: v if isinstance(v, Ref) else int(v) for k, v in fields.items()}, reads, writes, self.layer
        )
        self.instructions.append(instr)
        return instr

    def temporary(self, like: Tile) -> Tile:
        """A tile of its own in SRAM, as large as `like`, for values inside a program; the memory plan gives it its place while it is used."""
        pixel = like.block_bytes * like.blocks
        buffer = Buffer(f"temporary{len(self.instructions)}", like.rows * like.cols * pixel, SRAM)
        return replace(like, buffer=buffer, offset=0, row_stride=like.cols * pixel, pixel_stride=pixel)
