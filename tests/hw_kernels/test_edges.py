"""Edges of kernels: every int8 and every bf16 pattern against exact rational arithmetic; the C++ gives the same bits."""

from __future__ import annotations

import ctypes
import math
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hls_support import HLS
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.errors import QuantisationError
from npuforge.hw_kernels import edges
from npuforge.hw_kernels.edges import Edge
from npuforge.hw_kernels.isa.generate import header_text

INT8 = np.arange(-128, 128).astype(np.int8)
PATTERNS = np.arange(65536).astype(np.uint16)
SHIFTS = st.integers(0, 47)
ZEROS = st.integers(-128, 127)


def half_up(x: Fraction) -> int:
    return math.floor(x + Fraction(1, 2))


def exact(pattern: int) -> Fraction | None:
    """The value of bf16 bits by the standard's definition, denormals as 0; None for NaN and infinities."""
    exponent, mantissa = (pattern >> 7) & 0xFF, pattern & 0x7F
    if exponent == 255:
        return None
    magnitude = Fraction(0) if exponent == 0 else (128 + mantissa) * Fraction(2) ** (exponent - 134)
    return -magnitude if pattern >> 15 else magnitude


@settings(max_examples=100, deadline=None)
@given(st.integers(-32767, 32767), SHIFTS, ZEROS)
def test_every_int8_enters_by_exact_arithmetic(m: int, s: int, z: int) -> None:
    found = edges.fixed_of_int8(INT8[:, None], Edge(np.array([m]), np.array([s]), np.array([z])))[:, 0]
    assert found.tolist() == [half_up(Fraction((int(q) - z) * m, 2**s)) for q in INT8]
    assert np.abs(found).max() < 2**24


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**45), 2**45), st.integers(-32767, 32767), SHIFTS, ZEROS, st.integers(-(2**30), 2**30))
def test_int8_leaves_by_exact_arithmetic(v: int, m: int, s: int, z: int, offset: int) -> None:
    found = edges.int8_of_fixed(np.array([v]), Edge(np.array([m]), np.array([s]), np.array([z])), np.array([offset]))
    assert found.tolist() == [min(max(half_up(Fraction(v * m + offset, 2**s)) + z, -128), 127)]


@pytest.mark.parametrize(
    ("fraction_bits", "limit"), [(0, 127), (12, 2**30), (8, 32767), (-20, 2**30), (40, 2**31 - 1), (140, 32767)]
)
def test_every_bf16_enters_by_exact_arithmetic(fraction_bits: int, limit: int) -> None:
    found = edges.fixed_of_bf16(PATTERNS, fraction_bits, limit)
    for pattern, value in zip(range(65536), found.tolist(), strict=True):
        real = exact(pattern)
        if real is None:
            wanted = 0 if pattern & 0x7F else -limit if pattern >> 15 else limit
        else:
            wanted = min(max(half_up(real * Fraction(2) ** fraction_bits), -limit), limit)
        assert value == wanted, hex(pattern)


FIXED = st.one_of(
    st.integers(-(2**62), 2**62),
    st.builds(lambda m, s, d: (m << s) + d, st.integers(-1023, 1023), st.integers(0, 52), st.integers(-1, 1)),
)


@settings(max_examples=400, deadline=None)
@given(FIXED, st.integers(-150, 210))
def test_bf16_leaves_to_the_nearest_even(v: int, fraction_bits: int) -> None:
    real = v / Fraction(2) ** fraction_bits
    pattern = int(edges.bf16_of_fixed(np.array([v]), fraction_bits)[0])
    if pattern & 0x7FFF == 0x7F80:  # half a unit beyond the largest number
        assert abs(real) >= 511 * Fraction(2) ** 119 and (pattern >> 15) == (v < 0)
        return
    found = exact(pattern)
    assert found is not None and pattern & 0x7FFF != 0x7F81
    if pattern & 0x7FFF == 0:  # rounded to 8 bits it is below 2^-126
        assert abs(real) < Fraction(2) ** -126 and (v == 0 or (pattern >> 15) == (v < 0))
        assert abs(real) <= (1 - Fraction(1, 512)) * Fraction(2) ** -126
        return
    unit = Fraction(2) ** ((pattern >> 7 & 0xFF) - 134)
    distance = abs(found - real)
    assert distance <= unit / 2 and (distance < unit / 2 or pattern & 1 == 0)


@settings(max_examples=300, deadline=None)
@given(FIXED, st.integers(-40, 80))
def test_float32_leaves_to_the_nearest_even(v: int, fraction_bits: int) -> None:
    expected = np.float32(
        math.ldexp(float(np.float32(v)), -fraction_bits)
    )  # numpy rounds a Python int correctly below 2^63
    np.testing.assert_array_equal(edges.float_of_fixed(np.array([v]), fraction_bits)[0], expected)


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-6, 1e6), st.integers(0, 14), ZEROS)
def test_a_scale_enters_and_leaves_within_half_a_step(scale: float, fraction_bits: int, z: int) -> None:
    """What came in as q leaves as q where the fixed point has at least four units to a step."""
    if not 4 <= scale * 2**fraction_bits <= 32767:
        return
    into = edges.entering(np.array([scale]), np.array([z]), fraction_bits)
    out = edges.leaving(np.array([scale]), np.array([z]), fraction_bits)
    fixed = edges.fixed_of_int8(INT8[:, None], into)
    exact_value = (INT8.astype(np.float64)[:, None] - z) * scale * 2**fraction_bits
    assert np.abs(fixed - exact_value).max() <= 0.5 + 2.0**-15 * np.abs(exact_value).max() + 1e-6
    np.testing.assert_array_equal(edges.int8_of_fixed(fixed, out)[:, 0], INT8)


