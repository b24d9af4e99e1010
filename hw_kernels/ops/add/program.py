"""NPU program of the two-operand element-wise operators (Add, Sub, Mul): ELTWISE."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.bf16 import Bf16EltwiseParams
from npuforge.compile.ir.quantization import EltwiseParams
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import (
    Cut,
    LayerProgram,
    Packed,
    Work,
    lane_part,
    operand_records,
    stage_arrays,
    stage_spec,
    tile,
)
from npuforge.hw_kernels.dsl.program_bf16 import bf16_arrays, bf16_spec
from npuforge.hw_kernels.dsl.tile import Image, Param, Tile
from npuforge.hw_kernels.isa.instructions import EltwiseKind


class TwoOperandProgram(LayerProgram):
    """b may broadcast over rows, columns and (one channel) lanes."""

    def __init__(self, kind: EltwiseKind) -> None:
        self.kind = kind

    @staticmethod
    def broadcasts_channels(work: Work) -> bool:
        """Whether b has one channel for all of a's."""
        return len(work.in_maps[1].lanes) == 1 != len(work.out_map.lanes)

    def operand_blocks(self, work: Work, operand: int, cut: Cut) -> tuple[int, int]:
        return (
            (0, work.in_maps[1].blocks) if operand == 1 and self.broadcasts_channels(work) else (cut.first, cut.count)
        )

    def pack(self, work: Work) -> Packed:
        if isinstance(work.params, Bf16EltwiseParams):
            return Packed(bf16_arrays(work.params.stage, work.out_map))
        assert isinstance(work.params, EltwiseParams)
        stage = stage_arrays(work.params.stage, work.out_map)
        return Packed({"operand": operand_records(work.params, work.out_map), **stage})

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        lane = int(np.asarray(work.in_maps[1].lanes)[0]) if self.broadcasts_channels(work) else None
        if isinstance(work.params, Bf16EltwiseParams):
            spec = bf16_spec(work.params.stage, p, cut.first, cut.count)
            npu.eltwise_bf16(self.kind, tile(x[0]), tile(x[1]), y, spec, lane)
            return
        assert isinstance(work.params, EltwiseParams)
        operand, stage = lane_part(p["operand"], cut, 8), stage_spec(work.params.stage, p, cut)
        npu.eltwise(self.kind, tile(x[0]), tile(x[1]), y, operand, stage, lane)


ADD = TwoOperandProgram(EltwiseKind.ADD)
