"""NPU program of Concat where views into one buffer are not possible: one COPY layer per input that has to move (compile/steps/lanes.py)."""

from __future__ import annotations

from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Work, tile
from npuforge.hw_kernels.dsl.tile import Image, Param, Tile


class CopyProgram(LayerProgram):
    """Moves one operand, lanes unchanged."""

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        npu.copy(tile(x[0]), y)


CONCAT = CopyProgram()
