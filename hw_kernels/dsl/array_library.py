"""Functions for array programs, made of their instructions: sigmoid, sine, cosine, arc tangent, and rows chosen by the data."""

from __future__ import annotations

import math
from typing import Any

from npuforge.hw_kernels.dsl.array_trace import ArrayValue
from npuforge.hw_kernels.dsl.array_vocabulary import (
    broadcast,
    concat,
    floor,
    gather,
    index,
    part,
    reduce_sum,
    reshape,
    vabs,
    vadd,
    vadds,
    vcmpsel,
    vdiv,
    vexp,
    vmax,
    vmin,
    vmins,
    vmul,
    vmuls,
    vsub,
)

# pi in three parts, each with so few bits that its product with a whole number below 2**13 is exact in float32 (Cody and Waite 1980).
_PI = (3.140625, 9.67502593994140625e-4, math.pi - 3.140625 - 9.67502593994140625e-4)
_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(9))  # Taylor: below 1e-12 on [-pi/2, pi/2]
_ARC = tuple((-1) ** k / (2 * k + 1) for k in range(14))  # Taylor: below 1e-12 on [-tan(pi/8), tan(pi/8)]
_BEND = math.tan(math.pi / 8)


def sigmoid(x: Any) -> ArrayValue:
    """1 / (1 + e^-x)."""
    low = vadds(vexp(vmuls(x, -1.0)), 1.0)
    return vdiv(broadcast(1.0, low.shape), low)


def _odd(x: ArrayValue, coefficients: tuple[float, ...]) -> ArrayValue:
    """x * polynomial(x*x), the lowest coefficient first."""
    square = vmul(x, x)
    value = broadcast(coefficients[-1], x.shape)
    for coefficient in coefficients[-2::-1]:
        value = vadds(vmul(value, square), coefficient)
    return vmul(value, x)


def _turned(x: ArrayValue, multiple: ArrayValue) -> ArrayValue:
    """x - multiple * pi."""
    for piece in _PI:
        x = vsub(x, vmuls(multiple, piece))
    return x


def _sign(whole: ArrayValue) -> ArrayValue:
    """1 for even whole numbers, -1 for odd ones."""
    odd = vsub(whole, vmuls(floor(vmuls(whole, 0.5)), 2.0))
    return vadds(vmuls(odd, -2.0), 1.0)


def vsin(x: Any) -> ArrayValue:
    """Sine of radians: (-1)^n sin(x - n*pi), n the nearest whole number to x/pi. float32: to 2e-7 up to |x| = 1000."""
    turns = floor(vadds(vmuls(x, 1.0 / math.pi), 0.5))
    return vmul(_sign(turns), _odd(_turned(x, turns), _SINE))


def vcos(x: Any) -> ArrayValue:
    """Cosine of radians: (-1)^(n+1) sin(x - (n + 1/2)*pi), n = floor(x/pi)."""
    turns = floor(vmuls(x, 1.0 / math.pi))
    return vmul(_sign(vadds(turns, 1.0)), _odd(_turned(x, vadds(turns, 0.5)), _SINE))


def vatan2(y: Any, x: Any) -> ArrayValue:
    """The angle of (x, y) in [-pi, pi]; 0 where both are 0."""
    wide, high = vabs(x), vabs(y)
    least, most = vmin(wide, high), vmax(wide, high)
    slope = vdiv(least, vcmpsel(most, 0.0, "eq", 1.0, most))  # in [0, 1]
    bent = vdiv(vadds(slope, -1.0), vadds(slope, 1.0))
    angle = _odd(vcmpsel(slope, _BEND, "gt", bent, slope), _ARC)
    angle = vcmpsel(slope, _BEND, "gt", vadds(angle, math.pi / 4), angle)
    angle = vcmpsel(high, wide, "gt", vadds(vmuls(angle, -1.0), math.pi / 2), angle)
    angle = vcmpsel(x, 0.0, "lt", vadds(vmuls(angle, -1.0), math.pi), angle)
    return vcmpsel(y, 0.0, "lt", vmuls(angle, -1.0), angle)


def clamp(x: Any, low: Any, high: Any) -> ArrayValue:
    """x within low..high, both arrays."""
    return vmin(vmax(x, low), high)


def chosen_rows(rows: Any, kept: Any) -> tuple[ArrayValue, ArrayValue]:
    """The rows [N, …] whose `kept` [N] is 1 and not 0, moved to the front in their order, and how many they are [1]. What follows them says nothing.

    Row p is the one in front of which p rows are kept. It is looked for among blocks of about sqrt(N) rows, then in its block.
    """
    (count,) = kept.shape
    side = math.isqrt(count - 1) + 1
    padded = concat([kept, broadcast(0.0, (side * side - count,))], 0) if side * side > count else kept
    grid = reshape(padded, (side, 1, side))
    column, row = reshape(index(side), (1, 1, side)), reshape(index(side), (1, side, 1))
    in_block = reshape(
        reduce_sum(vcmpsel(column, row, "le", broadcast(grid, (side, side, side)), 0.0), 2), (side, side)
    )
    totals = part(in_block, 1, side - 1, side)
    by_block, block_row = reshape(totals, (1, side)), reshape(index(side), (side, 1))
    ends = reduce_sum(
        vcmpsel(reshape(index(side), (1, side)), block_row, "le", broadcast(by_block, (side, side)), 0.0), 1
    )
    wanted = reshape(index(count), (count, 1))
    one = broadcast(1.0, (count, side))
    block = reshape(reduce_sum(vcmpsel(reshape(ends, (1, side)), wanted, "le", one, 0.0), 1), (count,))
    block = vmins(block, side - 1)
    left = vsub(wanted, reshape(gather(vsub(ends, totals), block), (count, 1)))
    place = reshape(reduce_sum(vcmpsel(gather(in_block, block), left, "le", one, 0.0), 1), (count,))
    source = vadd(vmuls(block, side), vmins(place, side - 1))
    return gather(rows, vmins(source, count - 1)), reduce_sum(kept, 0)


def bounded(x: Any, low: float, high: float) -> ArrayValue:
    """x within low..high; what is no number is `low`."""
    return vcmpsel(x, low, "ge", vcmpsel(x, high, "le", x, high), low)


def whole_in_range(x: Any, count: int) -> tuple[ArrayValue, ArrayValue]:
    """x as indices 0..count - 1, and 1 where it was one and 0 where not (then the index says nothing)."""
    inside = floor(bounded(x, 0.0, count - 1.0))
    return inside, vcmpsel(x, inside, "eq", 1.0, 0.0)


def between(x: Any, low: float, high: float, then: Any, otherwise: Any) -> ArrayValue:
    """`then` where low <= x <= high, else `otherwise`."""
    return vcmpsel(x, low, "ge", vcmpsel(x, high, "le", then, otherwise), otherwise)


def added(*terms: Any) -> ArrayValue:
    """The sum of several arrays."""
    total = terms[0]
    for term in terms[1:]:
        total = vadd(total, term)
    return total
