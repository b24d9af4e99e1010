"""Reads one label file in YOLO's text form: `class cx cy w h` (upright) or `class x1 y1 x2 y2 x3 y3 x4 y4` (oriented, YOLO-OBB), relative to the image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass
class YoloObject:
    """One line. corners: float64 [4, 2] in pixels, around the box. area in pixels."""

    line: int
    label: int
    corners: np.ndarray
    area: float
    oriented: bool


def read_yolo_text(text: Path, width: int, height: int) -> list[YoloObject]:
    """The objects of an image of `width` x `height` pixels. ValueError names the file and the line."""
    try:
        lines = text.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{text}: cannot be read: {error}") from error
    return [_read_line(line, f"{text}:{n}", n, width, height) for n, line in enumerate(lines, start=1) if line.split()]


def _read_line(line: str, where: str, number: int, width: int, height: int) -> YoloObject:
    parts = line.split()
    if len(parts) not in (5, 9):
        raise ValueError(
            f"{where}: expected `class cx cy w h`, found {len(parts)} values; an oriented box has nine (a class, four corners x y)"
        )
    try:
        label, values = int(parts[0]), np.array([float(p) for p in parts[1:]])
    except ValueError as error:
        count = "four" if len(parts) == 5 else "eight"
        raise ValueError(f"{where}: expected an integer class and {count} numbers, found `{line.strip()}`") from error
    sizes = values[2:] if len(parts) == 5 else np.zeros(0)
    if label < 0 or not ((values >= -0.5) & (values <= 1.5)).all() or not (sizes >= 0).all():
        raise ValueError(
            f"{where}: values must be relative to the image (0..1) and the class at least 0, found `{line.strip()}`"
        )
    if len(parts) == 5:
        cx, cy, w, h = values * [width, height, width, height]
        corners = np.array(
            [[cx - w / 2, cy - h / 2], [cx + w / 2, cy - h / 2], [cx + w / 2, cy + h / 2], [cx - w / 2, cy + h / 2]]
        )
        return YoloObject(number, label, corners, float(w * h), False)
    corners = values.reshape(4, 2) * [width, height]
    turns = _turns(corners)
    if not (turns >= 0).all() and not (turns <= 0).all():
        raise ValueError(f"{where}: the corners must go around a convex quadrilateral, found `{line.strip()}`")
    x, y = (corners - corners[0]).T
    return YoloObject(number, label, corners, abs(0.5 * float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum())), True)


def _turns(corners: np.ndarray) -> np.ndarray:
    """At each corner the cross product of the sides that meet there; slight ones (a corner moved by rounding) count as none."""
    sides = np.roll(corners, -1, axis=0) - corners
    ahead = np.roll(sides, -1, axis=0)
    cross = sides[:, 0] * ahead[:, 1] - sides[:, 1] * ahead[:, 0]
    return np.where(np.abs(cross) <= 1e-3 * np.abs(cross).max(), 0.0, cross)
