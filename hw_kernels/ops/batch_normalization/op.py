"""BatchNormalization (inference) on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import register


@register
class BatchNormalization(HostOp):
    """y = scale * (x - mean) / sqrt(variance + epsilon) + bias per channel"""

    names = ("BatchNormalization",)
    onnx = ("BatchNormalization",)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x = inputs[0]
        scale, bias, mean, variance = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in inputs[1:5])
        return [scale * (x - mean) / np.sqrt(variance + node.attrs.get("epsilon", 1e-5)) + bias]
