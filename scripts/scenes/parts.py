"""The machine parts: each kind draws its outline and its relief into a square canvas, in its own upright frame.

A `Part` is a pair of images over the square [-1, 1]²: `mask` (0 or 1, what belongs to the part) and `relief` (height in units of
the part's radius, shaded later, after the rotation, so that light comes from one side for all parts of a scene).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

CANVAS = 192  # pixels per side of the canvas; parts are at most 110 pixels across in an image
CLASS_NAMES = ["hex_nut", "bolt", "washer", "gear", "bearing", "spring"]


@dataclass
class Part:
    """mask, relief: float32 [CANVAS, CANVAS]. outline: vertices [n, 2] of the outer contour in [-1, 1], (x right, y down)."""

    mask: np.ndarray
    relief: np.ndarray
    outline: np.ndarray


def _grid() -> tuple[np.ndarray, np.ndarray]:
    """x and y of each canvas pixel's centre."""
    axis = (np.arange(CANVAS, dtype=np.float32) + 0.5) * (2.0 / CANVAS) - 1.0
    return np.meshgrid(axis, axis)


def _fill(polygon: np.ndarray) -> np.ndarray:
    """The polygon (vertices in [-1, 1]) as a mask. OpenCV's pixel centres are at integers, ours at halves."""
    image = np.zeros((CANVAS, CANVAS), np.uint8)
    fixed = np.round(((polygon + 1.0) * (CANVAS / 2) - 0.5) * 256).astype(np.int32)
    cv2.fillPoly(image, [fixed], 1, shift=8)
    return image.astype(np.float32)


def _circle(radius: float, count: int = 96) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _bevel(mask: np.ndarray, width: float, height: float) -> np.ndarray:
    """A plateau of `height` with edges that slope over `width` (both in radii)."""
    distance = cv2.distanceTransform(mask.astype(np.uint8), cv2.DIST_L2, 3) * (2.0 / CANVAS)
    return (np.minimum(distance / width, 1.0) * height).astype(np.float32)


def hex_nut(rng: np.random.Generator) -> Part:
    """A hexagon with a threaded hole."""
    angle = np.arange(6) * (np.pi / 3)
    outline = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x, y = _grid()
    radius = np.hypot(x, y)
    hole = rng.uniform(0.42, 0.54)
    mask = _fill(outline) * (radius > hole)
    chamfer = np.clip((1.0 - radius) * 1.6, 0, 0.18)  # the corners are turned down
    thread = 0.03 * np.sin((radius - hole) * 90) * (radius < hole + 0.12)
    return Part(mask, _bevel(mask, 0.1, 0.22) + chamfer + thread, outline)


def bolt(rng: np.random.Generator) -> Part:
    """A hexagonal head seen from the side and a threaded shank."""
    half_head = rng.uniform(0.34, 0.42)
    half_shank = half_head * rng.uniform(0.48, 0.6)
    head = -1.0 + rng.uniform(0.3, 0.42)
    tip = 1.0 - half_shank * 0.4
    right = [[half_head, -1.0], [half_head, head], [half_shank, head], [half_shank, tip], [half_shank * 0.6, 1.0]]
    outline = np.array(right + [[-x, y] for x, y in reversed(right)])
    outline = outline[:, ::-1].copy()  # along x, as its long side
    mask = _fill(outline)
    x, y = _grid()
    is_head = x < head
    round_shank = np.sqrt(np.clip(1 - (y / half_shank) ** 2, 0, 1)) * half_shank
    thread = 0.05 * np.abs(((x * rng.uniform(9, 13) + y * 0.6) % 1.0) - 0.5) * 2
    thread *= x > head + rng.uniform(0.1, 0.45)
    facets = np.where(np.abs(y) < half_head * 0.5, half_head, half_head * (1.5 - np.abs(y) / half_head))
    relief = np.where(is_head, facets, round_shank + thread).astype(np.float32) * mask
    return Part(mask, relief, outline)


def washer(rng: np.random.Generator) -> Part:
    """A thin flat ring."""
    outline = _circle(1.0)
    x, y = _grid()
    mask = _fill(outline) * (np.hypot(x, y) > rng.uniform(0.48, 0.62))
    return Part(mask, _bevel(mask, 0.05, 0.07), outline)


