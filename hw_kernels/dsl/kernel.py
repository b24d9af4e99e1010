"""The NPU DSL for a user's own pixel-wise operator: a Python function over tiles, in the vocabulary of TBE/TVM (vadd, vmuls, vtanh, vmaxs, …).

    @kernel
    def custom_gelu(x):
        inner = vmuls(vadd(x, vmuls(vmul(vmul(x, x), x), 0.044715)), 0.7978845608)
        return vmul(vmuls(x, 0.5), vadds(vtanh(inner), 1.0))

The function is traced once; every mistake is an InstructionError that names the line it stands in. `Trace.meaning` is its float64 meaning,
`optimise` (kernel_optimise.py) makes engine instructions of it, `kernel_program.py` runs those in numpy and on the NPU. Tiles are bf16.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import InstructionError
from npuforge.compile.ir.graph import Activation
from npuforge.hw_kernels.activations import CURVES, apply_activation
from npuforge.hw_kernels.dsl.tile import Dtype


@dataclass(frozen=True)
class Operation:
    """One operation of the trace. `kind`: input (number `a`), add, sub, mul (of values a and b), or affine: activation(a*factor + bias).

    add, sub and mul have a bias and an activation too, once the optimiser has moved them there.
    """

    kind: str
    a: int
    b: int = -1
    factor: float = 1.0
    bias: float = 0.0
    activation: Activation = field(default_factory=Activation)
    where: str = ""  # file:line of the program

    @property
    def reads(self) -> tuple[int, ...]:
        """The values it reads."""
        return () if self.kind == "input" else (self.a,) if self.b < 0 else (self.a, self.b)


@dataclass(frozen=True)
class Value:
    """A tile inside a program: the result of one operation."""

    trace: Trace
    index: int
    dtype: Dtype = Dtype.BF16


@dataclass(eq=False)
class Trace:
    """A traced program: operations in order, the last of them the result after `kernel` has returned."""

    name: str
    inputs: int
    operations: list[Operation] = field(default_factory=list)
    result: int = -1

    def add(self, operation: Operation) -> Value:
        """Appends an operation."""
        self.operations.append(operation)
        return Value(self, len(self.operations) - 1)

    def meaning(self, inputs: list[np.ndarray]) -> np.ndarray:
        """The float64 meaning."""
        values: list[np.ndarray] = []
        for o in self.operations:
            values.append(np.asarray(inputs[o.a], np.float64) if o.kind == "input" else evaluate(o, values))
        return values[self.result]


def evaluate(o: Operation, values: list[np.ndarray]) -> np.ndarray:
    """One operation in float64."""
    a = values[o.a]
    if o.kind == "affine":
        d = a * o.factor
    else:
        d = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[o.kind](a, values[o.b])
    return np.asarray(apply_activation(d + o.bias, o.activation))


_TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def _tracing(trace: Trace) -> Iterator[None]:
    token = _TRACE.set(trace)
    try:
        yield
    finally:
        _TRACE.reset(token)


def _where() -> str:
    """file:line of the innermost frame outside this file."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _fail(what: str, problem: str) -> InstructionError:
    return InstructionError(f"{_where()}: {what}: {problem}")


def _tile(what: str, value: Any, position: str = "") -> Value:
    if not isinstance(value, Value):
        hint = f"; use {what}s(tile, {value!r})" if isinstance(value, int | float) and what in ("vadd", "vmul") else ""
        raise _fail(what, f"expected a tile{position}, found {type(value).__name__} {value!r}{hint}")
    if value.trace is not _TRACE.get():
        raise _fail(what, "the tile belongs to another program; programs share no tiles")
    return value


def _number(what: str, value: Any) -> float:
    if isinstance(value, Value):
        raise _fail(
            what, f"expected a number as second operand, found a tile; use {what.removesuffix('s')}(tile, tile)"
        )
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(float(value)):
        raise _fail(what, f"expected a finite number, found {value!r}")
    return float(value)


