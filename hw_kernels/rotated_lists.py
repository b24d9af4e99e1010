"""Rotated boxes as the NPU holds them, int8 or bf16: overlaps of pairs in Python's own integers, the normative bits of hls/rotated_lists.hpp, and what
they may be off."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from npuforge.hw_kernels.arithmetic import SHIFT_MAX
from npuforge.hw_kernels.edges import Edge, entering, fixed_of_bf16, fixed_of_int8
from npuforge.hw_kernels.kernel_data import Stored
from npuforge.hw_kernels.rotated_fixed import overlap
from npuforge.hw_kernels.turns import units_of_turn, whole_turns

PAIR_BITS, CENTRE_MAX, FAR = 14, 2**30, 32767
CENTRE_SHIFT_MAX = 32
TURN = 2 * math.pi / 2**16
Pair = Callable[[int, int], int]


def side_bits(lists: list[Stored]) -> int:
    """Fraction bits of int8 sides: the most with which a step fits the multiplier."""
    largest = max(float(x.quant.scale[2:4].max()) for x in lists)
    return int(np.clip(np.floor(np.log2(32767 / largest)), -SHIFT_MAX, SHIFT_MAX))


def box_edge(x: Stored, bits: int, shift: int) -> Edge:
    """Sides with `bits` fraction bits, centres with bits - shift, the angle with a turn as 2^16. A step beyond the multiplier is farther than any side."""
    scale = x.quant.scale.astype(np.float64)
    units = np.concatenate([np.ldexp(scale[:2], bits - shift), np.ldexp(scale[2:4], bits), [units_of_turn(x.quant, 4)]])
    return entering(np.clip(units, -32767, 32767), x.quant.zero_point, 0)


def centre_shift(lists: list[Stored], bits: int) -> int:
    """By how much int8 centres are coarser than sides, so that their steps fit the multiplier."""
    largest = max(float(x.quant.scale[:2].max()) for x in lists)
    return int(np.clip(np.ceil(np.log2(np.ldexp(largest, bits) / 32767)), 0, CENTRE_SHIFT_MAX))


def _moved(distance: int, left: int) -> int:  # as pair_distance
    if left > 0:
        return min(max(min(max(distance, -FAR), FAR) << left, -FAR), FAR)
    distance = (distance + (1 << -left >> 1)) >> -left
    return min(max(distance, -FAR), FAR)


def int8_pair(a: list[int], b: list[int], shift: int) -> int:
    """Overlap with 14 fraction bits of boxes as `box_edge` leaves them."""
    longest = max(abs(v) for v in (*a[2:4], *b[2:4]))
    if longest == 0:
        return 0
    left = PAIR_BITS - longest.bit_length()
    angles = [(v + 32768) % 65536 - 32768 for v in (a[4], b[4])]
    centre = [_moved((q - p) << shift, left) for p, q in zip(a[:2], b[:2], strict=True)]
    sides = [_moved(v, left) for v in (*a[2:4], *b[2:4])]
    return overlap([0, 0, *sides[:2], angles[0]], [*centre, *sides[2:], angles[1]])


@lru_cache(maxsize=2**12)
def _turn(angle: int) -> int:
    """Of one bf16 angle."""
    return int(whole_turns(np.array(angle, np.uint16)))


def bf16_pair(a: np.ndarray, b: np.ndarray) -> int:
    """The same of bf16 boxes; 0 where a value is NaN or infinite."""
    exponents = (np.stack([a, b]).astype(np.int64) >> 7) & 0xFF
    exponent = int(exponents[:, 2:4].max())
    if (exponents == 255).any() or exponent == 0:
        return 0
    bits = 126 + PAIR_BITS - exponent
    p, q = fixed_of_bf16(np.stack([a[:2], b[:2]]), bits, CENTRE_MAX)
    beyond = (p == q) & (np.abs(p) == CENTRE_MAX) & (a[:2] != b[:2])
    centre = np.where(beyond, FAR, np.clip(q - p, -FAR, FAR))
    sides = fixed_of_bf16(np.stack([a[2:4], b[2:4]]), bits, 2**PAIR_BITS).tolist()
    angles = [_turn(int(v[4])) for v in (a, b)]
    return overlap([0, 0, *sides[0], angles[0]], [*centre.tolist(), *sides[1], angles[1]])


def pairs(a: Stored, b: Stored) -> tuple[Pair, list[Any], list[Any], np.ndarray]:
    """The overlap of box i of a and j of b; what the kernel takes for each list beside the boxes; what the overlaps may be off, [A, B]."""
    if a.quant.dtype == "bf16":
        return lambda i, j: bf16_pair(a.bits[i], b.bits[j]), [], [], overlap_bound(a.real, b.real)
    bits = side_bits([a, b])
    shift = centre_shift([a, b], bits)
    edges = [box_edge(x, bits, shift) for x in (a, b)]
    rows = [fixed_of_int8(x.bits, edge).tolist() for x, edge in zip((a, b), edges, strict=True)]
    off = [_edge_errors(x, edge, bits, shift) for x, edge in zip((a, b), edges, strict=True)]
    arguments = [[edge.records, shift] for edge in edges]
    bound = overlap_bound(a.real, b.real, off[0], off[1])
    return lambda i, j: int8_pair(rows[0][i], rows[1][j], shift), arguments[0], arguments[1], bound


def _edge_errors(x: Stored, edge: Edge, bits: int, shift: int) -> np.ndarray:
    """[N, 5]: by how much int8 boxes are off behind the edge, real units and radians."""
    unit = np.array([2.0 ** (shift - bits)] * 2 + [2.0**-bits] * 2 + [TURN])
    steps = np.abs(x.bits.astype(np.int64) - x.quant.zero_point)
    found = steps * edge.multiplier / 2.0**edge.shift
    wanted = steps * x.quant.scale / unit
    turned = wanted - found
    turned[:, 4] -= np.round(turned[:, 4] / 65536) * 65536
    beyond = x.quant.scale[:2] / unit[:2] > 32767  # such steps are far in either form
    turned[:, :2] = np.where(beyond, 0.0, turned[:, :2])
    return (np.abs(turned) + 0.5) * unit


def overlap_bound(a: np.ndarray, b: np.ndarray, off_a: Any = None, off_b: Any = None) -> np.ndarray:
    """What overlaps [A, B] of boxes [A, 5], [B, 5] may be off: r / (1 - r) and a unit of 2^-14, r = (2 C + Da + Db) / max(areas), 1 at most. C is by how much
    the common area changes (Steiner): d Pmin + pi d^2, d what either outline lies off, Pmin the shorter one; Da, Db by how much the areas do, as their sides
    are off. 0 where a value is not finite.

    d: a unit of the pair (the longest side is 2^13 .. 2^14) for each axis of a centre, half of one for each side, an eighth by rounded corners; half the
    diagonal times CORDIC's two units of 2^-14 in sine and cosine and half a unit of the angle; in int8 also what the edges lose.
    """
    a, b = a[:, None], b[None]
    off_a, off_b = (np.zeros(x.shape) if off is None else off for x, off in ((a[:, 0], off_a), (b[0], off_b)))
    off_a, off_b = off_a[:, None], off_b[None]
    with np.errstate(all="ignore"):
        longest = np.maximum(np.abs(a[..., 2:4]).max(-1), np.abs(b[..., 2:4]).max(-1))
        unit = np.ldexp(1.0, np.frexp(longest)[1] - PAIR_BITS)
        centre = np.hypot(*(unit + off_a[..., axis] + off_b[..., axis] for axis in (0, 1)))
        outlines, moved, areas, grown = [], [], [], []
        for x, off, of_centre in ((a, off_a, 0.0), (b, off_b, centre)):
            width, height = np.abs(x[..., 2]), np.abs(x[..., 3])
            of_width, of_height = (off[..., side] + unit / 2 for side in (2, 3))
            turned = math.sqrt(2) * 2.0**-13 + TURN / 2 + off[..., 4]
            moved.append(
                np.hypot(of_width, of_height) / 2 + np.hypot(width, height) / 2 * turned + unit / 8 + of_centre
            )
            outlines.append(2 * (width + height))
            areas.append(width * height)
            grown.append(width * of_height + height * of_width + of_width * of_height)
        d = np.maximum(*moved)
        r = (2 * (d * np.minimum(*outlines) + math.pi * d * d) + grown[0] + grown[1]) / np.maximum(*areas)
        bound = r / (1 - r) + 2.0**-14
    finite = np.isfinite(a).all(-1) & np.isfinite(b).all(-1)
    return np.where(finite, np.where((r < 0.5) & (bound < 1), bound, 1.0), 0.0)
