"""Precision loss per layer: SQNR, cosine, largest and mean error, saturation; *accumulated* (all layers quantised) and *alone* (only this one).

`accumulated` compares the integer graph's tensor with the float network's. `alone` feeds the layer the float network's own inputs, quantised
with the input tensors' scales, so that it holds this layer's rounding of inputs, weights and output and nothing of the layers before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels import operator
from npuforge.quant.bf16 import run_node
from npuforge.quant.executor import Arrays, IntegerExecutor, dequantise, quantise
from npuforge.quant.regions import activation_inputs, npu_nodes

SQNR_EXACT = 200.0  # reported where there is no error at all


@dataclass
class Metrics:
    """Difference between a reference and a tensor, over all images. `saturation` is the share of values at -128 or 127, in bf16 at infinity."""

    sqnr_db: float
    cosine: float
    max_abs_error: float
    mean_abs_error: float
    saturation: float
    mean_error_share: float = 0.0  # mean error as a share of the reference's largest magnitude


@dataclass
class LayerLoss:
    """One NPU layer."""

    node: str
    op: str
    tensor: str
    sources: list[str]
    alone: Metrics
    accumulated: Metrics

    def to_json(self) -> dict[str, object]:
        """Plain dictionary."""
        return asdict(self)


class Meter:
    """Accumulates `Metrics` over images without keeping the tensors."""

    def __init__(self) -> None:
        self.signal = self.noise = self.product = self.energy = self.absolute = self.largest = 0.0
        self.count = self.saturated = 0
        self.peak = 0.0

    def add(self, reference: np.ndarray, found: np.ndarray, q: np.ndarray | None = None) -> None:
        """One image: float reference, float result, and the result's int8 where saturation is wanted."""
        a, b = reference.astype(np.float64).ravel(), found.astype(np.float64).ravel()
        error = b - a
        self.signal += float(a @ a)
        self.energy += float(b @ b)
        self.product += float(a @ b)
        self.noise += float(error @ error)
        magnitude = np.abs(error)
        self.absolute += float(magnitude.sum())
        self.largest = max(self.largest, float(magnitude.max(initial=0.0)))
        self.count += a.size
        self.peak = max(self.peak, float(np.abs(a).max(initial=0.0)))
        if q is not None and q.dtype == np.int8:
            self.saturated += int(((q == -128) | (q == 127)).sum())
        elif q is not None:  # bf16
            self.saturated += int(np.isinf(b).sum())

    def metrics(self) -> Metrics:
        """The figures so far."""
        if self.noise == 0.0:
            sqnr = SQNR_EXACT
        else:
            sqnr = float(np.clip(10.0 * np.log10(max(self.signal, 1e-300) / self.noise), -SQNR_EXACT, SQNR_EXACT))
        norm = float(np.sqrt(self.signal * self.energy))
        cosine = self.product / norm if norm > 0.0 else float(self.signal == self.energy)
        count = max(self.count, 1)
        mean = self.absolute / count
        share = mean / self.peak if self.peak > 0.0 else float(mean > 0.0)
        return Metrics(sqnr, cosine, self.largest, mean, self.saturated / count, share)


def measured_tensors(qgraph: QGraph) -> list[str]:
    """Float tensors that `analyse` needs of every image: inputs and outputs of all NPU nodes."""
    nodes = npu_nodes(qgraph.graph)
    return list(dict.fromkeys(t for n in nodes for t in (*activation_inputs(n, qgraph.graph), *n.outputs)))


def run_alone(node: Node, qgraph: QGraph, reference: Arrays) -> np.ndarray:
    """Output of one layer on the float network's inputs, quantised. In bf16 with every channel in its own lane, as a lone layer has them."""
    inputs = [quantise(reference[t], qgraph.quant[t]) for t in activation_inputs(node, qgraph.graph)]
    if qgraph.mode == "bf16":
        return run_node(node, qgraph, inputs)
    return operator.get(node).integer(node, inputs, qgraph)


def analyse(
    qgraph: QGraph, images: Iterable[tuple[Arrays, Arrays]], executor: IntegerExecutor | None = None
) -> list[LayerLoss]:
    """Loss of every NPU layer, in network order.

    `images` yields (what the integer graph takes, float values of `measured_tensors`, graph inputs included) per image.
    """
    executor = executor or IntegerExecutor(qgraph)
    nodes = npu_nodes(qgraph.graph)
    alone = {n.name: Meter() for n in nodes}
    accumulated = {n.name: Meter() for n in nodes}
    for feeds, reference in images:
        integers = executor.run(feeds)
        for node in nodes:
            tensor = node.outputs[0]
            quant, expected = qgraph.quant[tensor], reference[tensor]
            q = integers[tensor]
            accumulated[node.name].add(expected, dequantise(q, quant), q)
            q = run_alone(node, qgraph, reference)
            alone[node.name].add(expected, dequantise(q, quant), q)
    return [
        LayerLoss(n.name, n.op, n.outputs[0], n.sources, alone[n.name].metrics(), accumulated[n.name].metrics())
        for n in nodes
    ]


def worst_first(losses: list[LayerLoss]) -> list[LayerLoss]:
    """Layers by the loss they cause themselves, worst first."""
    return sorted(losses, key=lambda loss: loss.alone.sqnr_db)
