"""RotatedRoiAlign on the NPU's int8 and bf16: regions of any place, size and angle within their stated bound of float64, which is narrow but beside a jump; the
kernel's bits; what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_support import COMPILERS, function, library, passed

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.kernel_data import MODES
from npuforge.hw_kernels.levels import folder
from npuforge.hw_kernels.operator import KernelForm, KernelRun

NAME = "npuforge::RotatedRoiAlign"
OP = operator.registry()[NAME]


def form_of(mode: str) -> KernelForm:
    form = OP.kernel_bf16 if mode == "bf16" else OP.kernel_int8
    assert form is not None
    return form


def run(x: np.ndarray, rois: np.ndarray, mode: str, **attrs: Any) -> KernelRun:
    return form_of(mode).run(Node("node", NAME, ["x", "r"], ["y"], attrs), [x, rois], mode)


def errors(found: KernelRun, **attrs: Any) -> np.ndarray:
    node = Node("node", NAME, ["x", "r"], ["y"], attrs)
    return np.asarray(np.abs(found.results[0] - OP.reference(node, found.inputs)[0]))


def smooth_map(random: np.random.Generator, images: int, channels: int, height: int, width: int) -> np.ndarray:
    """Slopes below 0.6 per pixel, magnitudes below 2."""
    phase, speed = (
        random.uniform(0, 6, (images, channels, 1, 1)),
        random.uniform(-0.3, 0.3, (2, images, channels, 1, 1)),
    )
    y, x = np.indices((height, width))
    return np.asarray(1 + np.sin(phase + speed[0] * x + speed[1] * y), np.float32)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2, 5]), st.sampled_from([1.0, 0.25, 0.3]))
@example(3611, 1, 1.0)  # all outside
def test_regions_anywhere(seed: int, ratio: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    height, width = (int(v) for v in random.integers(1, 40, 2))
    x = smooth_map(random, 2, 3, height, width)
    rois = np.concatenate(
        [
            random.integers(0, 2, (5, 1)),
            random.uniform(-0.3, 1.3, (5, 2)) * [width, height] / scale,
            random.uniform(0.1, 40, (5, 2)) / scale,
            random.uniform(-10, 10, (5, 1)),
        ],
        1,
    )
    attrs = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": scale}
    for mode in MODES:
        found = run(x, rois, mode, **attrs)
        (bound,) = found.bounds
        assert (errors(found, **attrs) <= bound).all()
        # Half a step of 2^-7 to 2^-8 of 2, a slope of 0.6 at 0.01 pixel; where all samples lie outside of the map there is nothing to choose a step by.
        assert np.median(bound) < 0.02 or not found.results[0].any()
        np.testing.assert_allclose(found.inputs[1][:, :5], rois[:, :5], rtol=0, atol=2.0**-17 / scale)
        turned = found.inputs[1][:, 5] - rois[:, 5]
        assert np.abs(turned - 2 * np.pi * np.round(turned / (2 * np.pi))).max() <= np.pi / 2**16 * (1 + 1e-9)


def test_a_sample_on_the_outer_edge_may_read_either() -> None:
    """At -1 exactly the map is read, a unit farther 0 is: the bound is the map's magnitude there, and half a step elsewhere."""
    x = np.full((1, 1, 4, 4), 3.0, np.float32)
    rois = np.array(
        [[0, -0.5, 2, 0, 0, 0.0], [0, -0.5 - 2.0**-16, 2, 0, 0, 0.0], [0, -0.6, 2, 0, 0, 0], [0, 2, 2, 0, 0, 0]]
    )
    for mode in MODES:
        found = run(x, rois, mode, sampling_ratio=1)
        step = 0.03
        np.testing.assert_allclose(found.results[0].ravel(), [3, 0, 0, 3], atol=step)
        bound = found.bounds[0].ravel()
        assert (bound[:2] > 3).all() and (bound[:2] < 3 + step).all() and (bound[2:] < step).all()


def test_where_the_number_of_samples_jumps_the_bound_is_the_range() -> None:
    """7 pixels in 7 rows are one sample each; a side that float64 makes a little longer, as 7 / 0.3 * 0.3, has two."""
    x = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
    attrs = {"output_height": 7, "output_width": 1, "spatial_scale": 0.3}
    samples = np.arange(1, 9)
    rois = np.array([[0, 4 / 0.3, 4 / 0.3, 6.0, 7 * n / 0.3, 0.0] for n in samples])
    found = run(x, rois, "bf16", **attrs)
    np.testing.assert_array_equal(found.calls[0][0][5][:, 4], samples * 7 * 2**16)  # the kernel counts `samples`
    longer = np.ceil(found.inputs[1][:, 4] * 0.3 / 7) != samples
    assert longer.any() and not longer.all()
    np.testing.assert_array_equal(found.bounds[0].min((1, 2, 3)) >= 63, longer)
    assert (errors(found, **attrs) <= found.bounds[0]).all()


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ([0, np.nan, 1, 2, 2, 0], "finite"),
        ([0, 1, 1, 2, np.inf, 0], "finite"),
        ([0, 20000, 1, 2, 2, 0], "16,384"),
        ([0, 1, 1, 65, 2, 0], "65 samples"),
    ],
)
def test_regions_that_fixed_point_cannot_hold_are_refused(region: list[float], message: str) -> None:
    for mode in MODES:
        with pytest.raises(QuantisationError, match=message):
            run(np.ones((1, 1, 4, 4), np.float32), np.array([region]), mode)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_kernel_of_more_than_a_block_of_channels_and_its_refusals(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(2, 19, 6, 5)).astype(np.float32)
    rois = np.array([[1, 2, 3, 4, 3, 0.4], [0, 5, 5.5, 64, 40, -2.0], [1, 1, 1, -2, 3, 1.0], [0, 9000, 0, 1, 1, 0]])
    place = folder(OP)
    assert place is not None
    text = "".join(
        function(f"call_{mode}", form_of(mode).top, form_of(mode).arguments, accepts=True) for mode in ("fine", "bf16")
    )
    calls = library(place / "kernel.hpp", text, *COMPILERS[0], tmp_path / "build")
    for mode, kernel in (("fine", calls.call_fine), ("bf16", calls.call_bf16)):
        form = form_of(mode)
        ((arguments, (expected,)),) = run(x, rois, mode, output_height=2, output_width=3).calls
        arguments[-1][...] = 77
        assert kernel(*passed(form.arguments, arguments)) == 1
        np.testing.assert_array_equal(arguments[-1], expected)
        assert not expected[..., 19:].any() and expected[..., :19].any()
        regions = arguments[5].copy()
        limits = [(0, 2), (0, -1), (1, 2**30 + 1), (4, -(2**30) - 1), (5, 32768), (5, -32769), (3, 3 * 64 * 2**16 + 1)]
        for column, value in limits:
            arguments[5] = regions.copy()
            arguments[5][3, column] = value
            arguments[-1][...] = 77
            assert kernel(*passed(form.arguments, arguments)) == 0, (column, value)
            assert (arguments[-1] == 77).all()
