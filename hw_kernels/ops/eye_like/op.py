"""EyeLike on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register

_TYPES = {1: "float64", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 11: "float64"}  # by ONNX type number


@register
class EyeLike(Deployed):
    """1 on diagonal k of a matrix of the input's shape, 0 elsewhere"""

    names = ("EyeLike",)
    onnx = ("EyeLike",)
    cases = (Case([(3, 5)], {"k": 1}), Case([(4, 2)], {"k": -1, "dtype": 6}))

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        rows, columns = np.shape(inputs[0])
        dtype = _TYPES[int(node.attrs["dtype"])] if "dtype" in node.attrs else np.asarray(inputs[0]).dtype
        return [np.eye(rows, columns, int(node.attrs.get("k", 0)), dtype)]