def test_affine_edge_by_exact_arithmetic() -> None:
    random = np.random.default_rng(3)
    factor, offset = random.normal(0, 2, (7, 5)), random.normal(0, 3, (7, 5))
    factor[2], offset[3] = 0.0, 0.0
    scale, zero = random.uniform(0.01, 0.1, 5), random.integers(-128, 128, 5)
    edge, m, k = edges.leaving_affine(factor, offset, scale, zero, 12)
    v = random.integers(-20000, 20000, (7, 5))
    found = edges.int8_of_fixed(v * m.astype(np.int64), Edge(np.ones(5, np.int64), edge.shift, edge.zero_point), k)
    wanted = np.clip((v / 4096 * factor + offset) / scale + zero, -128, 127)
    assert np.abs(found - wanted).max() <= 0.5 + 2.0**-14 * 255


def test_factors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(QuantisationError, match="edge into a kernel"):
        edges.entering(np.array([1.0]), np.array([0]), 16)
    with pytest.raises(QuantisationError, match="edge out of a kernel"):
        edges.leaving(np.array([1e-9]), np.array([0]), 8)


# ---- C++
SOURCE = """
#include "edges.hpp"
using namespace npuforge::hls;
extern "C" void enter_int8(const int8_t* q, int32_t record, int32_t* v, int32_t n) {
    for (int32_t i = 0; i < n; ++i) v[i] = fixed_of_int8(q[i], read_edge(record));
}
extern "C" void leave_int8(const int64_t* v, int32_t record, int64_t offset, int8_t* q, int32_t n) {
    for (int32_t i = 0; i < n; ++i) q[i] = int8_of_fixed(v[i], read_edge(record), offset);
}
extern "C" void enter_bf16(const uint16_t* x, int32_t bits, int32_t limit, int32_t* v, int32_t n) {
    for (int32_t i = 0; i < n; ++i) v[i] = fixed_of_bf16(x[i], bits, limit);
}
extern "C" void leave_bf16(const int64_t* v, int32_t bits, uint16_t* x, uint32_t* f, int32_t n) {
    for (int32_t i = 0; i < n; ++i) { x[i] = bf16_of_fixed(v[i], bits); f[i] = float_of_fixed(v[i], bits); }
}
extern "C" int32_t legal(const int32_t* records, int32_t n) { return legal_edges(records, n) ? 1 : 0; }
"""


@pytest.fixture(scope="module", params=["g++", "clang++"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import shutil

    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    where: Path = tmp_path_factory.mktemp("edges")
    (where / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
    (where / "e.cpp").write_text(SOURCE, encoding="utf-8")
    traps = (
        ["-fsanitize=undefined", "-fno-sanitize-recover=all", "-fsanitize-trap=all"]
        if request.param == "clang++"
        else []
    )
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", *traps, f"-I{where}", f"-I{HLS}"]
    subprocess.run([request.param, *strict, str(where / "e.cpp"), "-o", str(where / "e.so")], check=True)
    return ctypes.CDLL(str(where / "e.so"))


def pointer(x: np.ndarray) -> ctypes.c_void_p:
    return x.ctypes.data_as(ctypes.c_void_p)


def test_the_header_gives_the_bits(built: Any) -> None:
    random = np.random.default_rng(1)
    for _ in range(60):
        m, s, z = int(random.integers(-32768, 32768)), int(random.integers(0, 48)), int(random.integers(-128, 128))
        edge = Edge(np.array([m]), np.array([s]), np.array([z]))
        record, entered = int(edge.records[0]), np.zeros(256, np.int32)
        built.enter_int8(pointer(INT8), record, pointer(entered), 256)
        np.testing.assert_array_equal(entered, edges.fixed_of_int8(INT8[:, None], edge)[:, 0])
        offset, left = int(random.integers(-(2**40), 2**40)), np.zeros(1000, np.int8)
        values = random.integers(-(2**44), 2**44, 1000) >> random.integers(0, 44, 1000)
        built.leave_int8(pointer(values), record, ctypes.c_int64(offset), pointer(left), 1000)
        np.testing.assert_array_equal(left, edges.int8_of_fixed(values[:, None], edge, offset)[:, 0])
        bits, limit, fixed = int(random.integers(-200, 200)), int(random.integers(1, 2**31)), np.zeros(65536, np.int32)
        built.enter_bf16(pointer(PATTERNS), bits, limit, pointer(fixed), 65536)
        np.testing.assert_array_equal(fixed, edges.fixed_of_bf16(PATTERNS, bits, limit))
        wide = random.integers(-(2**62), 2**62, 1000) >> random.integers(0, 62, 1000)
        short, single = np.zeros(1000, np.uint16), np.zeros(1000, np.uint32)
        built.leave_bf16(pointer(wide), bits, pointer(short), pointer(single), 1000)
        np.testing.assert_array_equal(short, edges.bf16_of_fixed(wide, bits))
        np.testing.assert_array_equal(single, edges.float_of_fixed(wide, bits).view(np.uint32))


@pytest.mark.parametrize(("shift", "expected"), [(0, 1), (47, 1), (48, 0), (-1, 0)])
def test_records_beyond_the_shifts_are_refused(built: Any, shift: int, expected: int) -> None:
    records = Edge(np.array([1, 2]), np.array([3, shift]), np.array([0, -128])).records
    assert built.legal(pointer(records), 2) == expected
