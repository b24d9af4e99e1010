"""What an array program of the NPU DSL is once it has been traced: operations in order over arrays of static shape, and their meaning in numpy.

Array programs say operators on lists and layouts (boxes, regions, sparse rows), which the tiles of `trace.py` cannot: arrays of any rank, several
results, a result whose length the data tell, a loop. No engine of the NPU runs them; sources for other targets are generated from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from npuforge.hw_kernels.dsl.trace import failure

Shape = tuple[int, ...]
PAIRS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum
}  # fmt: skip
SINGLES: dict[str, Callable[..., Any]] = {"abs": np.abs, "exp": np.exp, "sqrt": np.sqrt, "floor": np.floor}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal
}  # fmt: skip
REDUCTIONS: dict[str, Callable[..., Any]] = {"sum": np.sum, "max": np.max, "min": np.min}
WHOLE = 1 << 24  # up to here every whole number is a float32: places of rows are such numbers
LARGEST = 1 << 28  # elements of an array: a gibibyte


@dataclass(frozen=True)
class Loop:
    """`count` times: values `parameters` become values `results`, computed by the operations `body` (numbers into the trace)."""

    count: int
    parameters: tuple[int, ...]
    body: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class ArrayOperation:
    """One operation. `operands`: values by number, or numbers themselves (float). `shape`: of the result.

    By `kind`: input: number `number` of the program; state: a loop's parameter; one of PAIRS, SINGLES; select: operand 3 where operands 0 and 1 compare as `word`, else
    operand 4; reduce: by `word` along `axes`, which keep the extent 1; matmul: operand 0 times operand 1, for each of their first axis; broadcast, reshape: to `shape`; transpose: result axis i is operand axis axes[i];
    slice: from `start` on; concat: along axes[0]; index: 0, 1, 2, …; gather: rows of operand 0 that operand 1 names; loop: all its results; part: result `number` of a loop.
    """

    kind: str
    operands: tuple[int | float, ...] = ()
    shape: Shape = ()
    word: str = ""
    axes: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    number: int = 0
    loop: Loop | None = None

    @property
    def reads(self) -> tuple[int, ...]:
        """The values among the operands."""
        return tuple(o for o in self.operands if isinstance(o, int))


@dataclass(frozen=True)
class Result:
    """What the program returns: a value, its type in memory, and (`count`, a value of one element) how many of its entries along `axis` the data fill."""

    value: int
    dtype: str = "float32"
    count: int = -1
    axis: int = 0


@dataclass(frozen=True)
class ArrayValue:
    """An array inside a program: the result of one operation. Python's and numpy's operators on it are refused."""

    trace: ArrayTrace
    index: int

    @property
    def shape(self) -> Shape:
        """Static."""
        return self.trace.operations[self.index].shape

    def _refuse(self, *other: Any) -> NoReturn:
        raise failure("operator", "Python's operators are no instructions; use vadd, vmuls, vsel, …")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __getitem__ = __abs__ = __pow__ = _refuse

    def __array_ufunc__(self, function: np.ufunc, *operands: Any, **options: Any) -> NoReturn:
        raise failure(f"numpy.{function.__name__}", "an array has no values while the program is traced")


@dataclass(eq=False)
class ArrayTrace:
    """A traced array program. `order`: operations outside loops, as numbers; those inside are in their loop's body."""

    name: str
    operations: list[ArrayOperation] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def add(self, operation: ArrayOperation) -> ArrayValue:
        """Appends an operation to what is being traced: the program, or the body of its innermost loop."""
        if math.prod(operation.shape) > LARGEST:
            raise failure(operation.kind, f"arrays have up to 2**28 elements, found the shape {list(operation.shape)}")
        if 0 in operation.shape:
            raise failure(operation.kind, f"arrays have at least one element, found the shape {list(operation.shape)}")
        self.operations.append(operation)
        self.order.append(len(self.operations) - 1)
        return ArrayValue(self, len(self.operations) - 1)

    def meaning(self, inputs: list[np.ndarray], dtype: Any = np.float64) -> list[np.ndarray]:
        """The results for arrays of the traced shapes, computed in `dtype`; those that the data size have that size."""
        values: dict[int, Any] = {}
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            self._run(self.order, values, [np.asarray(x).astype(dtype) for x in inputs], dtype)
        found = []
        for result in self.results:
            value = values[result.value].astype(result.dtype if result.dtype != "float32" else dtype)
            if result.count >= 0:
                value = value.take(range(int(values[result.count].reshape(()))), axis=result.axis)
            found.append(value)
        return found

    def _run(self, order: Any, values: dict[int, Any], inputs: list[np.ndarray], dtype: Any) -> None:
        for index in order:
            o = self.operations[index]
            if o.kind == "input":
                values[index] = inputs[o.number].reshape(o.shape)
            elif o.loop is not None:
                states = [values[v] for v in o.reads]
                for _ in range(o.loop.count):
                    values |= zip(o.loop.parameters, states, strict=True)
                    self._run(o.loop.body, values, inputs, dtype)
                    states = [values[v] for v in o.loop.results]
                values[index] = states
            elif o.kind == "part":
                values[index] = values[o.reads[0]][o.number]
            else:
                operands = [values[v] if isinstance(v, int) else dtype(v) for v in o.operands]
                values[index] = np.asarray(evaluate(o, operands)).astype(dtype)


def evaluate(o: ArrayOperation, x: list[Any]) -> Any:
    """One operation in numpy, of no loop."""
    if o.kind in PAIRS:
        return PAIRS[o.kind](x[0], x[1])
    if o.kind in SINGLES:
        return SINGLES[o.kind](x[0])
    if o.kind == "select":
        return np.where(COMPARISONS[o.word](x[0], x[1]), x[2], x[3])
    if o.kind == "reduce":
        return REDUCTIONS[o.word](x[0], axis=o.axes, keepdims=True)
    if o.kind == "matmul":
        return np.matmul(x[0], x[1])
    if o.kind == "broadcast":
        return np.broadcast_to(x[0], o.shape)
    if o.kind == "reshape":
        return x[0].reshape(o.shape)
    if o.kind == "transpose":
        return x[0].transpose(o.axes)
    if o.kind == "slice":
        return x[0][tuple(slice(s, s + n) for s, n in zip(o.start, o.shape, strict=True))]
    if o.kind == "concat":
        return np.concatenate(x, axis=o.axes[0])
    if o.kind == "index":
        return np.arange(o.shape[0])
    assert o.kind == "gather", o.kind
    return x[0][x[1].astype(np.int64)]


_TRACE: ContextVar[ArrayTrace | None] = ContextVar("array_trace", default=None)


@contextmanager
def tracing(trace: ArrayTrace) -> Iterator[None]:
    """The trace that the vocabulary writes to."""
    token = _TRACE.set(trace)
    try:
        yield
    finally:
        _TRACE.reset(token)


def current() -> ArrayTrace:
    """The program being traced."""
    trace = _TRACE.get()
    if trace is None:
        raise failure("array program", "instructions are called inside a program, while it is traced")
    return trace


def array_of(what: str, value: Any) -> ArrayValue:
    """The argument as an array of the program being traced."""
    if not isinstance(value, ArrayValue):
        raise failure(what, f"expected an array, found {type(value).__name__} {value!r}")
    if value.trace is not _TRACE.get():
        raise failure(what, "the array belongs to another program; programs share no arrays")
    return value
