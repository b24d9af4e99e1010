"""Finds concatenations that put unlike ranges under one scale (`pow2` mode shares one fix point): small values lose their resolution there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.quantization import QGraph
from npuforge.quant.regions import activation_inputs
from npuforge.quant.statistics import Statistics

FEW_STEPS = 16  # a part that spans fewer steps of the common scale has lost its resolution
UNLIKE = 16.0  # ranges further apart than this are unlike


@dataclass(frozen=True)
class MixedRange:
    """A concatenation under one scale: its widest part's range, and a part that is left with `steps` values."""

    node: str
    widest: float
    part: str
    range: float
    steps: int

    def __str__(self) -> str:
        return (
            f"node {self.node} joins ranges of {self.widest:.4g} and {self.range:.4g} ({self.part}) under one scale, which leaves the latter "
            f"{self.steps} steps; --mode fine keeps a scale per channel"
        )


def mixed_ranges(qgraph: QGraph, statistics: Statistics) -> list[MixedRange]:
    """Every part of every concatenation on the NPU that its common scale flattens, in the order of the nodes."""
    found: list[MixedRange] = []
    for node in qgraph.graph.nodes:
        quant = qgraph.quant.get(node.outputs[0])
        if node.op != "Concat" or node.device != "NPU" or quant is None or np.ptp(quant.scale) > 0:
            continue
        ranges = {}
        for tensor in activation_inputs(node, qgraph.graph):
            seen = statistics.tensors.get(tensor)
            if seen is None:  # a quantised model brought its scale, nothing was measured
                continue
            ranges[tensor] = float(np.maximum(np.abs(seen.low), np.abs(seen.high)).max(initial=0.0))
        widest = max(ranges.values(), default=0.0)
        for tensor, size in ranges.items():
            steps = int(size / float(quant.scale[0]))
            if 0.0 < size * UNLIKE < widest and steps < FEW_STEPS:
                found.append(MixedRange(node.name, widest, tensor, size, steps))
    return found
