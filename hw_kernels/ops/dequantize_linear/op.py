"""DequantizeLinear on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import TAKEN_OVER, Deployed, optional, spread
from npuforge.hw_kernels.operator import Case, register


@register
class DequantizeLinear(Deployed):
    """y = (x - zero point) * scale; one scale, one per channel (axis), or one per block"""

    names = ("DequantizeLinear",)
    onnx = ("DequantizeLinear",)
    placed_as = TAKEN_OVER
    cases = (
        Case(
            [(2, 3)],
            constants=[(), ()],
            values=lambda random: [
                random.integers(0, 256, (2, 3)).astype(np.uint8),
                np.array(0.5),
                np.array(128, np.uint8),
            ],
        ),
        Case(
            [(2, 3)],
            {"axis": 1},
            [(3,)],
            values=lambda random: [random.integers(-9999, 9999, (2, 3)).astype(np.int32), random.uniform(0.1, 1, 3)],
        ),
    )

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [shapes[0]]

    def output_types(self, node: Node, types: list[str]) -> list[str]:
        return ["float32"]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        zero = optional(inputs, 2)
        offset = 0.0 if zero is None else spread(node, inputs[0], zero).astype(np.float64)
        return [(np.asarray(inputs[0], np.float64) - offset) * spread(node, inputs[0], inputs[1])]
