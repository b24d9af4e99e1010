"""Outputs whose number of rows only the data decide (NonMaxSuppression) in arrays with room for the most there can be, as runners on VART give them.

What is left over holds `filling(tensor)`: `board_runtime/include/npuforge/open_rows.hpp`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuforge.compile.xir.builder import BOOL
from npuforge.compile.xir.model import XTensor

OPEN = -1  # a dimension that the data decide
NO_TRUTH = 255
_INNER: dict[str, np.ndarray] = {  # where something reads on: what no result holds
    "float32": np.array(0xFFF04E46, np.uint32).view(np.float32),
    "int64": np.array(-(2**62 + 2**40), np.int64),
    "int32": np.array(-(2**30 + 2**8), np.int32),
}


def filling(tensor: XTensor) -> int:
    """What such a tensor holds where no rows are: -1; as `bool` 255, as another `uint8` 0."""
    if BOOL in tensor.attrs:
        return NO_TRUTH
    return 0 if tensor.dtype == "UINT8" else -1


def shown(values: np.ndarray) -> np.ndarray:
    """The rows that another child left, with -1 instead of the filling that they have between children."""
    inner = _INNER.get(values.dtype.name)
    if inner is None:
        return values
    word = np.dtype(f"u{values.itemsize}")
    marked = np.ascontiguousarray(values).view(word) == inner.view(word)
    return np.where(marked, values.dtype.type(-1), values)


def used_part(values: np.ndarray, shape: Sequence[int], filling: int = -1) -> np.ndarray:
    """The rows that are there, as a view: along every open axis of `shape` what comes before the last slice that holds more than the filling.

    A row that is -1 throughout counts as none at the end; no box, score or index is.
    """
    used = values != filling
    for axis in (a for a, size in enumerate(shape) if size == OPEN):
        others = tuple(a for a in range(values.ndim) if a != axis)
        (found,) = np.nonzero(used.any(axis=others))
        end = int(found[-1]) + 1 if len(found) else 0
        values = values[(slice(None),) * axis + (slice(end),)]
    return values
