"""Cast on the CPU partition; floats truncate, out-of-range values saturate."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Linear
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, register

_TYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 11: "float64"}


@register
class Cast(Linear, HostOp):
    """the same values in another number type (`to`: ONNX type number)"""

    names = ("Cast",)
    onnx = ("Cast",)
    cases = (Case([(2, 3)], {"to": 1}),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        target = np.dtype(_TYPES[int(node.attrs["to"])])
        if target.kind in "iu" and np.asarray(inputs[0]).dtype.kind == "f":
            info = np.iinfo(target)
            low, high = float(info.min), np.nextafter(float(info.max), 0.0) if info.bits == 64 else float(info.max)
            return [np.clip(np.trunc(np.nan_to_num(inputs[0])), low, high).astype(target)]
        return [np.asarray(inputs[0]).astype(np.float64 if target.kind == "f" else target)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Between float types the identity (in float64); integers carry none."""
        return [output_gradients[0] if np.dtype(_TYPES[int(node.attrs["to"])]).kind == "f" else None]
