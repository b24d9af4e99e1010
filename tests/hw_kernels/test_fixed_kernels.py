"""The integers of the HLS kernels that no engine runs, against the operators' float64 meaning: largest error of each in units of its last bit.

`test_operator_kernels.py` has the C++ give these integers bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.fixed_math import divide_rounded, exponential_of_minus, normalised, sigmoid
from npuforge.hw_kernels.ops.group_normalization.fixed import fixed_group_normalization
from npuforge.hw_kernels.ops.layer_normalization.fixed import fixed_layer_normalization
from npuforge.hw_kernels.ops.rotated_roi_align.fixed import fixed_align
from npuforge.hw_kernels.ops.softmax.fixed import fixed_softmax
from npuforge.hw_kernels.ops.yolo_decode.fixed import fixed_decode
from npuforge.hw_kernels.rotated import overlap as real_overlap
from npuforge.hw_kernels.rotated_fixed import overlap, random_boxes
from npuforge.hw_kernels.suppress_fixed import suppress

TURN = 2 * math.pi / 2**16


def meaning(name: str, inputs: list[Any], attrs: dict[str, Any] | None = None, outputs: int = 1) -> list[np.ndarray]:
    node = Node("n", name, [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)], attrs or {})
    return operator.get(node).reference(node, inputs)


def test_exponential_and_sigmoid() -> None:
    x = np.arange(0, 2**17, 37)
    found = np.array([exponential_of_minus(int(v)) for v in x]) / 2**30
    assert np.abs(found / np.exp(-x / 2**12) - 1)[found > 2**-12].max() < 2**-14
    assert np.abs(found - np.exp(-x / 2**12)).max() < 2**-15
    signed = np.arange(-(2**16), 2**16, 41)
    found = np.array([sigmoid(int(v)) for v in signed]) / 2**15
    assert np.abs(found - 1 / (1 + np.exp(-signed / 2**12))).max() < 2**-15


@given(st.integers(-(2**62), 2**62), st.integers(1, 2**40))
def test_rounded_division_is_the_nearest_integer(numerator: int, denominator: int) -> None:
    found = divide_rounded(numerator, denominator)
    assert abs(2 * (numerator - found * denominator)) <= denominator


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=40))
def test_softmax_within_a_unit(values: list[int]) -> None:
    x = np.array(values, np.int16)
    expected = meaning("Softmax", [x[None] / 256.0])[0][0] * 2**14
    assert np.abs(fixed_softmax(x) - expected).max() <= 1.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=60), st.sampled_from([1, 7, 655, 65536]))
def test_normalised_values_within_half_a_unit(values: list[int], epsilon: int) -> None:
    x = np.array(values) / 256.0
    exact = (x - x.mean()) / np.sqrt(x.var() + epsilon / 2**16)
    assert np.abs(np.array(normalised(values, epsilon)) - exact * 2**12).max() <= 0.51


def test_layer_and_group_normalization_within_a_unit() -> None:
    random = np.random.default_rng(3)
    for count in (1, 2, 33, 256):
        x = random.integers(-32768, 32768, count).astype(np.int16)
        scale = random.integers(-4096, 4097, count).astype(np.int16)  # to 1
        bias = random.integers(-1000, 1000, count).astype(np.int16)
        attrs = {"epsilon": 655 / 2**16}
        expected = meaning("LayerNormalization", [x / 256.0, scale / 4096.0, bias / 256.0], attrs)[0] * 256
        assert np.abs(fixed_layer_normalization(x, scale, bias, 655) - expected).max() <= 0.6
    maps = random.integers(-32768, 32768, (4, 30)).astype(np.int16)
    args = [maps[None] / 256.0, scale[:4] / 4096.0, bias[:4] / 256.0]
    expected = meaning("GroupNormalization", args, {"num_groups": 1, "epsilon": 655 / 2**16})[0][0] * 256
    assert np.abs(fixed_group_normalization(maps, scale[:4], bias[:4], 655) - expected).max() <= 0.6


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(-2000, 2000), min_size=6, max_size=12),
    st.tuples(st.integers(16, 8000), st.integers(16, 8000)),
    st.tuples(st.integers(0, 80), st.integers(0, 80)),
    st.sampled_from([8, 16, 32]),
)
def test_decoded_boxes_scores_and_classes(
    values: list[int], anchor: tuple[int, int], cell: tuple[int, int], stride: int
) -> None:
    t = np.array(values, np.int16)
    box, score, label = fixed_decode(t, anchor, cell, stride)
    head = np.zeros((1, len(t), cell[1] + 1, cell[0] + 1))
    head[0, :, cell[1], cell[0]] = t / 256.0
    attrs = {"anchors": [a / 16 for a in anchor], "strides": [stride], "num_classes": len(t) - 5}
    boxes, scores, labels = (v[0, -1] for v in meaning("npuforge::YoloDecode", [head], attrs, 3))
    size = np.array([boxes[2] - boxes[0], boxes[3] - boxes[1]] * 2)
    assert (np.abs(np.array(box) - boxes * 16) <= 1.5 + 16 * size * 2**-14).all()
    assert abs(score - scores * 2**14) <= 1.5 and label == labels


def test_rotated_overlap_moves_edges_by_little() -> None:
    """Corners are off by 2^-8 pixel and by 2^-14 of a box's length (sine and cosine have 14 bits); an overlap by that share of the shortest side."""
    random = np.random.default_rng(8)
    largest = 0.0
    for _ in range(60):
        boxes = random_boxes(random, 8)
        big = [b for b in boxes.tolist() if min(abs(b[2]), abs(b[3])) >= 16]  # a pixel
        for a, b in [(a, b) for a in big for b in big]:
            real = [np.array([v[0] / 16, v[1] / 16, v[2] / 16, v[3] / 16, v[4] * TURN]) for v in (a, b)]
            sides = [abs(float(v)) for r in real for v in r[2:4]]
            error = abs(overlap(a, b) / 2**14 - real_overlap(*real))
            assert error <= 2**-14 + 4 * (2**-8 + max(sides) * 2**-14) / min(sides)
            largest = max(largest, error)
    assert largest > 0


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0, 0, 160, 80, 0), (0, 0, 160, 80, 0), 2**14),  # equal
        ((0, 0, 160, 80, 0), (0, 0, 80, 160, 16384), 2**14),  # the same box a quarter turn further
        ((0, 0, 160, 80, 0), (160, 0, 160, 80, 0), 0),  # touching
        ((0, 0, 160, 80, 5000), (0, 0, 80, 40, 5000), 2**12),  # contained: a quarter
        ((0, 0, 160, 0, 0), (0, 0, 160, 80, 0), 0),  # no area
        ((-32768, 0, 32767, 32767, 0), (32767, 0, 32767, 32767, 0), 0),  # far apart
        ((0, 0, 160, 160, 0), (80, 0, 160, 160, 0), 5461),  # half of each: a third
    ],
)
def test_rotated_overlap_by_hand(a: tuple[int, ...], b: tuple[int, ...], expected: int) -> None:
    assert abs(overlap(a, b) - expected) <= 4 and abs(overlap(b, a) - expected) <= 4


