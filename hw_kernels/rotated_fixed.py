"""Overlap of rotated boxes in Python's own integers: the normative bits of hls/rotated_box.hpp. Boxes are int16 (cx, cy, width, height) with 4
fraction bits and an angle, a turn as 2^16. Corners are off by 2^-8 pixel and 2^-14 of the longest side; an overlap by up to 4 times that over the
shortest (tests/hw_kernels/test_fixed_kernels.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from npuforge.hw_kernels.cordic import rotate

Point = tuple[int, int]
POLYGON_MAX = 12


def _quotient(numerator: int, denominator: int) -> int:
    """As C divides: towards 0."""
    sign = -1 if (numerator < 0) != (denominator < 0) else 1
    return sign * (abs(numerator) // abs(denominator))


@lru_cache(maxsize=2**12)
def _turned(angle: int) -> tuple[int, int]:
    """Sine and cosine of one angle."""
    sine, cosine = (int(v[()]) for v in rotate(np.array(angle, np.int16)))
    return sine, cosine


def corners(box: Sequence[int], dx: int, dy: int) -> list[Point]:
    """With 8 fraction bits, of a box whose centre lies at (dx, dy)."""
    sine, cosine = _turned(box[4])
    found = []
    for sign_x, sign_y in ((-1, -1), (1, -1), (1, 1), (-1, 1)):
        u, v = sign_x * abs(box[2]), sign_y * abs(box[3])
        x, y = (u * cosine - v * sine + 1024) >> 11, (u * sine + v * cosine + 1024) >> 11
        found.append((16 * dx + x, 16 * dy + y))
    return found


def clip(polygon: list[Point], start: Point, end: Point) -> list[Point]:
    """The part on the left of the line from start to end."""
    edge = end[0] - start[0], end[1] - start[1]
    side = [edge[0] * (y - start[1]) - edge[1] * (x - start[0]) for x, y in polygon]
    kept: list[Point] = []
    for i, (x, y) in enumerate(polygon):
        j = (i + 1) % len(polygon)
        if side[i] >= 0:
            kept.append((x, y))
        if side[i] * side[j] < 0:
            whole, other = side[i] - side[j], polygon[j]
            kept.append(
                (x + _quotient((other[0] - x) * side[i], whole), y + _quotient((other[1] - y) * side[i], whole))
            )
    return kept[:POLYGON_MAX]


def twice_area(polygon: list[Point]) -> int:
    """With 16 fraction bits."""
    if len(polygon) < 3:
        return 0
    x0, y0 = polygon[0]
    rest = zip(polygon, polygon[1:] + polygon[:1], strict=True)
    return max(0, sum((x - x0) * (v - y0) - (u - x0) * (y - y0) for (x, y), (u, v) in rest))


def overlap(a: Sequence[int], b: Sequence[int]) -> int:
    """Intersection over union with 14 fraction bits."""
    sides = [abs(v) for v in (a[2], a[3], b[2], b[3])]
    dx, dy, reach = b[0] - a[0], b[1] - a[1], sum(sides) // 2 + 1
    if 0 in sides or max(abs(dx), abs(dy)) > reach:
        return 0
    common, window = corners(a, 0, 0), corners(b, dx, dy)
    for start, end in zip(window, window[1:] + window[:1], strict=True):
        common = clip(common, start, end)
    area_a, area_b = sides[0] * sides[1] << 9, sides[2] * sides[3] << 9
    shared = min(twice_area(common), area_a, area_b)
    joined = area_a + area_b - shared
    return ((shared << 14) + joined // 2) // joined


def random_boxes(random: np.random.Generator, count: int) -> np.ndarray:
    """int16 [count, 5]: boxes that overlap often, empty ones, equal ones, ones of every size."""
    spread = int(random.choice([64, 2000, 32768]))
    boxes = random.integers(-spread, spread, (count, 5))
    boxes[:, 4] = random.integers(-32768, 32768, count)
    boxes[:, 2:4] = np.where(random.random((count, 2)) < 0.05, 0, boxes[:, 2:4])
    copies = random.random(count) < 0.2
    boxes[copies] = boxes[0] if count else boxes[copies]
    return boxes.astype(np.int16)
