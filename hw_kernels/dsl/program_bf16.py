"""bf16 parameters in lanes: records and curve of an output stage. Beside `program.py`, which owns what a program is."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.hw_kernels.dsl.npu_bf16 import CURVE_BYTES, Bf16StageSpec
from npuforge.hw_kernels.dsl.tile import LaneMap, Param
from npuforge.hw_kernels.isa.codec import BF16_DTYPE


def bf16_arrays(stage: Bf16Stage, out_map: LaneMap) -> dict[str, np.ndarray]:
    """The sections of an output stage: `records` (pad lanes all 0: their limits are equal, so they are 0), and `table` where there is a curve."""
    records = np.zeros(len(out_map.lanes), BF16_DTYPE)
    records["bias"], records["slope"], records["low"], records["high"] = stage.bias, stage.slope, stage.low, stage.high
    arrays = {"records": out_map.expand(records)}
    if stage.kind == "table":
        assert stage.table is not None and stage.table.nbytes == CURVE_BYTES
        arrays["table"] = np.asarray(stage.table, "<f4")
    return arrays


def bf16_spec(stage: Bf16Stage, p: dict[str, Param], first: int, blocks: int) -> Bf16StageSpec:
    """The output stage of channel blocks first..first + blocks."""
    return Bf16StageSpec.of(stage, p["records"], p.get("table")).part(first, blocks)
