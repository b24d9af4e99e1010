"""Rotated boxes (cx, cy, width, height, angle in radians, counter-clockwise where y points up): corners, overlap. float64.

The overlap is exact up to rounding: one box is clipped by the four edges of the other (Sutherland and Hodgman 1974), the area is the shoelace
formula's, taken about the first box's centre so that boxes far from the origin lose nothing. Equal, touching, contained and empty boxes need no
cases of their own: a point on an edge counts as inside, and a polygon without area has area 0.
"""

from __future__ import annotations

import numpy as np


def corners(box: np.ndarray) -> np.ndarray:
    """[4, 2], in order around the box."""
    x, y, width, height, angle = (float(v) for v in box)
    cosine, sine = np.cos(angle), np.sin(angle)
    local = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [abs(width) / 2, abs(height) / 2]
    return local @ np.array([[cosine, sine], [-sine, cosine]]) + [x, y]


def clip_polygon(polygon: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The part of a convex polygon [n, 2] on the left of the line from `start` to `end`."""
    if len(polygon) == 0:
        return polygon
    edge = end - start
    side = edge[0] * (polygon[:, 1] - start[1]) - edge[1] * (polygon[:, 0] - start[0])
    kept: list[np.ndarray] = []
    for i in range(len(polygon)):
        j = (i + 1) % len(polygon)
        if side[i] >= 0:
            kept.append(polygon[i])
        if (side[i] > 0 and side[j] < 0) or (side[i] < 0 and side[j] > 0):
            kept.append(polygon[i] + (polygon[j] - polygon[i]) * (side[i] / (side[i] - side[j])))
    return np.array(kept).reshape(-1, 2)


def area(polygon: np.ndarray) -> float:
    """Of a polygon whose corners go around counter-clockwise; 0 for fewer than three."""
    if len(polygon) < 3:
        return 0.0
    x, y = (polygon - polygon[0]).T
    return max(0.0, 0.5 * float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum()))


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes [5]; 0 where either has no area."""
    area_a, area_b = abs(float(a[2] * a[3])), abs(float(b[2] * b[3]))
    if not (area_a > 0 and area_b > 0):
        return 0.0
    distance = np.hypot(a[0] - b[0], a[1] - b[1])
    if distance > 0.5 * (np.hypot(a[2], a[3]) + np.hypot(b[2], b[3])):
        return 0.0
    origin = np.array([a[0], a[1], 0.0, 0.0, 0.0])
    polygon, window = corners(a - origin), corners(b - origin)
    for i in range(4):
        polygon = clip_polygon(polygon, window[i], window[(i + 1) % 4])
    common = min(area(polygon), area_a, area_b)
    return common / (area_a + area_b - common)
