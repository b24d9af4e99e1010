"""The attributes of a YoloDecode node, checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node


@dataclass(frozen=True)
class Attributes:
    """The node's attributes, checked. anchors: [scale, anchor, (width, height)]."""

    anchors: np.ndarray
    strides: tuple[int, ...]
    num_classes: int
    score_threshold: float = 0.0

    @staticmethod
    def of(node: Node, scales: int) -> Attributes:
        """ModelError names the node and the attribute that does not fit `scales` input maps."""
        for name in ("anchors", "strides", "num_classes"):
            if name not in node.attrs:
                raise ModelError(f"node {node.name}: YoloDecode needs the attribute {name}")
        strides = tuple(int(s) for s in node.attrs["strides"])
        if scales == 0 or len(strides) != scales or min(strides) <= 0:
            raise ModelError(
                f"node {node.name}: YoloDecode has {scales} inputs and strides {list(strides)}; expected one positive stride per input"
            )
        anchors = np.asarray(node.attrs["anchors"], np.float64)
        if anchors.size == 0 or anchors.size % (2 * scales) or not (np.isfinite(anchors).all() and (anchors > 0).all()):
            raise ModelError(
                f"node {node.name}: YoloDecode has {anchors.size} anchor values; expected positive width, height pairs,"
                f" the same number for each of {scales} scales"
            )
        classes = int(node.attrs["num_classes"])
        if classes < 1:
            raise ModelError(f"node {node.name}: YoloDecode has num_classes {classes}; expected 1 or more")
        return Attributes(anchors.reshape(scales, -1, 2), strides, classes, score_threshold(node))


def score_threshold(node: Node) -> float:
    """The node's score threshold as float32 holds it; 0, also where it is absent, keeps every row. ModelError outside [0, 1]."""
    given = node.attrs.get("score_threshold", 0.0)
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not 0 <= given <= 1:
        raise ModelError(
            f"node {node.name}: YoloDecode has score_threshold {given!r}; expected a number from 0 to 1, since scores are probabilities"
            " (0, or no attribute, keeps every row)"
        )
    return float(np.float32(given))
