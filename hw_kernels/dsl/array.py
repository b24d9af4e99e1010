"""Array programs of the NPU DSL: operators on lists and layouts, as a Python function over arrays of static shape.

    @array_kernel
    def angle_encode(x, *, axis=1):
        twice = vmuls(x, 2.0)
        return concat([vsin(twice), vcos(twice)], axis)

The function is traced once per set of shapes and attributes; every mistake is an InstructionError that names its line. `ArrayTrace.meaning` is its
meaning in numpy; CANN's TBE source is generated from it (`compile/ascend/tbe_arrays.py`). No engine of the NPU runs one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.dsl.array_library import (
    added,
    between,
    bounded,
    chosen_rows,
    clamp,
    sigmoid,
    vatan2,
    vcos,
    vsin,
    whole_in_range,
)
from npuforge.hw_kernels.dsl.array_trace import WHOLE, ArrayOperation, ArrayTrace, ArrayValue, Result, Shape, tracing
from npuforge.hw_kernels.dsl.array_vocabulary import (
    broadcast,
    concat,
    floor,
    gather,
    index,
    matmul,
    part,
    reduce_max,
    reduce_min,
    reduce_sum,
    repeat,
    reshape,
    result,
    transpose,
    vabs,
    vadd,
    vadds,
    vcmpsel,
    vdiv,
    vexp,
    vmax,
    vmaxs,
    vmin,
    vmins,
    vmul,
    vmuls,
    vsqrt,
    vsub,
)
from npuforge.hw_kernels.dsl.trace import failure
from npuforge.hw_kernels.dsl.traced_function import TracedFunction, keyword_only

__all__ = [
    "WHOLE",
    "ArrayKernel",
    "ArrayTrace",
    "ArrayValue",
    "added",
    "array_kernel",
    "between",
    "bounded",
    "broadcast",
    "chosen_rows",
    "clamp",
    "concat",
    "failure",
    "floor",
    "gather",
    "index",
    "matmul",
    "part",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "repeat",
    "reshape",
    "result",
    "sigmoid",
    "transpose",
    "vabs",
    "vadd",
    "vadds",
    "vatan2",
    "vcmpsel",
    "vcos",
    "vdiv",
    "vexp",
    "vmax",
    "vmaxs",
    "vmin",
    "vmins",
    "vmul",
    "vmuls",
    "vsin",
    "vsqrt",
    "vsub",
    "whole_in_range",
]  # fmt: skip


@dataclass(frozen=True)
class ArrayKernel(TracedFunction):
    """An array program: what `array_kernel` makes of a function."""

    @property
    def operands(self) -> int:
        """How many arrays it takes by name; with `*arrays` it takes any number more."""
        kinds = [p.kind for p in inspect.signature(self.function).parameters.values()]
        return kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

    def trace(self, shapes: Sequence[Shape], attributes: dict[str, Any] | None = None) -> ArrayTrace:
        """Runs the function once on symbolic arrays of these shapes. A number counts as an array of one element."""
        for number, shape in enumerate(shapes):
            if any(n < 1 for n in shape):
                raise InstructionError(
                    f"{self.place}: {self.name}: expected inputs of known size with at least one element, found input {number} with {list(shape)}"
                )
        trace, given = ArrayTrace(self.name), self.given(attributes)
        with tracing(trace):
            arrays = [trace.add(ArrayOperation("input", shape=s or (1,), number=i)) for i, s in enumerate(shapes)]
            returned = self.run(list(arrays), given)
            several = returned if isinstance(returned, tuple) else (returned,)
            trace.results = [self._finished(trace, r) for r in several]
        return trace

    def _finished(self, trace: ArrayTrace, returned: Any) -> Result:
        if isinstance(returned, Result):
            return returned
        if not isinstance(returned, ArrayValue) or returned.trace is not trace:
            found = type(returned).__name__
            raise InstructionError(f"{self.place}: {self.name}: a program returns arrays, found {found}")
        return Result(returned.index)


def array_kernel(function: Callable[..., Any]) -> ArrayKernel:
    """Decorator: a function of arrays as an array program. Positional parameters are arrays, keyword-only ones node attributes."""
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    kernel = ArrayKernel(function, function.__name__, keyword_only(function))
    if inspect.Parameter.VAR_KEYWORD in kinds or kinds <= {inspect.Parameter.KEYWORD_ONLY}:
        raise InstructionError(
            f"{kernel.place}: {kernel.name}: a program takes at least one array, and named attributes"
        )
    return kernel
