"""What XIR's shape rules read: shapes, and where a shape is itself data the values of a constant or of a `shape` operator."""

from __future__ import annotations

import math

import numpy as np

from npuforge.compile.xir.model import XOp

Shape = list[int]
Inputs = dict[str, list[XOp]]  # the producers of each argument
_READABLE = {("INT", 8), ("INT", 16), ("INT", 32), ("INT", 64), ("FLOAT", 32), ("FLOAT", 64)}
_READABLE |= {("U" + kind, width) for kind, width in _READABLE if kind == "INT"}


class ShapeError(ValueError):
    """XIR refuses the operator's inputs or attributes. One line: what, expected, found."""


def elements(shape: Shape) -> int:
    """Number of elements as XIR counts them: none in a tensor without axes."""
    return math.prod(shape) if shape else 0


def known_values(op: XOp) -> list[int] | None:
    """The integers that XIR knows of an op's output while it infers shapes: `data` of a constant, else `shape_info` of its tensor. None: neither."""
    data = op.get("data")
    if data is None:
        info = op.tensor.attrs.get("shape_info")
        return None if info is None else [int(v) for v in info.value]
    tensor = op.tensor
    if (tensor.data_type, tensor.bit_width) not in _READABLE:
        raise ShapeError(f"the values of {op.label} are {tensor.dtype}; expected INT, UINT or FLOAT of whole bytes")
    count = elements(tensor.shape)
    if not isinstance(data, bytes) or len(data) != count * tensor.bit_width // 8:
        raise ShapeError(f"the values of {op.label} are not in the file; expected {count} of {tensor.dtype}")
    letter = {"INT": "i", "UINT": "u", "FLOAT": "f"}[tensor.data_type]
    values = np.frombuffer(data, f"<{letter}{tensor.bit_width // 8}")
    if not np.all(np.abs(values.astype(np.float64)) < 2.0**31):
        raise ShapeError(f"a value of {op.label} is no 32-bit integer")
    return [int(v) for v in values]


def needed_values(op: XOp) -> list[int]:
    """The same; ShapeError where XIR knows nothing."""
    values = known_values(op)
    if values is None:
        raise ShapeError(
            f"the values of {op.label} are not known; expected a constant or the output of a shape operator"
        )
    return values
