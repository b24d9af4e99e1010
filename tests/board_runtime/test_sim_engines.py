"""Every engine of the simulator against an int64 oracle, on random single layers, for every instruction set and thread count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
import sim_cases as cases

from npuforge.board_runtime import _native
from npuforge.compile.ir.errors import InstructionError

many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)
channels = st.integers(1, 70)
blocks = st.integers(1, 4)
known = st.sampled_from([True, True, True, False])  # whether parameters are known at load
shapes = st.sampled_from(["full", "full", "h", "w", "hw", "channel", "channel_hw"])


def check(case: cases.Case) -> None:
    program, expected = case
    program.check(expected)


@many
@given(rng=seeds, channels=st.tuples(channels, channels), known=known)
def test_convolution(rng: np.random.Generator, channels: tuple[int, int], known: bool) -> None:
    check(cases.convolution(rng, channels, known))


@many
@given(rng=seeds, blocks=blocks, known=known)
def test_depthwise(rng: np.random.Generator, blocks: int, known: bool) -> None:
    check(cases.depthwise(rng, blocks, known))


@many
@given(rng=seeds, blocks=blocks, average=st.booleans(), known=known)
def test_pooling(rng: np.random.Generator, blocks: int, average: bool, known: bool) -> None:
    check(cases.pooling(rng, blocks, average, known))


@many
@given(rng=seeds, blocks=blocks, kind=st.integers(0, 3), shape=shapes, known=known, in_place=st.booleans())
def test_elementwise(rng: np.random.Generator, blocks: int, kind: int, shape: str, known: bool, in_place: bool) -> None:
    check(cases.elementwise(rng, blocks, kind, shape, known, in_place))


@many
@given(rng=seeds, blocks=blocks, linear=st.booleans(), known=known)
def test_resize(rng: np.random.Generator, blocks: int, linear: bool, known: bool) -> None:
    check(cases.resize(rng, blocks, linear, known))


@many
@given(rng=seeds, blocks=blocks)
def test_copy(rng: np.random.Generator, blocks: int) -> None:
    check(cases.copy(rng, blocks))


@many
@given(rng=seeds, channels=st.integers(1, 4), from_image=st.booleans())
def test_fold(rng: np.random.Generator, channels: int, from_image: bool) -> None:
    check(cases.fold(rng, channels, from_image))


@many
@given(rng=seeds, layers=st.integers(1, 6))
def test_network(rng: np.random.Generator, layers: int) -> None:
    """Row bands, reused map buffers and parameter places: dependencies and the tracking of constants."""
    program, expected = cases.network(rng, layers)
    program.check(expected)
    np.testing.assert_array_equal(program.run("auto", 4), expected)


def test_a_wrong_byte_is_noticed() -> None:
    """The comparison itself can fail."""
    program, expected = cases.copy(np.random.default_rng(1), 1)
    wrong = expected.copy()
    wrong[0, 0, 0] ^= 1
    with pytest.raises(AssertionError, match="1 of"):
        program.check(wrong)


def test_damaged_parameters() -> None:
    """One bit of the parameters flipped: every code path computes the same, or refuses with the same words; some flips show in the output."""
    changed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        program, expected = cases.network(rng, 2)
        image = bytearray(program.image)
        image[int(rng.integers(0, len(image)))] ^= 1 << int(rng.integers(0, 8))
        program.image = bytes(image)
        results = set()
        for level in _native.sim.levels():
            try:
                results.add(program.run(level, 2).tobytes())
            except InstructionError as error:
                results.add(str(error))
        assert len(results) == 1, f"seed {seed}: code paths differ"
        changed += results != {expected.tobytes()}
    assert changed >= 5  # random stages often saturate
