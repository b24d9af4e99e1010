"""Outputs whose rows the network picks itself (NMS or a sort in the graph): which row of one column is which of another, before anything is measured.

Float network and device pick other rows, or the same in another order, where scores lie close together: row by row such outputs cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import HeadSpec
from npuforge.scripts.report.match import Matching, closest_pairs

NEAR = 0.1  # rows further apart than this, as a share of a column's range in the float network, are different rows
MOST_ROWS = 2000  # beyond, the distances of all pairs would not fit the memory


def picked_outputs(graph: Graph, head: HeadSpec) -> dict[str, bool]:
    """Outputs whose rows the graph picks → whether the head decodes them: those whose shapes only a run knows, and all that a head without NMS of its own reads."""
    roles = head.options.get("outputs", {}) if head.kind != "none" else {}
    named = {n for names in roles.values() for n in (names if isinstance(names, list) else [names])}
    found = {}
    for name in graph.outputs:
        read = head.kind != "none" and (name in named or not named)
        if min(graph.tensors[name].shape, default=0) < 0 or (read and head.kind == "detections"):
            found[name] = read
    return found


def row_axis(shape: tuple[int, ...]) -> int:
    """The axis along which rows lie: the first that only a run knows."""
    return next((axis for axis, extent in enumerate(shape) if extent < 0), 0)


def match_rows(reference: np.ndarray, found: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows along `axis` that are each other's, closest pairs first.

    Whole numbers pair with equal rows, real ones with rows that lie near in every column. Arrays that do not agree beside `axis` have no pairs.
    """
    a, b = _rows(reference, axis), _rows(found, axis)
    if a.shape[1] != b.shape[1] or not len(a) or not len(b) or max(len(a), len(b)) > MOST_ROWS:
        same = reference.shape == found.shape and np.array_equal(
            reference, found, equal_nan=reference.dtype.kind == "f"
        )
        return (np.arange(len(a)), np.arange(len(b))) if same else (np.arange(0), np.arange(0))
    if a.dtype.kind in "iub":
        return _equal_rows(a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    reach = np.ptp(a, axis=0) if len(a) > 1 else np.abs(a[0])
    scale = np.where(reach > 0, reach, np.maximum(np.abs(a[0]), 1.0))
    distance = np.zeros((len(a), len(b)))
    for column in range(a.shape[1]):
        with np.errstate(invalid="ignore"):
            apart = np.abs(a[:, None, column] - b[None, :, column]) / scale[column]
        np.maximum(distance, np.where(np.isfinite(apart), apart, np.inf), out=distance)
    return _indices(sorted(closest_pairs(distance, distance <= NEAR)))


def _rows(value: np.ndarray, axis: int) -> np.ndarray:
    """[rows, values of one]."""
    if value.ndim == 0:
        return value.reshape(1, 1)
    rows = np.moveaxis(value, axis, 0)
    return rows.reshape(len(rows), int(np.prod(rows.shape[1:])))


def _equal_rows(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    places: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(b.tolist()):
        places.setdefault(tuple(row), []).append(index)
    pairs = [(i, places[key].pop(0)) for i, key in enumerate(map(tuple, a.tolist())) if places.get(key)]
    return _indices(pairs)


def _indices(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs as two int64 arrays."""
    first, second = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(first, np.int64), np.array(second, np.int64)


def matched_values(
    columns: Mapping[str, np.ndarray], matching: Matching, names: tuple[str, str]
) -> tuple[np.ndarray, np.ndarray]:
    """Box and score of the detections that both columns `names` found: [pairs, 5] of each."""
    first, second = (columns[name][:, :5] for name in names)
    return first[[p.reference for p in matching.pairs]], second[[p.other for p in matching.pairs]]
