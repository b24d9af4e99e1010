"""NPU program of Affine: ELTWISE with one operand and an addend per lane."""

from __future__ import annotations

import numpy as np

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
from npuforge.hw_kernels.dsl.tile import Image, Param, Tile


class AffineProgram(LayerProgram):
    """One operand."""

    def pack(self, work: Work) -> Packed:
        assert isinstance(work.params, EltwiseParams)
        addend = work.out_map.expand(np.asarray(work.params.k, "<i4"))
        records = operand_records(work.params, work.out_map)
        return Packed({"operand": records, "bias": addend, **stage_arrays(work.params.stage, work.out_map)})

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        assert isinstance(work.params, EltwiseParams)
        stage = stage_spec(work.params.stage, p, cut)
        npu.affine(tile(x[0]), y, lane_part(p["operand"], cut, 8), lane_part(p["bias"], cut, 4), stage)


AFFINE = AffineProgram()
