"""QuantizeLinear on the CPU partition: to int8 or uint8."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import TAKEN_OVER, Deployed, optional, spread
from npuforge.hw_kernels.operator import Case, register


@register
class QuantizeLinear(Deployed):
    """y = saturate(round_half_even(x / scale) + zero point); one scale, one per channel (axis), or one per block"""

    names = ("QuantizeLinear",)
    onnx = ("QuantizeLinear",)
    placed_as = TAKEN_OVER
    cases = (
        Case([(2, 3)], constants=[()], values=lambda random: [random.normal(0, 100, (2, 3)), np.array(0.5)]),
        Case(
            [(2, 3, 4)],
            {"axis": 1},
            [(3,), (3,)],
            values=lambda random: [
                random.normal(0, 10, (2, 3, 4)),
                random.uniform(0.1, 1, 3),
                np.array([1, -5, 0], np.int8),
            ],
        ),
    )

    def host_types_of(self, node: Node, position: int) -> tuple[str, ...]:
        return ("float32",) if position < 2 else ()  # data and scale

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [shapes[0]]

    def output_types(self, node: Node, types: list[str]) -> list[str]:
        return [types[2] if len(types) > 2 else "int8" if node.attrs.get("output_dtype", 2) == 3 else "uint8"]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        scale, zero = spread(node, inputs[0], inputs[1]), optional(inputs, 2)
        dtype = (
            np.dtype(np.int8 if node.attrs.get("output_dtype", 2) == 3 else np.uint8) if zero is None else zero.dtype
        )
        offset = 0 if zero is None else spread(node, inputs[0], zero).astype(np.float64)
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return [np.clip(np.nan_to_num(np.rint(inputs[0] / scale) + offset), low, high).astype(dtype)]
