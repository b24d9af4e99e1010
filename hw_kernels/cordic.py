"""Sine, cosine and the angle of a point in integers (CORDIC, Volder 1959): numpy, the normative bits of hls/cordic.hpp.

Angles are int16 with a whole turn as 2^16. Largest errors, exhaustively over all angles (tests/hw_kernels/test_operator_kernels.py): sine and cosine
2 units of 2^-14; the angle 2 units of 2^-16 turns for points farther than 2^8 from the origin.
"""

from __future__ import annotations

import math

import numpy as np

STEPS = 16
ANGLES = [round(math.atan(2.0**-i) / (2 * math.pi) * 2**32) for i in range(STEPS)]
SCALE = round(2**30 / math.prod(math.sqrt(1 + 4.0**-i) for i in range(STEPS)))


def rotate(angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sine and cosine (int16, 14 fraction bits) of int16 angles."""
    wide = np.asarray(angle, np.int64)
    turned = (wide > 16384) | (wide < -16384)
    rest = np.where(turned, np.where(wide < 0, wide + 32768, wide - 32768), wide) * 65536
    x, y = np.full_like(rest, SCALE), np.zeros_like(rest)
    for i, step in enumerate(ANGLES):
        up = rest >= 0
        x, y = np.where(up, x - (y >> i), x + (y >> i)), np.where(up, y + (x >> i), y - (x >> i))
        rest = np.where(up, rest - step, rest + step)
    sine, cosine = (y + (1 << 15)) >> 16, (x + (1 << 15)) >> 16
    sign = np.where(turned, -1, 1)
    return (sine * sign).astype(np.int16), (cosine * sign).astype(np.int16)


def angle_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The angle (int16) of int16 points, 0 for the origin."""
    px, py = np.asarray(x, np.int64), np.asarray(y, np.int64)
    origin, turned = (px == 0) & (py == 0), px < 0
    u, v = np.where(turned, -px, px) * 8192, np.where(turned, -py, py) * 8192
    total = np.zeros_like(u)
    for i, step in enumerate(ANGLES):
        down = v >= 0
        u, v = np.where(down, u + (v >> i), u - (v >> i)), np.where(down, v - (u >> i), v + (u >> i))
        total = np.where(down, total + step, total - step)
    rounded = (total + (1 << 15)) >> 16
    turn = np.where(turned, rounded + 32768, rounded)
    return np.where(origin, 0, (turn + 32768) % 65536 - 32768).astype(np.int16)
