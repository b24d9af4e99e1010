"""Rotated boxes (cx, cy, width, height, angle in radians, counter-clockwise where y points up) and convex polygons: corners, overlap. float64.

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


def _signed_area(polygon: np.ndarray) -> float:
    x, y = (polygon - polygon[0]).T
    return 0.5 * float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum())


def area(polygon: np.ndarray) -> float:
    """Of a polygon whose corners go around counter-clockwise; 0 for fewer than three."""
    return max(0.0, _signed_area(polygon)) if len(polygon) >= 3 else 0.0


def polygon_overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two convex polygons [n, 2] whose corners go around either way; 0 where either has no area."""
    origin = a[0]
    subject, window = (p if _signed_area(p) >= 0 else p[::-1] for p in (a - origin, b - origin))
    area_a, area_b = area(subject), area(window)
    if not (area_a > 0 and area_b > 0) or (a.max(0) < b.min(0)).any() or (b.max(0) < a.min(0)).any():
        return 0.0
    common = min(area(_clip(subject, window)), area_a, area_b)
    return common / (area_a + area_b - common)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes [5]; 0 where either has no area."""
    area_a, area_b = abs(float(a[2] * a[3])), abs(float(b[2] * b[3]))
    if not (area_a > 0 and area_b > 0):
        return 0.0
    distance = np.hypot(a[0] - b[0], a[1] - b[1])
    if distance > 0.5 * (np.hypot(a[2], a[3]) + np.hypot(b[2], b[3])):
        return 0.0
    origin = np.array([a[0], a[1], 0.0, 0.0, 0.0])
    common = min(area(_clip(corners(a - origin), corners(b - origin))), area_a, area_b)
    return common / (area_a + area_b - common)


def _clip(polygon: np.ndarray, window: np.ndarray) -> np.ndarray:
    """What of a convex polygon lies in another; corners of both go around counter-clockwise."""
    for start, end in zip(window, np.roll(window, -1, axis=0), strict=True):
        polygon = clip_polygon(polygon, start, end)
    return polygon
