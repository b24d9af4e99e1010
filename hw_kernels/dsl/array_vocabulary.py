"""The vocabulary of array programs, named as in TBE's DSL where that has the instruction: vadd, vmuls, vcmpsel, reduce_sum, broadcast, concat, …

Two arrays of one instruction have the same number of dimensions, each equal or 1 in one of them. Everything is a real number; indices are whole ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuforge.hw_kernels.dsl.array_trace import (
    COMPARISONS,
    WHOLE,
    ArrayOperation,
    ArrayValue,
    Loop,
    Result,
    Shape,
    array_of,
    current,
)
from npuforge.hw_kernels.dsl.trace import failure


def _number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise failure(what, f"expected a number, found {value!r}")
    return float(value)


def _common(what: str, arrays: Sequence[ArrayValue]) -> Shape:
    """The shape that all broadcast to."""
    ranks = {len(a.shape) for a in arrays}
    if len(ranks) > 1:
        shapes = " and ".join(str(list(a.shape)) for a in arrays)
        raise failure(what, f"expected arrays with one number of dimensions, found {shapes}; reshape one of them")
    common = tuple(max(sizes) for sizes in zip(*(a.shape for a in arrays), strict=True))
    for a in arrays:
        if any(n not in (1, m) for n, m in zip(a.shape, common, strict=True)):
            raise failure(
                what, f"expected sizes that are equal or 1, found {' and '.join(str(list(b.shape)) for b in arrays)}"
            )
    return common


# ---- two arrays
def _pair(kind: str) -> Callable[[Any, Any], ArrayValue]:
    what = f"v{kind}"

    def function(a: Any, b: Any) -> ArrayValue:
        left, right = array_of(what, a), array_of(what, b)
        return left.trace.add(ArrayOperation(kind, (left.index, right.index), _common(what, [left, right])))

    function.__name__ = what
    function.__doc__ = f"{kind} of two arrays, element by element."
    return function


vadd, vsub, vmul, vdiv, vmax, vmin = (_pair(kind) for kind in ("add", "sub", "mul", "div", "max", "min"))


# ---- an array and a number
def _scalar(kind: str) -> Callable[[Any, Any], ArrayValue]:
    what = f"v{kind}s"

    def function(x: Any, value: Any) -> ArrayValue:
        array = array_of(what, x)
        return array.trace.add(ArrayOperation(kind, (array.index, _number(what, value)), array.shape))

    function.__name__ = what
    function.__doc__ = f"{kind} of an array and a number."
    return function


vadds, vmuls, vmaxs, vmins = (_scalar(kind) for kind in ("add", "mul", "max", "min"))


# ---- one array
def _single(kind: str, what: str) -> Callable[[Any], ArrayValue]:
    def function(x: Any) -> ArrayValue:
        array = array_of(what, x)
        return array.trace.add(ArrayOperation(kind, (array.index,), array.shape))

    function.__name__ = what
    function.__doc__ = f"{kind} of every element."
    return function


vabs, vexp, vsqrt, floor = (
    _single(k, w) for k, w in (("abs", "vabs"), ("exp", "vexp"), ("sqrt", "vsqrt"), ("floor", "floor"))
)


def vcmpsel(a: Any, b: Any, comparison: str, then: Any, otherwise: Any) -> ArrayValue:
    """`then` where a and b compare so (lt, le, gt, ge, eq, ne), else `otherwise`; all but `a` arrays or numbers."""
    what = "vcmpsel"
    if comparison not in COMPARISONS:
        raise failure(what, f"expected {', '.join(COMPARISONS)}, found {comparison!r}")
    first = array_of(what, a)
    rest = [v if isinstance(v, ArrayValue) else _number(what, v) for v in (b, then, otherwise)]
    arrays = [first, *(array_of(what, v) for v in rest if isinstance(v, ArrayValue))]
    operands = tuple(v.index if isinstance(v, ArrayValue) else v for v in (first, *rest))
    return first.trace.add(ArrayOperation("select", operands, _common(what, arrays), word=comparison))


# ---- reductions and products
def _reduction(word: str) -> Callable[..., ArrayValue]:
    what = f"reduce_{word}"

    def function(x: Any, axis: int | Sequence[int]) -> ArrayValue:
        array = array_of(what, x)
        given = (axis,) if isinstance(axis, int) else tuple(axis)
        axes = tuple(sorted(_axis(what, array, a) for a in given))
        shape = tuple(1 if i in axes else n for i, n in enumerate(array.shape))
        return array.trace.add(ArrayOperation("reduce", (array.index,), shape, word=word, axes=axes))

    function.__name__ = what
    function.__doc__ = f"The {word} along one or more axes, which keep the extent 1."
    return function


reduce_sum, reduce_max, reduce_min = (_reduction(word) for word in ("sum", "max", "min"))


def matmul(a: Any, b: Any) -> ArrayValue:
    """[B, M, N] of a [B, M, K] and b [B, K, N]: sums of products over K, for each of B."""
    left, right = array_of("matmul", a), array_of("matmul", b)
    if len(left.shape) != 3 or len(right.shape) != 3 or left.shape[::2] != right.shape[:2]:
        raise failure("matmul", f"expected [B, M, K] and [B, K, N], found {list(left.shape)} and {list(right.shape)}")
    return left.trace.add(ArrayOperation("matmul", (left.index, right.index), (*left.shape[:2], right.shape[2])))


def _axis(what: str, array: ArrayValue, axis: int) -> int:
    rank = len(array.shape)
    if not -rank <= axis < rank:
        raise failure(what, f"expected an axis of {rank}, found {axis}")
    return axis % rank


# ---- arrangement
def broadcast(x: Any, shape: Sequence[int]) -> ArrayValue:
    """An array of extent 1 along some axes, or a number, as `shape`."""
    to = tuple(int(n) for n in shape)
    if not isinstance(x, ArrayValue):
        return current().add(ArrayOperation("broadcast", (_number("broadcast", x),), to))
    array = array_of("broadcast", x)
    if len(array.shape) != len(to) or any(n not in (1, m) for n, m in zip(array.shape, to, strict=True)):
        raise failure("broadcast", f"expected an array that fits {list(to)}, found {list(array.shape)}")
    return array.trace.add(ArrayOperation("broadcast", (array.index,), to))


def reshape(x: Any, shape: Sequence[int]) -> ArrayValue:
    """The same elements in order; one size may be -1."""
    array = array_of("reshape", x)
    to = [int(n) for n in shape]
    if to.count(-1) == 1:
        to[to.index(-1)] = math.prod(array.shape) // max(-math.prod(to), 1)
    if math.prod(to) != math.prod(array.shape):
        raise failure(
            "reshape", f"expected {math.prod(array.shape)} elements of {list(array.shape)}, found {list(shape)}"
        )
    return array.trace.add(ArrayOperation("reshape", (array.index,), tuple(to)))


def transpose(x: Any, axes: Sequence[int]) -> ArrayValue:
    """Axis i of the result is axis axes[i] of x."""
    array = array_of("transpose", x)
    if sorted(axes) != list(range(len(array.shape))):
        raise failure("transpose", f"expected an order of {len(array.shape)} axes, found {list(axes)}")
    shape = tuple(array.shape[a] for a in axes)
    return array.trace.add(ArrayOperation("transpose", (array.index,), shape, axes=tuple(axes)))


def part(x: Any, axis: int, start: int, stop: int) -> ArrayValue:
    """Entries start to stop (not included) along an axis."""
    array = array_of("part", x)
    at = _axis("part", array, axis)
    if not 0 <= start < stop <= array.shape[at]:
        raise failure("part", f"expected entries of {array.shape[at]} along axis {at}, found {start} to {stop}")
    shape = (*array.shape[:at], stop - start, *array.shape[at + 1 :])
    starts = tuple(start if i == at else 0 for i in range(len(shape)))
    return array.trace.add(ArrayOperation("slice", (array.index,), shape, start=starts))


def concat(arrays: Sequence[Any], axis: int) -> ArrayValue:
    """One behind the other along an axis."""
    parts = [array_of("concat", a) for a in arrays]
    if not parts:
        raise failure("concat", "expected at least one array")
    at = _axis("concat", parts[0], axis)
    others = {(*a.shape[:at], *a.shape[at + 1 :]) for a in parts}
    if len(others) > 1:
        raise failure("concat", f"expected shapes equal but for axis {at}, found {[list(a.shape) for a in parts]}")
    shape = (*parts[0].shape[:at], sum(a.shape[at] for a in parts), *parts[0].shape[at + 1 :])
    return parts[0].trace.add(ArrayOperation("concat", tuple(a.index for a in parts), shape, axes=(at,)))


def index(count: int) -> ArrayValue:
    """0, 1, … count - 1."""
    _few("index", int(count))
    return current().add(ArrayOperation("index", (), (int(count),)))


def _few(what: str, rows: int) -> None:
    if rows > WHOLE:
        raise failure(what, f"rows are counted to 2**24, up to which every whole number is a float32; found {rows}")


def gather(x: Any, indices: Any) -> ArrayValue:
    """x[indices]: along the first axis of x, shape of the indices and then of the rest of x. Indices are whole numbers in range."""
    table, where = array_of("gather", x), array_of("gather", indices)
    _few("gather", table.shape[0])
    shape = (*where.shape, *table.shape[1:])
    return table.trace.add(ArrayOperation("gather", (table.index, where.index), shape))


# ---- loop and results
def repeat(count: int, body: Callable[..., Sequence[Any]], *states: Any) -> tuple[ArrayValue, ...]:
    """body(*states) -> the next states, `count` times; the body is traced once, so shapes stay the same. It may read arrays from outside."""
    what = "repeat"
    given = [array_of(what, s) for s in states]
    trace = current()
    outside, trace.order = trace.order, []
    parameters = [trace.add(ArrayOperation("state", (), s.shape)) for s in given]
    trace.order.clear()
    results = [array_of(what, r) for r in body(*parameters)]
    inside, trace.order = trace.order, outside
    if [r.shape for r in results] != [s.shape for s in given]:
        raise failure(
            what, f"expected states of {[list(s.shape) for s in given]}, found {[list(r.shape) for r in results]}"
        )
    loop = Loop(int(count), tuple(p.index for p in parameters), tuple(inside), tuple(r.index for r in results))
    made = trace.add(ArrayOperation("loop", tuple(s.index for s in given), loop=loop))
    return tuple(trace.add(ArrayOperation("part", (made.index,), s.shape, number=i)) for i, s in enumerate(given))


def result(x: Any, dtype: str = "float32", count: Any = None, axis: int = 0) -> Result:
    """What a program returns: x as float32 or int64; `count` (an array of one element): only so many entries along `axis` are there."""
    array = array_of("result", x)
    if dtype not in ("float32", "int64"):
        raise failure("result", f"expected float32 or int64, found {dtype!r}")
    return Result(array.index, dtype, -1 if count is None else array_of("result", count).index, axis)
