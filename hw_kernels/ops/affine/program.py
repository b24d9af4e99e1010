"""NPU program of Affine: ELTWISE with one operand and an addend per lane."""

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


class AffineProgram(LayerProgram):
    """One operand."""

    def pack(self, work: Work) -> Packed:
        if isinstance(work.params, Bf16EltwiseParams):
            assert work.params.factor is not None
            factor = work.out_map.expand(np.asarray(work.params.factor, "<f4"))
            return Packed({"factor": factor, **bf16_arrays(work.params.stage, work.out_map)})
        assert isinstance(work.params, EltwiseParams)
        addend = work.out_map.expand(np.asarray(work.params.k, "<i4"))
        records = operand_records(work.params, work.out_map)
        return Packed({"operand": records, "bias": addend, **stage_arrays(work.params.stage, work.out_map)})

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        if isinstance(work.params, Bf16EltwiseParams):
            spec = bf16_spec(work.params.stage, p, cut.first, cut.count)
            npu.affine_bf16(tile(x[0]), y, lane_part(p["factor"], cut, 4), spec)
            return
        assert isinstance(work.params, EltwiseParams)
        stage = stage_spec(work.params.stage, p, cut)
        npu.affine(tile(x[0]), y, lane_part(p["operand"], cut, 8), lane_part(p["bias"], cut, 4), stage)


AFFINE = AffineProgram()
