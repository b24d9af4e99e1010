"""ReverseSequence on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class ReverseSequence(Deployed):
    """the first n steps of every sequence in reverse order"""

    names = ("ReverseSequence",)
    onnx = ("ReverseSequence",)
    shape_from_values = True
    cases = (Case([(4, 2, 3), (2,)], values=lambda random: [random.normal(size=(4, 2, 3)), np.array([3, 4])]),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        time, batch = int(node.attrs.get("time_axis", 0)), int(node.attrs.get("batch_axis", 1))
        y = np.array(inputs[0])
        steps = np.moveaxis(y, (time, batch), (0, 1))  # a view
        for b, length in enumerate(np.asarray(inputs[1])):
            steps[:length, b] = steps[:length, b][::-1].copy()
        return [y]
