"""Slice on the CPU partition: starts, ends, axes, steps as attributes (opset 9) or inputs (opset 10 on)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.gradients import Mover
from npuforge.hw_kernels.host import HostOp, integers
from npuforge.hw_kernels.operator import Case, register


@register
class Slice(Mover, HostOp):
    """elements start, start + step, ... before end along each axis named"""

    names = ("Slice",)
    onnx = ("Slice",)
    shape_from_values = True
    cases = (
        Case([(1, 6, 5)], {"starts": [1, -3], "ends": [5, 99], "axes": [1, 2]}),
        Case(
            [(6,)],
            constants=[(1,)] * 4,
            values=lambda r: [r.normal(size=6), *(np.array([i]) for i in (-1, -99, 0, -2))],
            why="backwards",
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        starts = integers(node, inputs, "starts", 1) or []
        ends = integers(node, inputs, "ends", 2) or []
        axes = integers(node, inputs, "axes", 3) or list(range(len(starts)))
        steps = integers(node, inputs, "steps", 4) or [1] * len(starts)
        index = [slice(None)] * np.ndim(inputs[0])
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            size = np.shape(inputs[0])[axis]
            first, stop = (v + size if v < 0 else v for v in (start, end))
            if step > 0:
                index[axis] = slice(min(max(first, 0), size), min(max(stop, 0), size), step)
            else:  # -1, before the first element, has no number in Python's slices
                stop = min(max(stop, -1), size - 1)
                index[axis] = slice(min(max(first, 0), size - 1), None if stop < 0 else stop, step)
        return [inputs[0][tuple(index)]]