def test_suppression_is_the_operators() -> None:
    random = np.random.default_rng(4)
    for _ in range(30):
        boxes = random_boxes(random, 12)
        scores = random.integers(0, 30, 12).astype(np.int16)
        real = boxes / [16, 16, 16, 16, 1 / TURN]
        table = np.array([[real_overlap(p, q) for q in real] for p in real])
        kept = suppress(scores, lambda i, j, table=table: bool(table[i, j] > 0.25), 3, 5)
        attrs = {"iou_threshold": 0.25, "score_threshold": 3.0, "max_output_boxes_per_class": 5}
        rows = meaning("npuforge::RotatedNms", [real, scores[None].astype(np.float64)], attrs)[0]
        assert kept == rows[:, 1].tolist()


def test_aligned_regions() -> None:
    random = np.random.default_rng(2)
    for _ in range(25):
        # Neighbours alike: a sample's place is rounded to 1/256 pixel, and the map must not jump there.
        y, x, c = np.indices((9, 11, 16))
        pixels = (4 * y - 5 * x + c).astype(np.int8)
        region = random.integers([300, 300, 200, 200], [2200, 1900, 1800, 1800]).tolist()
        angle = int(random.integers(-32768, 32768))
        found = fixed_align(pixels, region, angle, 2, 3, 2) / 2**7
        roi = np.array([[0, *(v / 256 for v in region), angle * TURN]])
        attrs = {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
        expected = meaning(
            "npuforge::RotatedRoiAlign", [pixels.transpose(2, 0, 1)[None].astype(np.float64), roi], attrs
        )[0][0]
        assert np.abs(found - expected.transpose(1, 2, 0)).max() < 0.04  # two places of 2^-8 pixel on a slope of 5
