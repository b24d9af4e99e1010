"""The numpy bf16 semantics against exact fractions (`bf16_oracle`), on any bit patterns: denormals, infinities, NaN, ties, overflow."""

from __future__ import annotations

import bf16_oracle as oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.bf16 import Bf16Stage, Bf16Tail
from npuforge.compile.ir.graph import Activation
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.activations import CURVES, curve

CASES = settings(max_examples=300, deadline=None)
EDGES_32 = [
    0,
    0x80000000,
    1,
    0x007FFFFF,
    0x00800000,
    0x00800001,
    0x3F800000,
    0x7F7FFFFF,
    0x7F800000,
    0xFF800000,
    0x7FC00001,
    0xFFFFFFFF,
]
FLOATS = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from(EDGES_32), st.integers(0x3E000000, 0x42000000))
EDGES_16 = [0, 0x8000, 1, 0x7F, 0x80, 0x3F80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF]
LANES = st.one_of(
    st.integers(0, 2**16 - 1), st.sampled_from(EDGES_16), st.integers(0x3E00, 0x4200), st.integers(0xBE00, 0xC200)
)


def float_of(bits: int) -> np.ndarray:
    return np.array([bits], np.uint32).view(np.float32)


def pattern(value: np.ndarray) -> int:
    """float32 bits with the canonical NaN."""
    return 0x7FC00000 if np.isnan(value[0]) else int(np.ascontiguousarray(value).view(np.uint32)[0])


@CASES
@given(FLOATS, FLOATS)
def test_one_operation(a: int, b: int) -> None:
    left, right = oracle.float32(a), oracle.float32(b)
    assert pattern(bf16.add(float_of(a), float_of(b))) == oracle.encode(oracle.add(left, right), 23)
    assert pattern(bf16.multiply(float_of(a), float_of(b))) == oracle.encode(oracle.multiply(left, right), 23)
    assert int(bf16.from_float32(float_of(a))[0]) == oracle.to_bf16(left)


@CASES
@given(st.integers(0, 2**24 - 1), st.integers(0, 2**24 - 1), st.integers(1, 127))
def test_products_at_the_edge_of_the_normal_numbers(a: int, b: int, exponent: int) -> None:
    """Rounding in 24 bits comes before the comparison with 2^-126."""
    left, right = (exponent << 23) | (a & 0x7FFFFF), ((127 - exponent) << 23) | (b & 0x7FFFFF)
    got = pattern(bf16.multiply(float_of(left), float_of(right)))
    assert got == oracle.encode(oracle.multiply(oracle.float32(left), oracle.float32(right)), 23)


def test_the_largest_number_below_the_normal_ones_rounds_up() -> None:
    """(1 + 2^-23) * (1 - 2^-24) * 2^-126 is above 2^-126 - 2^-151: not flushed. One step lower it is."""
    one_up, below = np.float32(1 + 2.0**-23), np.float32(1 - 2.0**-24)
    tiny = np.float32(2.0**-126)
    assert bf16.multiply(one_up * tiny, below) == tiny
    assert bf16.multiply(tiny, below) == 0.0
    assert bf16.multiply(tiny, np.float32(1 - 2.0**-23)) == 0.0


@CASES
@given(st.lists(LANES, min_size=16, max_size=16), st.lists(LANES, min_size=16, max_size=16))
def test_tree(x: list[int], w: list[int]) -> None:
    columns = [bf16.to_float32(np.array(v, np.uint16))[:, None] for v in (x, w)]
    expected = oracle.tree([oracle.weigh(oracle.bf16(a), oracle.bf16(b)) for a, b in zip(x, w, strict=True)])
    assert pattern(bf16.tree(*columns)[0]) == oracle.encode(expected, 23)


@CASES
@given(
    st.lists(FLOATS, min_size=4, max_size=4),
    st.tuples(FLOATS, FLOATS, FLOATS),
    FLOATS,
    st.booleans(),
    st.tuples(st.none() | LANES, st.none() | LANES),
)
def test_stage(
    record: list[int], coefficients: tuple[int, int, int], total: int, table: bool, tails: tuple[int | None, int | None]
) -> None:
    columns = [float_of(v) for v in record]
    curve = np.repeat(np.array(coefficients, np.uint32)[:, None], 256, axis=1)
    stage = Bf16Stage("table" if table else "pwl", *columns, curve.view(np.float32) if table else None)
    stage.tail_low, stage.tail_high = (Bf16Tail(t is None, t or 0) for t in tails)
    want = oracle.Stage([tuple(record)], curve.tolist() if table else None, *tails)  # type: ignore[list-item]
    assert int(bf16.apply_stage(float_of(total), stage)[0]) == want.one(oracle.float32(total), 0)


@given(st.lists(LANES, min_size=2, max_size=9))
@CASES
def test_maximum_is_a_total_order(values: list[int]) -> None:
    """NaN above all, -0 below +0; any order of taking maxima gives the same bits."""
    canonical = [oracle.to_bf16(oracle.bf16(v)) for v in values]

    def place(bits: int) -> tuple[float, int]:
        value = float(np.array([bits << 16], np.uint32).view(np.float32)[0])
        return (np.inf, 1) if np.isnan(value) else (value, int(value != 0 or not bits >> 15))

    largest = max(canonical, key=lambda b: (bits_nan(b), place(b)))
    left = np.array(values[:1], np.uint16)
    for v in values[1:]:
        left = bf16.maximum(left, np.array([v], np.uint16))
    assert int(bf16.from_float32(bf16.to_float32(left))[0]) == largest


def bits_nan(bits: int) -> bool:
    return bits & 0x7FFF > 0x7F80


@pytest.mark.parametrize("name", sorted(CURVES))
def test_curves_are_as_good_as_bf16(name: str) -> None:
    """Inside [-8, 8) the stored parabolas are within 4.5e-6 of the function (kinks of ClipSigmoid aside), near 0 within a bf16 step relatively."""
    function = curve(Activation(name, alpha=0.2, beta=0.5)).function
    one, tail = np.ones(1, np.float32), Bf16Tail(True)
    stage = Bf16Stage("table", 0 * one, one, -np.inf * one, np.inf * one, bf16.build_curve(function), tail, tail)
    x = np.linspace(-8.0, 8.0, 40001, endpoint=False).astype(np.float32)[:, None]
    error = np.abs(bf16.curve(x, stage) - function(x.astype(np.float64)))
    # h^3/(72 sqrt 3) times the third derivative, h = 1/16: 2.26 of Erf at 0, below 2 of the others
    assert error.max() <= {"ClipSigmoid": 6e-4, "Erf": 4.5e-6}.get(name, 4e-6)
    small = np.concatenate([s * 10.0 ** -np.arange(2.0, 30.0) for s in (1, -1)]).astype(np.float32)[:, None]
    wanted = function(small.astype(np.float64))
    assert (np.abs(bf16.curve(small, stage) - wanted) <= 2.0**-9 * np.abs(wanted)).all()
