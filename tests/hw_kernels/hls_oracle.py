"""What the engines must compute, written from DESIGN section 4 in Python integers and int64. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


def shift_round(value: int, shift: int) -> int:
    """(value + 2^(S-1)) >> S, the rounding term being 0 where S = 0."""
    return (value + (1 << (shift - 1) if shift else 0)) >> shift


def clip(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


@dataclass
class Stage:
    """Output stage with per-lane lists; `kind` 0 pwl, 1 table, 2 direct."""

    kind: int
    m0: list[int]
    m1: list[int]
    s0: list[int]
    z: list[int]
    a: list[int]
    b: list[int]
    fraction: int = 0
    table: list[int] = field(default_factory=list)
    low_is_input: bool = False
    high_is_input: bool = False
    low: int = 0
    high: int = 0

    def one(self, acc: int, lane: int) -> int:
        """One accumulator to one int8."""
        m0, m1, s0, z, a, b = (values[lane] for values in (self.m0, self.m1, self.s0, self.z, self.a, self.b))
        if self.kind == 0:
            return clip(shift_round(acc * (m1 if acc < 0 else m0), s0) + z, a, b)
        if self.kind == 2:
            return clip(shift_round(acc, s0) + z, a, b)
        t = clip(shift_round(acc * m0, s0), -(1 << 15), (1 << 15) - 1)
        f = self.fraction
        if t < -8 * 2**f:
            u = t if self.low_is_input else self.low
        elif t >= 8 * 2**f:
            u = t if self.high_is_input else self.high
        else:
            k, r = t >> (f - 4), t & (2 ** (f - 4) - 1)
            left, right = self.table[k + 128], self.table[k + 129]
            u = left + (((right - left) * r + 2 ** (f - 5)) >> (f - 4))
        return clip(shift_round(u * m1, a) + z, -128, 127)

    def apply(self, acc: np.ndarray) -> np.ndarray:
        """[..., lanes] int64 to int8."""
        flat = acc.reshape(-1, acc.shape[-1])
        out = [[self.one(int(value), lane) for lane, value in enumerate(row)] for row in flat]
        return np.array(out, np.int8).reshape(acc.shape)


@dataclass
class Window:
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]  # top, left

    def taps(self, y: int, x: int) -> list[tuple[int, int, int, int]]:
        """(ky, kx, row, column) of every tap of output pixel (y, x)."""
        return [
            (
                ky,
                kx,
                y * self.stride[0] - self.pad[0] + ky * self.dilation[0],
                x * self.stride[1] - self.pad[1] + kx * self.dilation[1],
            )
            for ky in range(self.kernel[0])
            for kx in range(self.kernel[1])
        ]


def _pixel(q: np.ndarray, row: int, column: int, border: np.ndarray) -> np.ndarray:
    h, w, _ = q.shape
    return (q[row, column] if 0 <= row < h and 0 <= column < w else border).astype(np.int64)


def _wrap(acc: np.ndarray) -> np.ndarray:
    """int32 accumulators; the tests stay inside except where they mean to leave."""
    return (acc + 2**31) % 2**32 - 2**31


def conv(
    q: np.ndarray, w: np.ndarray, bias: np.ndarray, border: np.ndarray, window: Window, size: tuple[int, int]
) -> np.ndarray:
    """acc [oh, ow, O] of q [h, w, I], w [O, kh, kw, I]."""
    acc = np.zeros((*size, w.shape[0]), np.int64)
    for y in range(size[0]):
        for x in range(size[1]):
            acc[y, x] = bias
            for ky, kx, row, column in window.taps(y, x):
                acc[y, x] += w[:, ky, kx].astype(np.int64) @ _pixel(q, row, column, border)
    return _wrap(acc)


def depthwise(
    q: np.ndarray, w: np.ndarray, bias: np.ndarray, border: np.ndarray, window: Window, size: tuple[int, int]
) -> np.ndarray:
    """acc [oh, ow, C] of q [h, w, C], w [kh, kw, C]."""
    acc = np.zeros((*size, q.shape[2]), np.int64)
    for y in range(size[0]):
        for x in range(size[1]):
            acc[y, x] = bias
            for ky, kx, row, column in window.taps(y, x):
                acc[y, x] += w[ky, kx].astype(np.int64) * _pixel(q, row, column, border)
    return _wrap(acc)


def max_pool(q: np.ndarray, window: Window, size: tuple[int, int]) -> np.ndarray:
    border = np.full(q.shape[2], -128, np.int8)
    out = np.zeros((*size, q.shape[2]), np.int8)
    for y in range(size[0]):
        for x in range(size[1]):
            out[y, x] = np.max([_pixel(q, row, column, border) for _, _, row, column in window.taps(y, x)], axis=0)
    return out


def average_pool(
    q: np.ndarray,
    window: Window,
    size: tuple[int, int],
    multiplier: Callable[[int], np.ndarray],
    shift: int,
    zero_in: np.ndarray,
    zero_out: np.ndarray,
) -> np.ndarray:
    """`multiplier(n)` gives the factors of every channel for n valid taps."""
    h, w, channels = q.shape
    out = np.zeros((*size, channels), np.int8)
    for y in range(size[0]):
        for x in range(size[1]):
            valid = [q[row, column] for _, _, row, column in window.taps(y, x) if 0 <= row < h and 0 <= column < w]
            n = len(valid)
            for c in range(channels):
                total = sum(int(pixel[c]) for pixel in valid) - n * int(zero_in[c])
                product = total * int(multiplier(n)[c]) if n else 0
                out[y, x, c] = clip(shift_round(product, shift) + int(zero_out[c]), -128, 127)
    return out


def eltwise(
    kind: int, a: np.ndarray, b: np.ndarray, ma: list[int], mb: list[int], za: list[int], zb: list[int], k: list[int]
) -> np.ndarray:
    """d of DESIGN section 4; a and b [h, w, C], already broadcast. Kinds 0 add, 1 sub, 2 mul, 3 affine."""
    left = a.astype(np.int64) - np.array(za, np.int64)
    right = b.astype(np.int64) - np.array(zb, np.int64)
    m_a, m_b = np.array(ma, np.int64), np.array(mb, np.int64)
    return [m_a * left + m_b * right, m_a * left - m_b * right, left * right * m_a, m_a * left + np.array(k, np.int64)][
        kind
    ]


def resize(q: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """rows, columns: [n, 3] of i0, i1, w1."""
    out = np.zeros((len(rows), len(columns), q.shape[2]), np.int8)
    for y, (i0, i1, wy) in enumerate(rows.tolist()):
        for x, (j0, j1, wx) in enumerate(columns.tolist()):
            total = sum(
                weight * q[i, j].astype(np.int64)
                for i, j, weight in (
                    (i0, j0, (256 - wy) * (256 - wx)),
                    (i0, j1, (256 - wy) * wx),
                    (i1, j0, wy * (256 - wx)),
                    (i1, j1, wy * wx),
                )
            )
            out[y, x] = (total + 2**15) >> 16
    return out
