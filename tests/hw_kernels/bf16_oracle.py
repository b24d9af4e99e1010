"""What the bf16 engines must compute, written from DESIGN section 4 with exact fractions, one value at a time. Imports nothing of ours."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

NAN, INF = "nan", "inf"
Value = tuple[int, Fraction | str]  # sign bit, magnitude


def decode(bits: int, mantissa: int, bias: int = 127) -> Value:
    """An IEEE-like pattern with `mantissa` stored bits and 8 exponent bits; denormals count as zero."""
    sign, exponent, fraction = bits >> (8 + mantissa), bits >> mantissa & 255, bits & ((1 << mantissa) - 1)
    if exponent == 255:
        return (0, NAN) if fraction else (sign, INF)
    if exponent == 0:
        return sign, Fraction(0)
    return sign, Fraction((1 << mantissa) | fraction) * Fraction(2) ** (exponent - bias - mantissa)


@cache
def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def rounded(sign: int, magnitude: Fraction, mantissa: int) -> Value:
    """Nearest, ties to even, exponent unbounded; then zero below 2^-126 and infinity beyond the largest exponent."""
    if magnitude == 0:
        return sign, magnitude
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < power(exponent):
        exponent -= 1
    unit = power(exponent - mantissa)
    steps = magnitude / unit
    whole = steps.numerator // steps.denominator
    rest = steps - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    value = whole * unit
    if value < power(-126):
        return sign, Fraction(0)
    return (sign, INF) if value >= power(128) else (sign, value)


def add(a: Value, b: Value) -> Value:
    """One float32 addition."""
    (sa, ma), (sb, mb) = a, b
    if NAN in (ma, mb) or (ma == mb == INF and sa != sb):
        return 0, NAN
    if ma == INF or mb == INF:
        return a if ma == INF else b
    assert isinstance(ma, Fraction) and isinstance(mb, Fraction)
    total = (-ma if sa else ma) + (-mb if sb else mb)
    if total == 0:
        return (sa & sb if ma == 0 else 0), Fraction(0)
    return rounded(int(total < 0), abs(total), 23)


def negative(a: Value) -> Value:
    return 1 - a[0], a[1]


def multiply(a: Value, b: Value) -> Value:
    """One float32 multiplication."""
    (sa, ma), (sb, mb) = a, b
    if NAN in (ma, mb) or (INF in (ma, mb) and 0 in (ma, mb)):
        return 0, NAN
    if INF in (ma, mb):
        return sa ^ sb, INF
    assert isinstance(ma, Fraction) and isinstance(mb, Fraction)
    return rounded(sa ^ sb, ma * mb, 23)


def weigh(a: Value, weight: Value) -> Value:
    """A product with a zero weight takes part as +0."""
    return (0, Fraction(0)) if weight[1] == 0 else multiply(a, weight)


def less(a: Value, b: Value) -> bool:
    """a < b; -0 equals +0, NaN compares with nothing."""
    if NAN in (a[1], b[1]):
        return False
    big = power(200)
    left, right = ((-1 if s else 1) * (big if m == INF else m) for s, m in (a, b))
    return bool(left < right)


def encode(a: Value, mantissa: int) -> int:
    """The pattern; NaN is the canonical one."""
    sign, magnitude = a
    if magnitude == NAN:
        return (255 << mantissa) | (1 << (mantissa - 1))
    if magnitude == INF:
        return (sign << (8 + mantissa)) | (255 << mantissa)
    sign, magnitude = rounded(sign, magnitude, mantissa)  # type: ignore[arg-type]
    if magnitude in (INF, 0):
        return (sign << (8 + mantissa)) | ((255 << mantissa) if magnitude == INF else 0)
    assert isinstance(magnitude, Fraction)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < power(exponent):
        exponent -= 1
    whole = magnitude / power(exponent - mantissa)
    return (sign << (8 + mantissa)) | ((exponent + 127) << mantissa) | (int(whole) - (1 << mantissa))


def bf16(bits: int) -> Value:
    return decode(bits, 7)


def float32(bits: int) -> Value:
    return decode(bits, 23)


def to_bf16(a: Value) -> int:
    return encode(a, 7)


def tree(values: list[Value]) -> Value:
    """Balanced: neighbours first."""
    while len(values) > 1:
        values = [add(values[k], values[k + 1]) for k in range(0, len(values), 2)]
    return values[0]


class Stage:
    """Per lane float32 patterns bias, slope, low, high; `table` [3][256] patterns or None; tails: None for the argument, else bf16 bits."""

    def __init__(
        self, records: list[tuple[int, int, int, int]], table: list[list[int]] | None, low: int | None, high: int | None
    ):
        self.records, self.table, self.low, self.high = records, table, low, high

    def one(self, total: Value, lane: int) -> int:
        """A sum to bf16 bits."""
        bias, slope, low, high = (float32(v) for v in self.records[lane])
        value = add(total, bias)
        if self.table is not None:
            value = self.curve(value)
        elif less(value, (0, Fraction(0))):
            value = multiply(value, slope)
        if less(value, low):
            value = low
        if less(high, value):
            value = high
        if NAN not in (low[1], high[1]) and not less(low, high) and not less(high, low):
            value = low
        return to_bf16(value)

    def curve(self, x: Value) -> Value:
        assert self.table is not None
        magnitude = x[1]
        if magnitude == NAN:
            return x
        eight = (0, Fraction(8))
        if less(x, (1, Fraction(8))):
            return x if self.low is None else bf16(self.low)
        if not less(x, eight):
            return x if self.high is None else bf16(self.high)
        assert isinstance(magnitude, Fraction)
        step = min(int(magnitude * 16), 127)
        is_negative = less(x, (0, Fraction(0)))
        index = 127 - step if is_negative else 128 + step
        end = Fraction(step, 16)
        d = add(x, (0, end) if is_negative else (1, end))
        c0, c1, c2 = (float32(self.table[c][index]) for c in range(3))
        return add(c0, multiply(d, add(c1, multiply(d, c2))))


def mix(p: Value, q: Value, weight: Value) -> Value:
    if weight[1] == 0:
        return p
    rest = add((0, Fraction(1)), negative(weight))
    return add(multiply(rest, p), multiply(weight, q))
