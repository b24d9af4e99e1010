"""The NPU DSL for a user's own operator: a Python function over tiles, in the vocabulary of TBE (vadd, vmuls, vexp, vmax, reduce_sum, cast, …).

    @kernel
    def custom_gelu(x):
        inner = vmuls(vadd(x, vmuls(vmul(vmul(x, x), x), 0.044715)), 0.7978845608)
        return vmul(vmuls(x, 0.5), vadds(vtanh(inner), 1.0))

The function is traced once per precision; every mistake is an InstructionError that names the line it stands in. `Trace.meaning` is its float64
meaning, `optimise` makes engine instructions of it, `kernel_program.py` runs those in numpy and on the NPU.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.dsl.kernel_optimise import STAGED, optimise
from npuforge.hw_kernels.dsl.tile import Dtype
from npuforge.hw_kernels.dsl.trace import Operation, Trace, Value, tracing
from npuforge.hw_kernels.dsl.traced_function import TracedFunction, keyword_only
from npuforge.hw_kernels.dsl.vocabulary import (
    BF16,
    INT8,
    INT16,
    INT32,
    STORED,
    cast,
    vabs,
    vadd,
    vadds,
    vdiv,
    velu,
    verf,
    vexp,
    vgelu,
    vln,
    vlrelu,
    vmax,
    vmaxs,
    vmin,
    vmins,
    vmish,
    vmul,
    vmuls,
    vrec,
    vrelu,
    vrsqrt,
    vsigmoid,
    vsilu,
    vsoftplus,
    vsqrt,
    vsub,
    vtanh,
)
from npuforge.hw_kernels.dsl.vocabulary_maps import (
    depthwise_conv2d,
    pooling2d,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_sum,
)

__all__ = [
    "BF16",
    "INT8",
    "INT16",
    "INT32",
    "Dtype",
    "Kernel",
    "Operation",
    "Trace",
    "Value",
    "cast",
    "depthwise_conv2d",
    "kernel",
    "optimise",
    "pooling2d",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_sum",
    "vabs",
    "vadd",
    "vadds",
    "vdiv",
    "velu",
    "verf",
    "vexp",
    "vgelu",
    "vln",
    "vlrelu",
    "vmax",
    "vmaxs",
    "vmin",
    "vmins",
    "vmish",
    "vmul",
    "vmuls",
    "vrec",
    "vrelu",
    "vrsqrt",
    "vsigmoid",
    "vsilu",
    "vsoftplus",
    "vsqrt",
    "vsub",
    "vtanh",
]  # fmt: skip


@dataclass(frozen=True)
class Kernel(TracedFunction):
    """A program: what `kernel` makes of a function. Keyword-only arguments of the function are node attributes."""

    inputs: int = 0

    def trace(self, attributes: dict[str, Any] | None = None, dtype: Dtype = BF16) -> Trace:
        """Runs the function once on symbolic tiles of `dtype`, int8 or bf16."""
        assert dtype in STORED
        trace = Trace(self.name, self.inputs, dtype=dtype)
        given = self.given(attributes)
        with tracing(trace):
            tiles = [trace.add(Operation("input", number, dtype=dtype)) for number in range(self.inputs)]
            result = self.run(tiles, given)
        if not isinstance(result, Value) or result.trace is not trace:
            raise InstructionError(
                f"{self.place}: {self.name}: a program returns one tile, found {type(result).__name__}"
            )
        trace.result = _finished(trace, result, self.place)
        return trace

    def meaning(self, attributes: dict[str, Any] | None = None) -> Trace:
        """The trace for shapes and float64 values, which precisions share: a program may have been written for one of them only."""
        try:
            return self.trace(attributes, BF16)
        except InstructionError as problem:
            try:
                return self.trace(attributes, INT8)
            except InstructionError:
                raise problem from None


def _finished(trace: Trace, result: Value, place: str) -> int:
    """The value that the last instruction writes to the output."""
    made = result.operation
    if made.dtype == INT16 and made.activation.kind == "none":
        raise InstructionError(f"{made.where}: cast: an int16 argument is what the table reads; apply a curve to it")
    if made.dtype not in STORED:  # requantised to the output's scale
        return trace.add(replace(made, dtype=trace.dtype)).index
    source = trace.operations[made.a]
    if made.kind == "scale" and made.factor > 0.0 and source.kind in (*STAGED, "max2", "pool_sum"):
        return trace.add(replace(source, after=source.after * made.factor, where=made.where)).index  # no copy
    moved = made.kind in ("input", "scale") or (trace.dtype == INT8 and made.kind == "pool_max")
    if moved:  # a program that gives bytes back as they are still copies them, under the output's scale
        return trace.add(Operation("affine", result.index, dtype=trace.dtype, where=made.where or place)).index
    return result.index


def kernel(function: Callable[..., Any]) -> Kernel:
    """Decorator: a function of tiles as an NPU program. Positional parameters are tiles, keyword-only ones node attributes."""
    parameters = inspect.signature(function).parameters.values()
    tiles = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not tiles or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        code = function.__code__
        raise InstructionError(
            f"{code.co_filename}:{code.co_firstlineno}: {function.__name__}: a program takes a fixed number of tiles, at least one"
        )
    return Kernel(function, function.__name__, keyword_only(function), len(tiles))