def _pair(kind: str, a: Any, b: Any) -> Value:
    what = f"v{kind}"
    left, right = _tile(what, a, " as first operand"), _tile(what, b, " as second operand")
    return left.trace.add(Operation(kind, left.index, right.index, where=_where()))


def _affine(what: str, x: Any, factor: float = 1.0, bias: float = 0.0, activation: Activation | None = None) -> Value:
    tile = _tile(what, x)
    operation = Operation("affine", tile.index, -1, factor, bias, activation or Activation(), _where())
    return tile.trace.add(operation)


# ---- two tiles
def vadd(a: Any, b: Any) -> Value:
    """a + b, element by element."""
    return _pair("add", a, b)


def vsub(a: Any, b: Any) -> Value:
    """a - b."""
    return _pair("sub", a, b)


def vmul(a: Any, b: Any) -> Value:
    """a * b."""
    return _pair("mul", a, b)


# ---- a tile and a number
def vadds(x: Any, number: Any) -> Value:
    """x + number."""
    return _affine("vadds", x, bias=_number("vadds", number))


def vmuls(x: Any, number: Any) -> Value:
    """x * number."""
    return _affine("vmuls", x, factor=_number("vmuls", number))


def vmaxs(x: Any, number: Any) -> Value:
    """The larger of x and number."""
    return _affine("vmaxs", x, activation=Activation("Clip", low=_number("vmaxs", number)))


def vmins(x: Any, number: Any) -> Value:
    """The smaller of x and number."""
    return _affine("vmins", x, activation=Activation("Clip", high=_number("vmins", number)))


def vlrelu(x: Any, slope: Any) -> Value:
    """x, or slope*x where x < 0."""
    return _affine("vlrelu", x, activation=Activation("LeakyRelu", alpha=_number("vlrelu", slope)))


# ---- one tile
def vrelu(x: Any) -> Value:
    """max(x, 0)."""
    return _affine("vrelu", x, activation=Activation("Relu"))


def vabs(x: Any) -> Value:
    """|x|."""
    return _affine("vabs", x, activation=Activation("LeakyRelu", alpha=-1.0))


def _curve(what: str, kind: str) -> Callable[[Any], Value]:
    assert kind in CURVES

    def function(x: Any) -> Value:
        return _affine(what, x, activation=Activation(kind))

    function.__name__ = what
    function.__doc__ = f"{kind}, by 256 parabolas on [-8, 8) and its tails outside."
    return function


vtanh = _curve("vtanh", "Tanh")
vsigmoid = _curve("vsigmoid", "Sigmoid")
vsilu = _curve("vsilu", "Silu")
vgelu = _curve("vgelu", "Gelu")
vmish = _curve("vmish", "Mish")


def cast(x: Any, dtype: Dtype) -> Value:
    """x as tiles of `dtype`. Only to what it is already: the vector engine has no instruction between int8 and bf16."""
    tile = _tile("cast", x)
    if dtype != tile.dtype:
        raise _fail(
            "cast",
            f"the NPU has no instruction from {tile.dtype.value} to {dtype.value}; use a Cast node in the network",
        )
    return tile


@dataclass(frozen=True)
class Kernel:
    """A program: what `kernel` makes of a function. Keyword-only arguments of the function are node attributes."""

    function: Callable[..., Any]
    name: str
    inputs: int
    attributes: tuple[str, ...]

    def trace(self, attributes: dict[str, Any] | None = None) -> Trace:
        """Runs the function once on symbolic tiles."""
        trace = Trace(self.name, self.inputs)
        given = {k: v for k, v in (attributes or {}).items() if k in self.attributes}
        with _tracing(trace):
            tiles = [trace.add(Operation("input", number)) for number in range(self.inputs)]
            result = self.function(*tiles, **given)
        place = f"{self.function.__code__.co_filename}:{self.function.__code__.co_firstlineno}"
        if not isinstance(result, Value) or result.trace is not trace:
            raise InstructionError(f"{place}: {self.name}: a program returns one tile, found {type(result).__name__}")
        trace.result = result.index
        if trace.operations[trace.result].kind == "input":  # a program that gives its input back still copies it
            trace.result = trace.add(Operation("affine", result.index, where=place)).index
        return trace


