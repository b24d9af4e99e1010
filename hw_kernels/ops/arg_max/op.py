"""ArgMax and ArgMin on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp, without_nan
from npuforge.hw_kernels.operator import Case, register


class Extreme(HostOp):
    """Position of the first (select_last_index: last) extreme along `axis`."""

    no_gradient = "positions are constant between jumps"
    cases = (Case([(1, 3, 4)], {"axis": 1, "keepdims": 0}), Case([(5, 2)], {"select_last_index": 1}))

    def key(self, x: np.ndarray) -> np.ndarray:
        """What is largest at the extreme."""
        raise NotImplementedError

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        key, axis = self.key(inputs[0]), int(node.attrs.get("axis", 0))
        key = without_nan(key, axis)
        if node.attrs.get("select_last_index", 0):
            found = key.shape[axis] - 1 - np.argmax(np.flip(key, axis), axis)
        else:
            found = np.argmax(key, axis)
        return [np.expand_dims(found, axis) if node.attrs.get("keepdims", 1) else found]


@register
class ArgMax(Extreme):
    """y = position of the largest along `axis`"""

    names = ("ArgMax",)
    onnx = ("ArgMax",)

    def key(self, x: np.ndarray) -> np.ndarray:
        return x


@register
class ArgMin(Extreme):
    """y = position of the smallest along `axis`"""

    names = ("ArgMin",)
    onnx = ("ArgMin",)

    def key(self, x: np.ndarray) -> np.ndarray:
        return -x
