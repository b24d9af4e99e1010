"""Which ranges are unlike, and the concatenations that put such ranges under one scale: small values lose their resolution there.

In `pow2` mode, where a tensor has one fix point, `compile/steps/separate_ranges.py` leaves none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.quantization import QGraph
from npuforge.quant.regions import activation_inputs
from npuforge.quant.statistics import Statistics, TensorStatistics

FEW_STEPS = (
    16  # a part that spans fewer steps of the common scale has lost its resolution: what the report calls flattened
)
FEWEST_OF_WIDEST = (
    64  # with a power-of-two scale the widest part fills at least these of the 127 steps to one side of zero
)
UNLIKE = float(FEWEST_OF_WIDEST // FEW_STEPS)  # ranges further apart than this factor, 4, are unlike
ROUNDING = 1.0 + 1e-4  # ranges measured twice, of one float graph written in two ways, differ by float32's rounding


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


def largest(seen: TensorStatistics) -> np.ndarray:
    """Largest magnitude of every channel, float64 [C]."""
    return np.maximum(np.abs(seen.low), np.abs(seen.high))


def like_groups(sizes: list[float]) -> list[list[int]]:
    """Positions, widest first, in groups of which none is more than a factor of `UNLIKE` narrower than its widest; 0 is like anything."""
    groups: list[list[int]] = []
    for position in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if groups and (sizes[position] == 0.0 or sizes[position] * UNLIKE >= sizes[groups[-1][0]]):
            groups[-1].append(position)
        else:
            groups.append([position])
    return [sorted(group) for group in groups]


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
            ranges[tensor] = float(largest(seen).max(initial=0.0))
        widest = max(ranges.values(), default=0.0)
        for tensor, size in ranges.items():
            steps = int(size / float(quant.scale[0]))
            if 0.0 < size * UNLIKE * ROUNDING < widest and steps < FEW_STEPS:
                found.append(MixedRange(node.name, widest, tensor, size, steps))
    return found
