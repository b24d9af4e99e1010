"""Owns the ONNX form of a call whose attributes are those of the kit's graph: what newer operator sets have as inputs becomes inputs.

A reference reads `Clip(min=0.0)`, `ReduceMean(axes=[2, 3])`, `Resize(sizes=..., scales=...)` as attributes; a file of an operator set from 18 on must not
hold them so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from npuforge.compile.ir.errors import UnsupportedError

OPSET = 18  # the oldest that current exporters write; what it has as inputs stays so
_OTHER_NAMES = {("Pad", "value"): "constant_value", ("TopK", "k"): "K"}


def onnx_form(
    name: str, inputs: int, attributes: dict[str, Any], shape: tuple[int, ...], dtype: str
) -> tuple[dict[str, Any], dict[int, np.ndarray]]:
    """Attributes that stay, and further inputs by position (those between are left empty). `shape` and `dtype` are the first input's.

    UnsupportedError: ONNX has no operator of that name, or no place for an attribute.
    """
    if "::" in name:
        return attributes, {}
    schema = _schema(name)
    stay = {k: v for k, v in attributes.items() if k in schema.attributes}
    moved = {k: v for k, v in attributes.items() if k not in stay and v is not None}
    if name == "Resize":
        return stay, _resize_inputs(moved, shape)
    positions = {given.name: i for i, given in enumerate(schema.inputs)}
    added = {}
    for key, value in moved.items():
        position = positions.get(_OTHER_NAMES.get((name, key), key))
        if position is None or position < inputs:
            raise UnsupportedError(
                f"operator {name}: ONNX has no attribute {key} from operator set {OPSET} on and no input for it; leave it out of what is exported"
            )
        like_x = schema.inputs[position].type_str == schema.inputs[0].type_str
        array = np.asarray(value, dtype if like_x else np.int64)
        added[position] = np.atleast_1d(array) if not like_x else array
    return stay, added


def _schema(name: str) -> Any:
    """Of operator set 18, or the first that has the operator."""
    for opset in range(OPSET, onnx.defs.onnx_opset_version() + 1):
        if onnx.defs.has(name, max_inclusive_version=opset):
            return onnx.defs.get_schema(name, opset)
    raise UnsupportedError(
        f"operator {name} is a form of the kit's graph that ONNX does not have; call what it stands for (Affine: Mul and Add, ChannelGather: Gather)"
    )


def _resize_inputs(moved: dict[str, Any], shape: tuple[int, ...]) -> dict[int, np.ndarray]:
    """`scales` as input 2 where they give the sizes, else `sizes` as input 3 where those give the scales, as ONNX computes one from the other."""
    sizes, scales = [int(s) for s in moved["sizes"]], [float(s) for s in moved["scales"]]
    pairs = list(zip(shape[2:], scales, strict=True))
    wide = [math.floor(size * float(np.float32(scale))) for size, scale in pairs]  # as ONNX's inference has it
    if wide == sizes == [math.floor(np.float32(size) * np.float32(scale)) for size, scale in pairs]:  # as ONNX Runtime
        return {2: np.array([1.0, 1.0, *scales], np.float32)}
    if np.allclose(scales, [out / size for out, size in zip(sizes, shape[2:], strict=True)], rtol=1e-6, atol=0):
        return {3: np.array([*shape[:2], *sizes], np.int64)}
    raise UnsupportedError(
        f"operator Resize: sizes={sizes} and scales={scales} of a map {list(shape[2:])} contradict each other; "
        f"give scales={[out / size for out, size in zip(sizes, shape[2:], strict=True)]}"
    )
