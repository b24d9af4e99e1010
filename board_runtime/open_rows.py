"""Outputs whose number of rows only the data decide (NonMaxSuppression) in arrays with room for the most there can be, as runners on VART give them.

What is left over is -1, of `bool` and `uint8` tensors 0: `board_runtime/src/open_rows.hpp`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

OPEN = -1  # a dimension that the data decide


def used_part(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The rows that are there, as a view: along every open axis of `shape` what comes before the last slice that holds more than the filling.

    A row that is -1 throughout counts as none at the end; no box, score or index is.
    """
    filling = 0 if values.dtype.kind in "bu" else -1
    used = values != filling
    for axis in (a for a, size in enumerate(shape) if size == OPEN):
        others = tuple(a for a in range(values.ndim) if a != axis)
        (found,) = np.nonzero(used.any(axis=others))
        end = int(found[-1]) + 1 if len(found) else 0
        values = values[(slice(None),) * axis + (slice(end),)]
    return values
