"""Oriented boxes of parts: the smallest rectangle around a slender part, the upright square around the circle of a round one.

So the truth is a function of the picture that can be learnt: a bolt or a spring turned by 180° has the same rectangle. Washers, bearings and gears
have no direction. A hex nut has three equally small rectangles, 60° apart; whichever is chosen, the choice jumps somewhere, so it counts as round.
"""

from __future__ import annotations

import numpy as np

from npuforge.scripts.scenes.parts import CLASS_NAMES
from npuforge.scripts.scenes.scene import Annotation

# After how many degrees a part has the same box again; 0: at any angle.
PERIODS = {"hex_nut": 0.0, "bolt": 180.0, "washer": 0.0, "gear": 0.0, "bearing": 0.0, "spring": 180.0}


def least_angle(class_id: int, degrees: float) -> float:
    """The angle in [-period/2, period/2) degrees that stands for `degrees`; 0 for round parts."""
    period = PERIODS[CLASS_NAMES[class_id]]
    return (degrees + period / 2) % period - period / 2 if period else 0.0


def oriented_box(part: Annotation) -> tuple[float, float, float, float, float]:
    """Centre x, y, width, height in pixels, angle of the width in degrees, clockwise in the image, in [-90, 90)."""
    x, y, width, height = part.rotated_box
    if not PERIODS[CLASS_NAMES[part.class_id]]:
        width = height = max(width, height)
    return x, y, width, height, least_angle(part.class_id, part.angle)


def corners(box: tuple[float, float, float, float, float]) -> np.ndarray:
    """float64 [4, 2]: the corners of an `oriented_box` in pixels, clockwise in the image from the one at (-width, -height)."""
    x, y, width, height, degrees = box
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    across, down = 0.5 * width * np.array([cosine, sine]), 0.5 * height * np.array([-sine, cosine])
    return np.array([x, y]) + np.array([-across - down, across - down, across + down, down - across])
