"""Rotated boxes on the NPU's int8 and bf16 of any size, far from the origin, turned often, equal, NaN or infinite: overlaps within their stated bound of
float64's, which tells one box from another; the kernel's bits."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import COMPILERS, function, library, passed

from npuforge.hw_kernels import bf16, operator
from npuforge.hw_kernels.edges import bf16_of_fixed
from npuforge.hw_kernels.kernel_data import MODES
from npuforge.hw_kernels.levels import folder
from npuforge.hw_kernels.operator import KernelRun, case_graph
from npuforge.hw_kernels.rotated_lists import bf16_pair, overlap_bound

NAME = "npuforge::RotatedIou"
OP = operator.registry()[NAME]


def boxes(random: np.random.Generator, size: float, spread: float, turns: float) -> np.ndarray:
    """[6, 5]: sides within a decade of `size`, centres within `spread` of them of one point."""
    place = random.normal(0, 3 * size, 2)
    centres = place + random.uniform(-spread, spread, (6, 2)) * size
    sides = size * 10 ** random.uniform(-0.5, 0.5, (6, 2))
    return np.concatenate([centres, sides, random.uniform(-turns, turns, (6, 1))], 1).astype(np.float32)


def run(a: np.ndarray, b: np.ndarray, mode: str) -> KernelRun:
    form = OP.kernel_bf16 if mode == "bf16" else OP.kernel_int8
    assert form is not None
    return form.run(case_graph(NAME, OP.cases[0]).nodes[0], [a, b], mode)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.floats(-9, 9), st.sampled_from([0.0, 1.0, 4.0]), st.sampled_from([1.6, 7.0, 500.0])
)
def test_overlaps_of_any_size(seed: int, decade: float, spread: float, turns: float) -> None:
    random = np.random.default_rng(seed)
    a, b = (boxes(random, 10.0**decade, spread, turns) for _ in range(2))
    b[:2] = a[:2]
    for mode in MODES:
        found = run(a, b, mode)
        (result,), (bound,) = found.results, found.bounds
        assert (np.abs(result - OP.reference(None, found.inputs)[0]) <= bound).all()  # type: ignore[arg-type]
        if mode == "bf16":
            assert np.median(bound) < 0.02 and (result[[0, 1], [0, 1]] > 0.98).all()


def test_special_pairs_in_bf16(tmp_path: Path) -> None:
    """Every pair of boxes of special values, in the reference's sense, by the kernel too."""
    special = [0.0, -0.0, 1.0, -2.0, 1e-40, 1e38, -1e38, 2.0**-126, 3e5, np.nan, np.inf, -np.inf]
    plain = [1.0, 2.0, 4.0, 3.0, 0.5]
    rows = [plain]
    for place in range(5):
        rows += [[*plain[:place], v, *plain[place + 1 :]] for v in special]
    rows += [[v, v, abs(v), abs(v), 1.0] for v in (1e38, 2.0**-120, 1e30)]
    stored = bf16.from_float32(np.array(rows, np.float32))
    count = len(stored)
    found = np.array([[bf16_pair(p, q) for q in stored] for p in stored])
    with np.errstate(all="ignore"):
        expected = OP.reference(None, [bf16.to_float32(stored)] * 2)[0]  # type: ignore[arg-type]
    finite = np.isfinite(bf16.to_float32(stored)).all(-1)
    assert not found[~finite].any() and not found[:, ~finite].any()
    pairs = finite & finite[:, None]
    real = bf16.to_float32(stored).astype(np.float64)
    bound = overlap_bound(real, real)
    assert (np.abs(found / 2**14 - expected) <= bound)[pairs].all()
    assert (bound[pairs] < 5e-3).mean() > 0.5  # it says nothing of boxes as thin as 2^-10 of the pair's longest side
    assert min(found[0, 0], found[-3, -3], found[-1, -1]) >= 2**14 - 4  # whatever their size
    lanes, wide = np.zeros((count, 16), np.uint16), np.ones((count, -(-count // 16) * 16), np.uint16)
    lanes[:, :5] = stored
    form, place_of = OP.kernel_bf16, folder(OP)
    assert form is not None and place_of is not None
    text = function("run", form.top, form.arguments, accepts=True)
    kernel = library(place_of / "kernel.hpp", text, *COMPILERS[0], tmp_path / "build").run
    assert kernel(*passed(form.arguments, [lanes, count, lanes.copy(), count, wide])) == 1
    np.testing.assert_array_equal(wide[:, :count], bf16_of_fixed(found, 14))
    assert not wide[:, count:].any()


pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
