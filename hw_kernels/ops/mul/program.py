"""NPU program of Mul: ELTWISE."""

from __future__ import annotations

from npuforge.hw_kernels.isa.instructions import EltwiseKind
from npuforge.hw_kernels.ops.add.program import TwoOperandProgram

MUL = TwoOperandProgram(EltwiseKind.MUL)