def kernel(function: Callable[..., Any]) -> Kernel:
    """Decorator: a function of tiles as an NPU program. Positional parameters are tiles, keyword-only ones node attributes."""
    parameters = inspect.signature(function).parameters.values()
    tiles = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not tiles or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        code = function.__code__
        raise InstructionError(
            f"{code.co_filename}:{code.co_firstlineno}: {function.__name__}: a program takes a fixed number of tiles, at least one"
        )
    attributes = tuple(p.name for p in parameters if p.kind == p.KEYWORD_ONLY)
    return Kernel(function, function.__name__, len(tiles), attributes)


# ---- optimiser
def optimise(trace: Trace) -> Trace:
    """The same program with fewer instructions: equal operations once, unused ones not at all, multiplications, additions and activations moved
    into the operation that makes their operand. What is moved is not rounded to bf16 and not stored in between."""
    current = trace
    for _ in range(len(trace.operations) + 1):
        changed = _fuse_one(_without_unused(_without_repeats(current)))
        if changed is None:
            break
        current = changed
    return _without_unused(_without_repeats(current))


def _rebuilt(trace: Trace, operations: list[Operation], kept: list[int], renamed: dict[int, int]) -> Trace:
    """The operations `kept`, with values renamed to what stands for them."""
    number = {old: new for new, old in enumerate(kept)}

    def name(value: int) -> int:
        while value in renamed:
            value = renamed[value]
        return number[value]

    result = [
        o if o.kind == "input" else replace(o, a=name(o.a), b=name(o.b) if o.b >= 0 else -1)
        for o in (operations[i] for i in kept)
    ]
    return Trace(trace.name, trace.inputs, result, name(trace.result))


def _without_repeats(trace: Trace) -> Trace:
    seen: dict[Any, int] = {}
    renamed: dict[int, int] = {}
    kept = []
    for i, o in enumerate(trace.operations):
        a, b = renamed.get(o.a, o.a), renamed.get(o.b, o.b)
        key = (o.kind, a, b, o.factor, o.bias, repr(o.activation)) if o.kind != "input" else ("input", o.a)
        if key in seen:
            renamed[i] = seen[key]
        else:
            seen[key] = i
            kept.append(i)
    return _rebuilt(trace, trace.operations, kept, renamed)


def _without_unused(trace: Trace) -> Trace:
    needed = {trace.result}
    for i in range(len(trace.operations) - 1, -1, -1):
        if i in needed:
            needed.update(trace.operations[i].reads)
    kept = [i for i, o in enumerate(trace.operations) if i in needed or o.kind == "input"]
    return _rebuilt(trace, trace.operations, kept, {})


def _fuse_one(trace: Trace) -> Trace | None:
    """One affine operation moved into its operand's, None if none can be."""
    operations = list(trace.operations)
    for i, o in enumerate(operations):
        if o.kind != "affine" or o.a < 0:
            continue
        source = operations[o.a]
        readers = sum(p.reads.count(o.a) for p in operations) + (trace.result == o.a)
        if source.kind == "input" or readers != 1 or source.activation.kind != "none":
            continue
        if source.kind != "affine" and o.factor != 1.0:
            continue
        factor, bias = source.factor * o.factor, source.bias * o.factor + o.bias
        operations[o.a] = replace(source, factor=factor, bias=bias, activation=o.activation)
        kept = [k for k in range(len(operations)) if k != i]
        return _rebuilt(trace, operations, kept, {i: o.a})
    return None
