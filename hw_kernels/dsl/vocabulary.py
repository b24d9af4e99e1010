"""The pixel-wise vocabulary of the NPU DSL, named as in TBE: vadd, vmuls, vexp, vmax, cast … Windows and reductions: `vocabulary_maps.py`.

Type rules. bf16: everything is bf16. int8: arithmetic of int8 tiles gives an int32 value, the accumulator of the instruction; there it can be scaled,
shifted and bent (vrelu, vmins, …); a curve makes an int16 value of it, by the table; `cast` to int8 ends the instruction. What an instruction
has no unit for is refused at its line with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from npuforge.compile.ir.graph import Activation
from npuforge.hw_kernels.activations import CURVE_EDGE, ELU_ALPHA_MAX, TABLE_CURVES, is_supported
from npuforge.hw_kernels.arithmetic import FRACTION_BITS_MAX, FRACTION_BITS_MIN
from npuforge.hw_kernels.dsl.tile import Dtype
from npuforge.hw_kernels.dsl.trace import Operation, Value, failure, tile_of, where

INT8, INT16, INT32, BF16 = Dtype.INT8, Dtype.INT16, Dtype.INT32, Dtype.BF16
STORED = (INT8, BF16)


def number(what: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, Value):
        raise failure(
            what, f"expected a number as second operand, found a tile; use {what.removesuffix('s')}(tile, tile)"
        )
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(float(value)):
        raise failure(what, f"expected a finite number, found {value!r}")
    return float(value)


def stored(what: str, value: Any, position: str = "") -> Value:
    """A tile that lies in memory."""
    tile = tile_of(what, value, position)
    if tile.dtype not in STORED:
        raise failure(
            what,
            f"expected an int8 tile{position}, found {tile.dtype.value}, which exists only inside the instruction that makes it; "
            "cast(tile, INT8) first",
        )
    return tile


def accumulated(tile: Value) -> Dtype:
    """Type of what an instruction computes of `tile`."""
    return BF16 if tile.dtype == BF16 else INT32


def upright(tile: Value) -> Value:
    """The tile itself, or requantised where its bytes stand for negative multiples: what compares bytes needs them in order."""
    o = tile.operation
    if tile.dtype == INT8 and o.factor * o.after < 0 and o.kind == "scale":
        return tile.trace.add(Operation("affine", tile.index, dtype=INT8, where=where()))
    return tile


def _pair(kind: str, a: Any, b: Any) -> Value:
    what = f"v{kind}"
    left, right = stored(what, a, " as first operand"), stored(what, b, " as second operand")
    return left.trace.add(Operation(kind, left.index, right.index, dtype=accumulated(left), where=where()))


def _affine(what: str, x: Any, factor: float = 1.0, bias: float = 0.0, activation: Activation | None = None) -> Value:
    tile = tile_of(what, x)
    bend = activation or Activation()
    curve = bend.kind in TABLE_CURVES
    if tile.dtype in STORED:
        kind, dtype = "affine", INT16 if curve and tile.dtype == INT8 else accumulated(tile)
        if tile.dtype == INT8 and bias == 0.0 and bend.kind == "none":
            kind, dtype = "scale", INT8
            if tile.operation.kind == "scale":  # of what was scaled before
                made = replace(tile.operation, factor=tile.operation.factor * factor, where=where())
                return tile.trace.add(made)
        operation = Operation(kind, tile.index, -1, factor, bias, bend, dtype=dtype, where=where())
        return tile.trace.add(operation)
    return tile.trace.add(replace(_joined(what, tile.operation, factor, bias, bend), where=where()))


def _joined(what: str, made: Operation, factor: float, bias: float, bend: Activation) -> Operation:
    """The operation with more in its output stage."""
    if bend.kind == "none" and bias == 0.0:
        if made.activation.kind != "none":
            if factor <= 0.0:
                raise failure(
                    what,
                    f"the output stage multiplies what it has bent by positive numbers, found {factor:g}; cast(tile, INT8) first",
                )
            return replace(made, after=made.after * factor)
        return replace(made, factor=made.factor * factor, bias=made.bias * factor)
    if made.kind == "pool_sum":
        raise failure(what, "the pooling engine has no output stage; cast(tile, INT8) first")
    if bend.kind == "none":
        if made.activation.kind != "none" or made.kind not in ("affine", "depthwise", "channel_sum"):
            have = "behind a function" if made.activation.kind != "none" else f"behind v{made.kind}"
            raise failure(what, f"the instruction has no addend {have}; cast(tile, INT8) first")
        return replace(made, bias=made.bias + bias)
    if made.dtype == INT16 and made.activation.kind != "none":
        raise failure(what, "one instruction has one table; cast(tile, INT8) first")
    if bend.kind in TABLE_CURVES:
        if made.activation.kind != "none":
            raise failure(what, "the output stage has one function; cast(tile, INT8) first")
        return replace(made, activation=bend, dtype=INT16)
    if made.dtype == INT16:
        raise failure(what, "an int16 argument is what the table reads; apply a curve, or leave out the cast to INT16")
    if made.activation.kind == "none":
        return replace(made, activation=bend)
    if {made.activation.kind, bend.kind} <= {"Relu", "Clip"}:
        limits = [(0.0, math.inf) if a.kind == "Relu" else (a.low, a.high) for a in (made.activation, bend)]
        low, high = limits[1][0] / (made.after or 1.0), limits[1][1] / (made.after or 1.0)
        low, high = (min(max(v, limits[0][0]), limits[0][1]) for v in (low, high))
        return replace(made, activation=Activation("Clip", low=low, high=high))
    raise failure(what, "the output stage has one piecewise-linear function; cast(tile, INT8) first")


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


def _larger(what: str, a: Any, b: Any, factor: float) -> Value:
    """Of factor*a and factor*b: both are brought to one scale, side by side, and pooled; int8 or bf16."""
    left, right = stored(what, a, " as first operand"), stored(what, b, " as second operand")
    return left.trace.add(Operation("max2", left.index, right.index, factor, dtype=left.dtype, where=where()))


def vmax(a: Any, b: Any) -> Value:
    """The larger of a and b."""
    return _larger("vmax", a, b, 1.0)


def vmin(a: Any, b: Any) -> Value:
    """The smaller of a and b."""
    return _affine("vmin", _larger("vmin", a, b, -1.0), factor=-1.0)


# ---- a tile and a number
def vadds(x: Any, value: Any) -> Value:
    """x + value."""
    return _affine("vadds", x, bias=number("vadds", value))


def vmuls(x: Any, value: Any) -> Value:
    """x * value. Of an int8 tile: the same bytes under another scale, no instruction."""
    return _affine("vmuls", x, factor=number("vmuls", value))


def vmaxs(x: Any, value: Any) -> Value:
    """The larger of x and value."""
    return _affine("vmaxs", x, activation=Activation("Clip", low=number("vmaxs", value)))


def vmins(x: Any, value: Any) -> Value:
    """The smaller of x and value."""
    return _affine("vmins", x, activation=Activation("Clip", high=number("vmins", value)))


def vlrelu(x: Any, slope: Any) -> Value:
    """x, or slope*x where x < 0."""
    return _affine("vlrelu", x, activation=Activation("LeakyRelu", alpha=number("vlrelu", slope)))


# ---- one tile
def vrelu(x: Any) -> Value:
    """max(x, 0)."""
    return _affine("vrelu", x, activation=Activation("Relu"))


def vabs(x: Any) -> Value:
    """|x|."""
    return _affine("vabs", x, activation=Activation("LeakyRelu", alpha=-1.0))


def _curve(what: str, kind: str) -> Callable[[Any], Value]:
    def function(x: Any) -> Value:
        return _affine(what, x, activation=Activation(kind))

    function.__name__ = what
    function.__doc__ = f"{kind}, by table on [-8, 8) and its tails outside."
    return function


vtanh = _curve("vtanh", "Tanh")
vsigmoid = _curve("vsigmoid", "Sigmoid")
vsilu = _curve("vsilu", "Silu")
vgelu = _curve("vgelu", "Gelu")
vmish = _curve("vmish", "Mish")
vsoftplus = _curve("vsoftplus", "Softplus")
verf = _curve("verf", "Erf")


def velu(x: Any, alpha: Any = 1.0) -> Value:
    """x, or alpha*(e^x - 1) where x < 0, by table on [-8, 8) and its tails outside."""
    bend = Activation("Elu", alpha=number("velu", alpha))
    if not is_supported(bend):
        raise failure(
            "velu", f"expected an alpha of {ELU_ALPHA_MAX:g} or less, found {bend.alpha:g}: the tail has 16 bits"
        )
    return _affine("velu", x, activation=bend)


def vexp(x: Any) -> Value:
    """e^x by table. bf16: the argument must provably lie in [-8, 8]. int8: at most as large as 16 bits hold (6.93 with 5 fraction bits), checked when
    scales are known; 0 below -8."""
    tile = tile_of("vexp", x)
    if tile.dtype == BF16:
        low, high = bounds(tile)
        if low < -CURVE_EDGE or high > CURVE_EDGE:
            raise failure(
                "vexp",
                f"the table holds e^x on [-8, 8] and no tail continues it; the argument can be {low:g}..{high:g}: "
                "limit it with vmaxs and vmins, or square vexp(vmuls(tile, 0.5))",
            )
    return _affine("vexp", tile, activation=Activation("Exp"))


def bounds(tile: Value) -> tuple[float, float]:
    """Smallest and largest value that the operations leave possible, whatever the inputs."""
    o, free = tile.operation, (-math.inf, math.inf)
    kind = o.activation.kind
    if kind in ("Tanh", "Erf", "Sigmoid"):
        low, high = (0.0, 1.0) if kind == "Sigmoid" else (-1.0, 1.0)
    else:
        low, high = bounds(Value(tile.trace, o.a)) if o.kind in ("affine", "scale", "pool_max") else free
        if math.isfinite(low) or math.isfinite(high):
            ends = sorted(end * o.factor if o.factor else 0.0 for end in (low, high))
            low, high = ends[0] + o.bias, ends[1] + o.bias
        if kind == "Exp":
            low, high = 0.0, math.exp(min(high, CURVE_EDGE))
        elif kind in ("Clip", "Relu"):
            limits = (0.0, math.inf) if kind == "Relu" else (o.activation.low, o.activation.high)
            low, high = (min(max(end, limits[0]), limits[1]) for end in (low, high))
        elif kind != "none":
            low, high = free
    low, high = sorted((low * o.after, high * o.after)) if o.after else (0.0, 0.0)
    return low, high


# ---- types
def cast(x: Any, dtype: Dtype, low: Any = None, high: Any = None, fraction_bits: int = 0) -> Value:
    """x as `dtype`. To int8: requantised, to the range that the operands allow or to low..high, where it is clipped; the program's result to the
    scale that calibration gave the output. To int16: the argument of a curve with so many fraction bits. bf16 stays bf16."""
    tile = tile_of("cast", x)
    if not isinstance(dtype, Dtype):
        raise failure("cast", f"expected INT8, INT16, INT32 or BF16, found {dtype!r}")
    if (dtype == BF16) != (tile.dtype == BF16):
        raise failure(
            "cast",
            f"the NPU has no instruction from {tile.dtype.value} to {dtype.value}; use a Cast node in the network, or x.dtype for either precision",
        )
    if low is not None or high is not None:
        if dtype not in STORED:
            raise failure("cast", f"limits belong to a tile in memory, found {dtype.value}; use vmaxs and vmins")
        if tile.dtype == INT16:
            raise failure("cast", "the table's result has no clip; limit the curve's argument with vmaxs and vmins")
        limits = [default if v is None else number("cast", v) for v, default in ((low, -math.inf), (high, math.inf))]
        if not limits[0] < limits[1]:
            raise failure("cast", f"expected low < high, found {limits[0]:g} and {limits[1]:g}")
        tile = _affine("cast", tile, activation=Activation("Clip", low=limits[0], high=limits[1]))
    made = tile.operation
    if dtype == INT16:
        return _argument(tile, fraction_bits)
    if fraction_bits:
        raise failure("cast", f"fraction bits belong to int16, found {dtype.value}")
    if tile.dtype == INT16 and (dtype == INT32 or made.activation.kind == "none"):
        raise failure("cast", f"an int16 argument is what the table reads, not {dtype.value}; apply a curve first")
    if dtype == tile.dtype:
        return tile
    if tile.dtype == INT8:
        return tile.trace.add(Operation("affine", tile.index, dtype=dtype, where=where()))
    return tile.trace.add(replace(made, dtype=dtype, where=where()))


def _argument(tile: Value, fraction_bits: int) -> Value:
    made = tile.operation
    if made.kind == "pool_sum" or made.activation.kind != "none":
        have = "the pooling engine has no table" if made.kind == "pool_sum" else "the output stage has one function"
        raise failure("cast", f"{have}; cast(tile, INT8) first")
    if fraction_bits and not FRACTION_BITS_MIN <= fraction_bits <= FRACTION_BITS_MAX:
        raise failure("cast", f"expected {FRACTION_BITS_MIN}..{FRACTION_BITS_MAX} fraction bits, found {fraction_bits}")
    if tile.dtype in STORED:
        made = Operation("affine", tile.index)
    return tile.trace.add(replace(made, dtype=INT16, fraction_bits=fraction_bits, where=where()))


# ---- what an Ascend program would use and no engine has
def _refused(what: str, reason: str) -> Callable[..., NoReturn]:
    def function(*arguments: Any, **options: Any) -> NoReturn:
        raise failure(what, reason)

    function.__name__ = what
    function.__doc__ = f"Refused: {reason}."
    return function


_POLE = "the table covers [-8, 8) in steps of 1/16 and cannot hold a pole; "
vdiv = _refused("vdiv", _POLE + "multiply by a constant with vmuls, or leave the division to the CPU partition")
vrec = _refused("vrec", _POLE + "leave it to the CPU partition")
vrsqrt = _refused("vrsqrt", _POLE + "leave it to the CPU partition")
vln = _refused("vln", _POLE + "leave it to the CPU partition")
vsqrt = _refused(
    "vsqrt", "its slope at 0 is unbounded, which the table's steps of 1/16 miss; leave it to the CPU partition"
)
