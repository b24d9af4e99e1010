"""Matching the detections of two columns: which box became which, with IoU and score change."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuforge.hw_kernels.rotated import polygon_overlap


@dataclass
class Pair:
    """Row indices in both columns."""

    reference: int
    other: int
    iou: float
    score_change: float  # other - reference


@dataclass
class Matching:
    """Pairs by the reference's score, then what has no partner."""

    pairs: list[Pair] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)  # only in the reference
    gained: list[int] = field(default_factory=list)  # only in the other

    @property
    def mean_iou(self) -> float | None:
        """Over the pairs."""
        return sum(p.iou for p in self.pairs) / len(self.pairs) if self.pairs else None

    @property
    def largest_score_change(self) -> float | None:
        """The largest absolute score change over the pairs."""
        return max((abs(p.score_change) for p in self.pairs), default=None)


def iou_matrix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[len(a), len(b)] of intersection over union of corner boxes."""
    a, b = a[:, None, :4].astype(np.float64), b[None, :, :4].astype(np.float64)
    size = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    both = np.prod(np.maximum(size, 0.0), axis=-1)
    union = np.prod(a[..., 2:] - a[..., :2], axis=-1) + np.prod(b[..., 2:] - b[..., :2], axis=-1) - both
    return np.divide(both, union, out=np.zeros_like(both), where=union > 0)


def oriented_iou_matrix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[len(a), len(b)] of the corners' (values 6 to 13 of a row) intersection over union."""
    return np.array([[polygon_overlap(p, q) for q in _corners(b)] for p in _corners(a)]).reshape(len(a), len(b))


def _corners(rows: np.ndarray) -> np.ndarray:
    return rows[:, 6:14].astype(np.float64).reshape(-1, 4, 2)


def closest_pairs(distance: np.ndarray, allowed: np.ndarray) -> list[tuple[int, int]]:
    """Rows and columns of `distance` [R, C] that are each other's, closest `allowed` (bool [R, C]) pairs first; each in one pair at most."""
    free_rows, free_columns = (set(range(n)) for n in distance.shape)
    pairs = []
    found = np.argwhere(allowed)
    for row, column in found[np.argsort(distance[allowed], kind="stable")].tolist():
        if row in free_rows and column in free_columns:
            free_rows.remove(row)
            free_columns.remove(column)
            pairs.append((row, column))
    return pairs


def match(reference: np.ndarray, other: np.ndarray, min_iou: float = 0.5, oriented: bool = False) -> Matching:
    """Greedy, closest pairs first, within a class; pairs need an IoU (`oriented`: of the corners) of at least `min_iou`."""
    result = Matching()
    if len(reference) and len(other):
        iou = (oriented_iou_matrix if oriented else iou_matrix)(reference, other)
        iou[reference[:, 5][:, None] != other[:, 5][None, :]] = 0.0
        result.pairs = [
            Pair(r, o, float(iou[r, o]), float(other[o, 4]) - float(reference[r, 4]))
            for r, o in closest_pairs(-iou, (iou >= min_iou) & (iou > 0.0))
        ]
    result.pairs.sort(key=lambda p: -float(reference[p.reference, 4]))
    lost = set(range(len(reference))) - {p.reference for p in result.pairs}
    gained = set(range(len(other))) - {p.other for p in result.pairs}
    result.lost = sorted(lost, key=lambda i: -float(reference[i, 4]))
    result.gained = sorted(gained, key=lambda i: -float(other[i, 4]))
    return result