def gear(rng: np.random.Generator) -> Part:
    """A spur gear: trapezoid teeth, a web that is lower than the rim, a bore with or without a key slot."""
    teeth = int(rng.integers(10, 19))
    root = rng.uniform(0.76, 0.84)
    step = 2 * np.pi / teeth
    profile = [(-0.27, root), (-0.13, 1.0), (0.13, 1.0), (0.27, root)]
    outline = np.array(
        [[r * np.cos((k + f) * step), r * np.sin((k + f) * step)] for k in range(teeth) for f, r in profile]
    )
    x, y = _grid()
    radius = np.hypot(x, y)
    bore = rng.uniform(0.16, 0.28)
    keep = radius > bore
    if rng.random() < 0.5:
        keep &= ~((np.abs(y) < bore * 0.35) & (x > 0) & (x < bore * 1.4))
    mask = _fill(outline) * keep
    relief = _bevel(mask, 0.06, 0.2)
    relief -= 0.1 * ((radius > bore + 0.14) & (radius < root - 0.14))
    return Part(mask, relief.astype(np.float32), outline)


def bearing(rng: np.random.Generator) -> Part:
    """A ball bearing: outer race, balls in a dark groove, inner race."""
    outline = _circle(1.0)
    x, y = _grid()
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    bore = rng.uniform(0.34, 0.42)
    mask = _fill(outline) * (radius > bore)
    track = (1.0 + bore) / 2
    ball = (1.0 - bore) * rng.uniform(0.2, 0.25)
    count = int(np.pi * track / (ball * 1.25))
    nearest = np.round(angle / (2 * np.pi / count)) * (2 * np.pi / count)
    to_ball = np.hypot(x - track * np.cos(nearest), y - track * np.sin(nearest))
    groove = np.abs(radius - track) < ball * 0.95
    relief = _bevel(mask, 0.05, 0.3)
    relief = np.where(groove, 0.02, relief)
    relief = np.where(to_ball < ball, np.sqrt(np.clip(ball**2 - to_ball**2, 0, None)) + 0.1, relief)
    return Part(mask, relief.astype(np.float32), outline)


def spring(rng: np.random.Generator) -> Part:
    """A compression spring seen from the side: wire in a zigzag with round bends and closed ends."""
    half = rng.uniform(0.3, 0.42)
    coils = int(rng.integers(6, 10))
    wire = rng.uniform(0.035, 0.05) * 2
    phase = np.linspace(0, 2 * np.pi * coils, 60 * coils)
    reach = 1.0 - wire / 2
    along = np.linspace(-reach, reach, phase.size)
    points = np.stack([along, (half - wire / 2) * np.sin(phase)], axis=1)
    image = np.zeros((CANVAS, CANVAS), np.uint8)
    fixed = np.round(((points + 1.0) * (CANVAS / 2) - 0.5) * 256).astype(np.int32)
    cv2.polylines(image, [fixed], False, 1, thickness=max(3, round(wire * CANVAS / 2)), shift=8)
    mask = image.astype(np.float32)
    for x in (-reach, reach):
        column = int((x + 1) * CANVAS / 2)
        top, bottom = (int((v + 1) * CANVAS / 2) for v in (-half * 0.9, half * 0.9))
        left = max(0, column - round(wire * CANVAS / 4))
        mask[top:bottom, left : column + round(wire * CANVAS / 4)] = 1
    distance = cv2.distanceTransform(mask.astype(np.uint8), cv2.DIST_L2, 3) * (2.0 / CANVAS)
    relief = np.sqrt(np.clip(distance * (wire - distance), 0, None)) * 2
    front = 0.06 * (np.cos(np.interp(_grid()[0], along, phase)) > 0)  # half of each coil lies in front
    outline = np.array([[-1.0, -half], [1.0, -half], [1.0, half], [-1.0, half]])
    return Part(mask, (relief + front * mask).astype(np.float32), outline)


BUILDERS: list[Callable[[np.random.Generator], Part]] = [hex_nut, bolt, washer, gear, bearing, spring]
