"""What a program of the NPU DSL is once it has been traced: operations in order, their float64 meaning, and the place in the source of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from npuforge.compile.ir.errors import InstructionError
from npuforge.compile.ir.graph import Activation
from npuforge.hw_kernels.activations import apply_activation
from npuforge.hw_kernels.dsl.tile import Dtype
from npuforge.hw_kernels.windows import fill_border, output_size, tap

FOLDER = str(Path(__file__).parent)
PAIRS = ("add", "sub", "mul", "max2")
WINDOWED = ("pool_max", "pool_sum", "depthwise")


@dataclass(frozen=True)
class MapWindow:
    """Sliding window of a pooling or depthwise operation; a kernel size of 0 is the whole axis. `pads`: top, left, bottom, right."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    def resolved(self, size: tuple[int, int]) -> MapWindow:
        """With the sizes of a map of `size` in place of 0."""
        return replace(self, kernel=(self.kernel[0] or size[0], self.kernel[1] or size[1]))

    def output(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the result over a map of `size`."""
        kernel = self.resolved(size).kernel
        return (
            output_size(size[0], kernel[0], self.strides[0], self.pads[0], self.pads[2], self.dilations[0]),
            output_size(size[1], kernel[1], self.strides[1], self.pads[1], self.pads[3], self.dilations[1]),
        )

    def valid_taps(self, size: tuple[int, int]) -> np.ndarray:
        """Taps inside a map of `size` for every window, int64 [out_h, out_w]; the window is resolved."""
        inside = []
        for axis, out in enumerate(self.output(size)):
            start = np.arange(out)[:, None] * self.strides[axis] - self.pads[axis]
            position = start + np.arange(self.kernel[axis]) * self.dilations[axis]
            inside.append(((position >= 0) & (position < size[axis])).sum(axis=1))
        return np.outer(*inside)


@dataclass(frozen=True)
class Operation:
    """One operation: after * activation(factor*d + bias).

    d is, by `kind`: input: number `a` of the program; affine and scale: value a; add, sub, mul: of values a and b; max2: the larger of
    factor*a and factor*b; pool_max: the largest of a window (pads don't count); pool_sum: the sum of a window, divided by its valid taps if `mean`;
    depthwise: the weighted sum of a window, by `weights` [1 or channels][height][width]; channel_sum: the sum of all channels, divided by their number if `mean`. `scale` is no instruction: the same bytes under another scale (int8 only).
    `dtype` int8 or bf16: the value lies in memory. int32, int16: inside the instruction, to be cast.
    """

    kind: str
    a: int
    b: int = -1
    factor: float = 1.0
    bias: float = 0.0
    activation: Activation = field(default_factory=Activation)
    after: float = 1.0
    window: MapWindow = field(default_factory=lambda: MapWindow((1, 1)))
    weights: tuple[tuple[tuple[float, ...], ...], ...] = ()
    mean: bool = False
    counts: tuple[int, ...] = ()  # numbers of valid taps that windows of pool_sum have, once it is placed over a map
    fraction_bits: int = 0  # of the int16 argument of the curve, 0: as many as fit
    dtype: Dtype = Dtype.BF16
    where: str = ""  # file:line of the program

    @property
    def reads(self) -> tuple[int, ...]:
        """The values it reads."""
        return () if self.kind == "input" else (self.a,) if self.b < 0 else (self.a, self.b)

    def pool_factors(self) -> np.ndarray:
        """What a pooled sum is multiplied by, float64: one number where all windows have the same number of valid taps, else by that number less 1."""
        if len(self.counts) == 1:
            return np.array([self.factor / (self.counts[0] if self.mean else 1)])
        taps = np.arange(1, self.window.kernel[0] * self.window.kernel[1] + 1)
        return np.where(np.isin(taps, self.counts), self.factor / (taps if self.mean else 1), 0.0)


def _refused(sign: str, instead: str) -> Callable[..., NoReturn]:
    """A method for one of Python's operators on tiles: the error at the program's line, with the instruction to use."""

    def method(self: Value, *other: Any) -> NoReturn:
        raise failure(sign, f"Python's operators are no instructions; use {instead}")

    return method


@dataclass(frozen=True)
class Value:
    """A tile inside a program: the result of one operation. Python's and numpy's operators on it are refused."""

    trace: Trace
    index: int

    @property
    def operation(self) -> Operation:
        """What makes it."""
        return self.trace.operations[self.index]

    @property
    def dtype(self) -> Dtype:
        """Element type."""
        return self.operation.dtype

    __add__ = __radd__ = _refused("+", "vadd(tile, tile) or vadds(tile, number)")
    __sub__ = _refused("-", "vsub(tile, tile) or vadds(tile, -number)")
    __rsub__ = _refused("-", "vadds(vmuls(tile, -1.0), number)")
    __mul__ = __rmul__ = _refused("*", "vmul(tile, tile) or vmuls(tile, number)")
    __truediv__ = _refused("/", "vmuls(tile, 1.0 / number); the NPU divides by no tile")
    __rtruediv__ = _refused("/", "other instructions; the NPU divides by no tile")
    __neg__ = _refused("-", "vmuls(tile, -1.0)")
    __pow__ = _refused("**", "vmul(tile, tile)")
    __abs__ = _refused("abs", "vabs(tile)")
    __lt__ = __le__ = __gt__ = __ge__ = _refused(
        "comparison", "vmax, vmin, vmaxs or vmins: a tile has no values while the program is traced"
    )

    def __array_ufunc__(self, function: np.ufunc, *operands: Any, **options: Any) -> NoReturn:
        raise failure(
            f"numpy.{function.__name__}",
            "a tile has no values while the program is traced; use the instructions of the DSL",
        )


@dataclass(eq=False)
class Trace:
    """A traced program: operations in order, the last of them the result after `Kernel.trace` has returned."""

    name: str
    inputs: int
    operations: list[Operation] = field(default_factory=list)
    result: int = -1
    dtype: Dtype = Dtype.BF16  # of the tiles in memory

    def add(self, operation: Operation) -> Value:
        """Appends an operation."""
        self.operations.append(operation)
        return Value(self, len(self.operations) - 1)

    def meaning(self, inputs: list[np.ndarray]) -> np.ndarray:
        """The float64 meaning of arrays [N, C, H, W]; of other shapes where the program has no windows."""
        values: list[np.ndarray] = []
        for o in self.operations:
            values.append(np.asarray(inputs[o.a], np.float64) if o.kind == "input" else evaluate(o, values))
        return values[self.result]


def one_channel(trace: Trace) -> list[bool]:
    """Which values have a single channel: sums over channels and what is made of nothing else."""
    found: list[bool] = []
    for o in trace.operations:
        found.append(o.kind == "channel_sum" or (o.kind != "input" and all(found[v] for v in o.reads)))
    return found


def evaluate(o: Operation, values: list[np.ndarray]) -> np.ndarray:
    """One operation in float64."""
    a = values[o.a]
    if o.kind in ("affine", "scale"):
        d = a * o.factor
    elif o.kind == "max2":
        d = np.maximum(a * o.factor, values[o.b] * o.factor)
    elif o.kind == "channel_sum":
        d = (a.mean(axis=1, keepdims=True) if o.mean else a.sum(axis=1, keepdims=True)) * o.factor
    elif o.kind in WINDOWED:
        d = _windowed(o, a) * o.factor
    else:
        d = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[o.kind](a, values[o.b]) * o.factor
    return np.asarray(apply_activation(d + o.bias, o.activation) * o.after)


def _windowed(o: Operation, a: np.ndarray) -> np.ndarray:
    """Largest value, sum, mean or weighted sum of every window of [N, C, H, W]."""
    size = (a.shape[2], a.shape[3])
    window = o.window.resolved(size)
    out = window.output(size)
    border = -np.inf if o.kind == "pool_max" else 0.0
    bordered = fill_border(a.transpose(0, 2, 3, 1), list(window.pads), border, np.float64)
    result = np.full((a.shape[0], *out, a.shape[1]), border)
    for ky, kx in np.ndindex(*window.kernel):
        part = tap(bordered, ky, kx, out[0], out[1], window.strides, window.dilations)
        if o.kind == "pool_max":
            result = np.maximum(result, part)
        else:
            result = result + (part * np.array(o.weights)[:, ky, kx] if o.kind == "depthwise" else part)
    divisor = window.valid_taps(size)[:, :, None] if o.mean else 1
    return (result / divisor).transpose(0, 3, 1, 2)


_TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """The trace that the vocabulary writes to."""
    token = _TRACE.set(trace)
    try:
        yield
    finally:
        _TRACE.reset(token)


def where() -> str:
    """file:line of the innermost frame outside this folder."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(FOLDER):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def failure(what: str, problem: str) -> InstructionError:
    """The error at the program's line."""
    return InstructionError(f"{where()}: {what}: {problem}")


def tile_of(what: str, value: Any, position: str = "") -> Value:
    """The argument as a tile of the program being traced."""
    if not isinstance(value, Value):
        hint = f"; use {what}s(tile, {value!r})" if isinstance(value, int | float) and what in ("vadd", "vmul") else ""
        raise failure(what, f"expected a tile{position}, found {type(value).__name__} {value!r}{hint}")
    if value.trace is not _TRACE.get():
        raise failure(what, "the tile belongs to another program; programs share no tiles")
    return value
