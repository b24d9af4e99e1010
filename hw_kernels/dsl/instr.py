"""One instruction of a program before its addresses are known."""

from __future__ import annotations

from dataclasses import dataclass

from npuforge.hw_kernels.dsl.tile import Footprint, Ref
from npuforge.hw_kernels.isa.instructions import BY_NAME, Engine


@dataclass(eq=False)
class Instr:
    """One instruction with symbolic addresses."""

    name: str
    fields: dict[str, int | Ref]
    reads: list[Footprint]
    writes: list[Footprint]
    layer: int = -1

    @property
    def engine(self) -> Engine:
        """The queue it runs in."""
        return BY_NAME[self.name].engine
