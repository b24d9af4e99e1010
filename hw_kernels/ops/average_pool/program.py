"""NPU program of AveragePool: POOL with one multiplier per number of valid taps and lane."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.bf16 import Bf16AveragePoolParams
from npuforge.compile.ir.quantization import AveragePoolParams
from npuforge.hw_kernels.arch import LANES
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Packed, Work, lane_part, tile
from npuforge.hw_kernels.dsl.tile import Dtype, Image, Param, Tile
from npuforge.hw_kernels.isa.codec import OPERAND_DTYPE, REQUANT_DTYPE
from npuforge.hw_kernels.ops.max_pool.program import pool_window


class AveragePoolProgram(LayerProgram):
    """Multipliers lie [counts, lanes]: one array per cut."""

    def input_rows(self, work: Work, operand: int, low: int, high: int) -> tuple[int, int]:
        return pool_window(work).rows(low, high, work.in_sizes[0][0])

    @staticmethod
    def _params(work: Work) -> AveragePoolParams:
        assert isinstance(work.params, AveragePoolParams)
        return work.params

    def _counts(self, work: Work) -> int:
        window = pool_window(work)
        return 1 if self._params(work).single else window.kernel_h * window.kernel_w

    def cut_bytes(self, work: Work, blocks: int) -> int:
        return 0 if work.dtype == Dtype.BF16 else 2 * LANES * blocks * self._counts(work)

    def pack(self, work: Work) -> Packed:
        if isinstance(work.params, Bf16AveragePoolParams):
            return Packed({"factor": np.asarray(work.params.factor, "<f4")})
        params, lanes = self._params(work), work.out_map
        requant, operand = np.zeros(len(lanes.lanes), REQUANT_DTYPE), np.zeros(len(lanes.lanes), OPERAND_DTYPE)
        requant["z"], operand["za"] = params.zero_out, params.zero_in
        multiplier = np.asarray(params.multiplier, "<i2")[: self._counts(work)]
        missing = self._counts(work) - multiplier.shape[0]  # counts that no window has
        multiplier = np.pad(multiplier, ((0, missing), (0, 0)))
        wide = lanes.expand(multiplier, axis=1)
        arrays = [np.ascontiguousarray(wide[:, LANES * c.first : LANES * (c.first + c.count)]) for c in work.cuts]
        return Packed({"requant": lanes.expand(requant), "operand": lanes.expand(operand)}, arrays)

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        if isinstance(work.params, Bf16AveragePoolParams):
            npu.pool_bf16(tile(x[0]), y, pool_window(work), p["factor"], work.params.single)
            return
        params = self._params(work)
        requant, operand = lane_part(p["requant"], cut, 8), lane_part(p["operand"], cut, 8)
        npu.average_pool(
            tile(x[0]), y, pool_window(work), p["weight"], requant, operand, int(params.shift), bool(params.single)
        )


AVERAGE_POOL = AveragePoolProgram()
