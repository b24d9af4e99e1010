"""Runs a few calibration images through the integer graph while it is being made, so that a layer knows what really arrives at its input."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import QGraph, TensorQuant
from npuforge.hw_kernels import operator
from npuforge.quant.executor import quantise
from npuforge.quant.regions import Region, activation_inputs
from npuforge.quant.rounding import MeanShift
from npuforge.quant.statistics import Statistics


def real_mean(q: list[np.ndarray], quant: TensorQuant) -> np.ndarray:
    """Mean per channel of int8 tensors [N, H, W, C], in real units."""
    mean = np.mean([x.mean(axis=(0, 1, 2), dtype=np.float64) for x in q], axis=0)
    zero = quant.zero_point if quant.image_mean is None else quant.image_mean - 128.0
    return np.asarray((mean - zero) * quant.scale)


class SampleRun:
    """Integer tensors of the sample images up to the node last run; a tensor is dropped after its last reader."""

    def __init__(self, region: Region, qgraph: QGraph, statistics: Statistics) -> None:
        self._qgraph = qgraph
        self._graph = region.graph
        self._count = max((len(v) for v in statistics.samples.values()), default=0)
        self._means = {t: total / max(self._count, 1) for t, total in statistics.sample_means.items()}
        self._tensors = {
            t: [quantise(x, qgraph.quant[t]) for x in statistics.samples[t]]
            for t in region.entries
            if t in statistics.samples
        }
        self._reads = {t: len(nodes) for t, nodes in region.readers.items()}

    def mean_shift(self, tensor: str) -> MeanShift | None:
        """Float and integer means of a tensor already run; None without samples."""
        if tensor not in self._tensors or tensor not in self._means:
            return None
        return MeanShift(self._means[tensor], real_mean(self._tensors[tensor], self._qgraph.quant[tensor]))

    def run(self, node: Node) -> None:
        """The node's integer outputs, once its parameters are in the graph."""
        inputs = activation_inputs(node, self._graph)
        if any(t not in self._tensors for t in inputs):
            return
        op = operator.get(node)
        self._tensors[node.outputs[0]] = [
            op.integer(node, [self._tensors[t][i] for t in inputs], self._qgraph) for i in range(self._count)
        ]
        for tensor in dict.fromkeys(inputs):
            self._reads[tensor] -= 1
            if self._reads[tensor] == 0:
                del self._tensors[tensor]
