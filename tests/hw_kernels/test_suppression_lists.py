"""Suppression of boxes on the NPU's int8 and bf16: every decision is float64's where the overlap is not within the stated distance of the threshold; the order
of scores, and which are above the lowest, exactly; NaN as ONNX Runtime has it."""

from __future__ import annotations

import numpy as np
import pytest
from contract import run_cpu, run_onnx, standard_model
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.hw_kernels import bf16, operator
from npuforge.hw_kernels.kernel_data import MODES, store
from npuforge.hw_kernels.operator import Case, case_graph, case_inputs
from npuforge.hw_kernels.ops.non_max_suppression.npu_data import bf16_exceeds, corner_edge, int8_corners, int8_exceeds
from npuforge.hw_kernels.rotated import overlap
from npuforge.hw_kernels.rotated_lists import pairs
from npuforge.hw_kernels.suppress_fixed import bf16_order, order_and_lowest

ONE = 2**14


def float_overlaps(boxes: np.ndarray, centre: bool) -> np.ndarray:
    """Intersection over union of every pair of [N, 4]; by hand, in float64."""
    p, q = boxes[:, :2], boxes[:, 2:]
    low, high = (p - np.abs(q) / 2, p + np.abs(q) / 2) if centre else (np.minimum(p, q), np.maximum(p, q))
    sides = np.clip(np.minimum(high[:, None], high) - np.maximum(low[:, None], low), 0, None)
    common, area = sides.prod(-1), (high - low).prod(-1)
    joined = area[:, None] + area - common
    return np.asarray(common / np.where(joined > 0, joined, 1.0))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-9, 9), st.booleans(), st.integers(ONE // 32, ONE - ONE // 32))
def test_decisions_about_corners(seed: int, decade: float, centre: bool, threshold: int) -> None:
    random = np.random.default_rng(seed)
    place, size = random.uniform(0, 10, (8, 2)), random.uniform(1, 8, (8, 2)) * random.choice([-1, 1], (8, 2))
    corners = np.concatenate([place, size if centre else place + size], 1)
    corners[1] = corners[0]
    corners *= 10.0 ** np.array([decade, random.uniform(-9, 9)] * 2)
    for mode in MODES:
        stored = store(corners[None].astype(np.float32), 2, mode)
        exact = float_overlaps(stored.real[0], centre)
        away = np.abs(exact - threshold / ONE) > (
            1e-5 if mode == "bf16" else 2e-3
        )  # coordinates here are 1/8 to 18 of one another
        fixed = None if mode == "bf16" else int8_corners(stored.bits[0], *corner_edge(stored))
        for i, j in np.ndindex(8, 8):
            if fixed is None:
                found = bf16_exceeds(stored.bits[0], i, j, centre, threshold)
            else:
                found = int8_exceeds(fixed, i, j, centre, threshold)
            assert found == (exact[i, j] > threshold / ONE) or not away[i, j], (mode, i, j)
        assert away.mean() > 0.5


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, ONE))
def test_decisions_about_rotated_boxes(seed: int, threshold: int) -> None:
    random = np.random.default_rng(seed)
    boxes = np.concatenate(
        [random.uniform(0, 9, (6, 2)), random.uniform(1, 8, (6, 2)), random.uniform(-4, 4, (6, 1))], 1
    )
    for mode in MODES:
        stored = store(boxes.astype(np.float32), 1, mode)
        pair, _, _, bound = pairs(stored, stored)
        for i, j in np.ndindex(6, 6):
            exact = overlap(stored.real[i], stored.real[j])
            near = abs(exact - threshold / ONE) <= bound[i, j] + 2 / ONE
            assert near or (pair(i, j) > threshold) == (exact > threshold / ONE)
        assert np.median(bound) < 0.02


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, -0.0, 0.25, -1.5, 1e-3, -np.inf, 3e38]), st.sampled_from(MODES))
def test_order_of_scores_is_exact(seed: int, lowest: float, mode: str) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(3, 40)) * 10.0 ** random.integers(-3, 2, (3, 1))
    scores[0, :4] = [0.0, -0.0, 0.25, -1.5]
    stored = store(scores.astype(np.float32), 0, mode)
    order, least = order_and_lowest(stored, lowest)
    for label in range(3):
        real = stored.real[label]
        np.testing.assert_array_equal(
            np.sign(order[:, label][:, None] - order[:, label]), np.sign(real[:, None] - real)
        )
        np.testing.assert_array_equal(order[:, label] > least[label], real > lowest)


def test_order_of_every_bf16_score() -> None:
    every = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        real = bf16.to_float32(every).astype(np.float64)
    order, number = bf16_order(every), ~np.isnan(real)
    assert (order[~number] < order[number].min()).all()
    sorted_by_value = np.argsort(real[number], kind="stable")
    steps = np.diff(order[number][sorted_by_value])
    np.testing.assert_array_equal(np.sign(steps), np.diff(real[number][sorted_by_value]) > 0)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_boxes_that_are_not_finite_suppress_none(place: int, value: float) -> None:
    """An overlap that is not a number is not above the threshold: reference, C++ and kernel."""
    boxes = np.array([[[0, 0, 4, 4], [0, 0, 4, 4], [0, 0, 4, 3.9], [0, 0, 4, 4]]], np.float32)
    boxes[0, 1, place] = value
    scores = np.array([[[0.9, 0.8, 0.7, np.nan]]], np.float32)
    constants = [np.array(5), np.array(0.5, np.float32), np.array(0.0, np.float32)]
    op = operator.registry()["NonMaxSuppression"]
    case = Case([boxes.shape, scores.shape], constants=[(), (), ()], values=lambda random: [boxes, scores, *constants])
    graph, inputs = case_graph("NonMaxSuppression", case), case_inputs(case)
    with np.errstate(all="ignore"):
        expected = op.reference(graph.nodes[0], inputs)[0]
        assert op.kernel_bf16 is not None
        found = op.kernel_bf16.run(graph.nodes[0], inputs, "bf16").results[0]
    assert expected.tolist() == [[0, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(run_cpu(graph.nodes[0], inputs)[0], expected)
    model = standard_model(graph, [expected])
    names = dict(zip(graph.nodes[0].inputs, inputs, strict=True))
    if np.isnan(value):
        np.testing.assert_array_equal(run_onnx(model, names)[0], expected)
