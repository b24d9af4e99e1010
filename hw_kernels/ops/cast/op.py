"""Cast and CastLike on the CPU partition; floats truncate, out-of-range values saturate."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Linear
from npuforge.hw_kernels.host import DROPPED, Deployed, HostOp
from npuforge.hw_kernels.operator import Case, Gradients, register

_TYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 11: "float64"}


def _converted(x: np.ndarray, target: np.dtype[Any]) -> np.ndarray:
    if target.kind in "iu" and x.dtype.kind == "f":
        info = np.iinfo(target)
        low, high = float(info.min), np.nextafter(float(info.max), 0.0) if info.bits == 64 else float(info.max)
        return np.clip(np.trunc(np.nan_to_num(x)), low, high).astype(target)
    return x.astype(np.float64 if target.kind == "f" else target)


@register
class Cast(Linear, HostOp):
    """the same values in another number type (`to`: ONNX type number)"""

    names = ("Cast",)
    onnx = ("Cast",)
    placed_as = DROPPED
    cases = (Case([(2, 3)], {"to": 1}),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [_converted(np.asarray(inputs[0]), np.dtype(_TYPES[int(node.attrs["to"])]))]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Between float types the identity (in float64); integers carry none."""
        return [output_gradients[0] if np.dtype(_TYPES[int(node.attrs["to"])]).kind == "f" else None]


@register
class CastLike(Deployed):
    """the values of the first input in the number type of the second"""

    names = ("CastLike",)
    onnx = ("CastLike",)
    cases = (Case([(2, 3), (1,)], values=lambda random: [random.normal(0, 3, (2, 3)), np.array([7], np.int32)]),)

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [shapes[0]]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        return [_converted(np.asarray(inputs[0]), np.asarray(inputs[1]).dtype)]
