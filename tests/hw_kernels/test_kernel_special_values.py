"""Kernels of detection operators on the NPU's data: every bf16 pattern, NaN, infinities and denormals, against math's own functions; sums against fsum."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import COMPILERS, function, library, passed

from npuforge.hw_kernels import bf16, operator
from npuforge.hw_kernels.levels import folder
from npuforge.hw_kernels.ops.angle_decode.fixed import bf16_angles
from npuforge.hw_kernels.ops.angle_encode.fixed import bf16_codes
from npuforge.hw_kernels.ops.csr_matmul.fixed import float_product, integer_product
from npuforge.hw_kernels.ops.yolo_decode.fixed import INFINITE, MAX_CLASSES, MAX_SIDE, SCORE_NAN, decode_map
from npuforge.hw_kernels.ops.yolo_decode.fixed import NAN as NAN_LOGIT
from npuforge.hw_kernels.ops.yolo_decode.npu_data import bf16_logits

PATTERNS = np.arange(65536, dtype=np.uint16)
with np.errstate(invalid="ignore"):  # signalling NaN
    VALUES = bf16.to_float32(PATTERNS).astype(np.float64)  # denormals are zeros
NAN = 0x7FC0


def call(name: str, level: str, where: Path, *arguments: Any) -> None:
    """The kernel by g++; it accepts."""
    op = operator.registry()[name]
    form = op.kernel_bf16 if level == "bf16" else op.kernel_int8
    place = folder(op)
    assert form is not None and place is not None
    text = function("run", form.top, form.arguments, accepts=True)
    assert (
        library(place / "kernel.hpp", text, *COMPILERS[0], where / "build").run(*passed(form.arguments, [*arguments]))
        == 1
    )


def test_codes_of_every_bf16_angle(tmp_path: Path) -> None:
    y = bf16_codes(PATTERNS[:, None])
    known = np.isfinite(VALUES)
    assert (y[~known] == NAN).all()
    found = bf16.to_float32(y[known]).astype(np.float64)
    expected = np.array([[math.sin(2 * v), math.cos(2 * v)] for v in VALUES[known]])
    assert np.abs(found - expected).max() <= 2.0**-9 + 4 * 2.0**-14
    lanes, written = np.zeros((65536, 16), np.uint16), np.ones((65536, 16), np.uint16)
    lanes[:, 0] = PATTERNS
    call("npuforge::AngleEncode", "bf16", tmp_path, lanes, 65536, 1, written)
    np.testing.assert_array_equal(written[:, :2], y)
    assert not written[:, 2:].any()


def test_angles_of_every_pair_of_special_codes(tmp_path: Path) -> None:
    """All patterns against 0, 1, infinities, NaN, the largest and the least, on either side."""
    others = np.array([0, 0x8000, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x7F7F, 0x0080, 1], np.uint16)
    pairs = [np.stack([PATTERNS, np.full_like(PATTERNS, o)], -1) for o in others]
    codes = np.concatenate([*pairs, *(p[:, ::-1] for p in pairs)])
    y = bf16_angles(codes)[:, 0]
    with np.errstate(invalid="ignore"):
        real = bf16.to_float32(codes).astype(np.float64)
    nan = np.isnan(real).any(-1)
    assert (y[nan] == NAN).all()
    expected = 0.5 * np.arctan2(real[~nan, 0], real[~nan, 1])
    origin = (real[~nan] == 0).all(-1)
    expected[origin] = 0.0  # of whichever signs
    off = np.abs(bf16.to_float32(y[~nan]).astype(np.float64) - expected)
    off = np.minimum(off, np.abs(math.pi - off))  # -90 degrees is 90
    assert off.max() <= 2.0**-8 * 1.6 + 2.0**-13
    lanes, written = np.zeros((len(codes), 16), np.uint16), np.ones((len(codes), 16), np.uint16)
    lanes[:, :2] = codes
    for start in range(0, len(codes), 2**20):
        part = slice(start, start + 2**20)
        count = len(codes[part])
        piece = np.ones((count, 16), np.uint16)
        call("npuforge::AngleDecode", "bf16", tmp_path, np.ascontiguousarray(lanes[part]), count, 1, piece)
        written[part] = piece
    np.testing.assert_array_equal(written[:, 0], y)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 70), st.integers(1, 20))
def test_sums_of_sparse_rows(seed: int, count: int, width: int) -> None:
    """bf16 against exact sums: 2^-24 of the magnitudes for each addition on the way, and the last rounding. int8 exactly."""
    random = np.random.default_rng(seed)
    x, values = bf16.from_float32(random.normal(size=(9, width))), bf16.from_float32(random.normal(size=count) * 8)
    columns = random.integers(0, 9, count)
    cut = int(random.integers(0, count + 1))
    pointers = np.array([0, cut, cut, count])
    found = bf16.to_float32(float_product(values, columns, pointers, x)).astype(np.float64)
    real_x, real_v = (bf16.to_float32(v).astype(np.float64) for v in (x, values))
    q_x, q_v = (random.integers(-128, 128, s).astype(np.int8) for s in ((9, width), count))
    zero = random.integers(-128, 128, width).astype(np.int8)
    sums = integer_product(q_v, columns, pointers, q_x, zero)
    for r in range(3):
        for c in range(width):
            inside = range(pointers[r], pointers[r + 1])
            terms = [real_v[k] * real_x[columns[k], c] for k in inside]
            exact, size = math.fsum(terms), math.fsum(map(abs, terms))
            assert abs(found[r, c] - exact) <= 2.0**-8 * abs(exact) + 2.0**-24 * (len(terms) / 16 + 6) * size
            assert sums[r, c] == sum(int(q_v[k]) * (int(q_x[columns[k], c]) - int(zero[c])) for k in inside)


def test_special_values_of_sparse_sums(tmp_path: Path) -> None:
    """Infinities and NaN as float32 has them; a value of 0 that is stored takes nothing in, not even NaN; denormals are zeros; an empty row is +0."""
    special = [np.nan, np.inf, -np.inf, 1.0, 0.0, 1e-40, 3e38, -3e38]
    x = bf16.from_float32(np.array(special, np.float32)[:, None])
    x[5] = 1  # the least denormal
    rows = [
        [(1.0, 0)],
        [(0.0, 0)],
        [(1.0, 1), (1.0, 2)],
        [(2.0, 1), (1.0, 3)],
        [],
        [(-1.0, 5)],
        [(2.0, 6)],
        [(1.0, 6), (1.0, 7)],
    ]
    expected = [np.nan, 0.0, np.nan, np.inf, 0.0, 0.0, np.inf, 0.0]
    values = bf16.from_float32(np.array([v for r in rows for v, _ in r], np.float32))
    columns = np.array([c for r in rows for _, c in r], np.int32)
    pointers = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    y = float_product(values, columns, pointers, x)
    np.testing.assert_array_equal(bf16.to_float32(y[:, 0]), np.array(expected, np.float32))
    assert y[0, 0] == NAN and y[4, 0] == 0
    lanes, written = np.zeros((8, 16), np.uint16), np.ones((8, 16), np.uint16)
    lanes[:, :1] = x
    call("npuforge::CsrMatMul", "bf16", tmp_path, values, columns, pointers, 8, lanes, 8, 16, written)
    np.testing.assert_array_equal(written[:, :1], y)


def test_long_rows_and_columns_outside_are_refused(tmp_path: Path) -> None:
    form, place = (
        operator.registry()["npuforge::CsrMatMul"].kernel_bf16,
        folder(operator.registry()["npuforge::CsrMatMul"]),
    )
    assert form is not None and place is not None
    run = library(
        place / "kernel.hpp", function("run", form.top, form.arguments, accepts=True), *COMPILERS[0], tmp_path / "build"
    ).run
    x, y = np.zeros((2, 16), np.uint16), np.full((1, 16), 7, np.uint16)
    for count, column, accepted in ((2**16, 0, 1), (2**16 + 1, 0, 0), (3, 2, 0), (3, -1, 0)):
        y[...] = 7
        columns, pointers = np.full(count, column, np.int32), np.array([0, count], np.int32)
        arguments = [np.zeros(count, np.uint16), columns, pointers, 1, x, 2, 16, y]
        assert run(*passed(form.arguments, arguments)) == accepted
        assert (y == (0 if accepted else 7)).all()


def test_decoded_special_values(tmp_path: Path) -> None:
    """NaN and infinities as the float operator has them; a box beyond e^10 has no end."""
    base = np.zeros((1, 9, 32), np.float32)
    base[..., 4:6] = 6.0
    for column, (channel, value) in enumerate(
        [
            (4, np.nan),
            (6, np.nan),
            (4, np.inf),
            (4, -np.inf),
            (2, 11.0),
            (2, -np.inf),
            (0, np.inf),
            (3, 1e-40),
            (1, np.nan),
        ]
    ):
        base[0, column, channel] = value
    stored = bf16.from_float32(base)
    logits = bf16_logits(stored)
    assert logits[0, 0, 4] == NAN_LOGIT
    boxes, scores, labels = decode_map(logits, [(160, 160)], 8, 2)
    assert scores[0] == SCORE_NAN and scores[3] == 0 and not labels.any()
    assert abs(scores[2] - 2**14 / (1 + math.exp(-6))) <= 1.5 and (scores[4:] > 0).all()
    assert boxes[4].tolist()[::2] == [-INFINITE, INFINITE] and boxes[5, 0] == boxes[5, 2]
    assert boxes[6, 0] + boxes[6, 2] == 2 * 16 * 8 * 7  # sigmoid 1: the cell's end
    assert boxes[7, 3] - boxes[7, 1] == 160 and (boxes[8, [1, 3]] == NAN_LOGIT).all() and boxes[8, 2] > boxes[8, 0]
    assert len(decode_map(logits, [(160, 160)], 8, 2, 0)[0]) == 7  # neither NaN nor 0 is above 0
    sizes = [1, 9, 32, np.array([160, 160], np.int32), 1, 8, 2, -1, 9]
    written = [np.zeros((9, 4), np.int32), np.zeros(9, np.int16), np.zeros(9, np.int32), np.zeros(1, np.int32)]
    call("npuforge::YoloDecode", "bf16", tmp_path, stored, *sizes, *written)
    for found, value in zip(written, (boxes, scores, labels, [9]), strict=True):
        np.testing.assert_array_equal(found, value)
    assert MAX_SIDE >= 80 and MAX_CLASSES >= 80


pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
