"""Activations that a DPU computes otherwise: LeakyReLU has the slope 26/256, SiLU becomes HardSwish on request. The loss of that is measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from npuforge.compile.ir.graph import Activation, Graph
from npuforge.compile.reference import GraphExecutor

SLOPE = 26 / 256
MEASURED_IMAGES = 8  # how many calibration images the loss is measured on


def adapted(graph: Graph, silu_as_hardswish: bool) -> tuple[Graph, list[str]]:
    """A graph with the DPU's activations (nodes are new objects, tensors and constants shared) and the names of the nodes that changed."""
    changed: list[str] = []

    def of(name: str, activation: Activation) -> Activation:
        if activation.kind == "LeakyRelu" and activation.alpha != SLOPE:
            changed.append(name)
            return replace(activation, alpha=SLOPE)
        if activation.kind == "Silu" and silu_as_hardswish:
            changed.append(name)
            return Activation("HardSwish")
        return activation

    nodes = [replace(n, activation=of(n.name, n.activation)) for n in graph.nodes]
    return replace(graph, nodes=nodes), changed


def measured_loss(before: Graph, after: Graph, feeds: Iterable[dict[str, np.ndarray]]) -> dict[str, float]:
    """Per float output of the network: root of the mean squared difference of the two float graphs over the root of the mean square."""
    first, second = GraphExecutor(before, list(before.outputs)), GraphExecutor(after, list(before.outputs))
    difference = {name: 0.0 for name in before.outputs}
    power = dict(difference)
    for feed in feeds:
        a, b = first.run(feed), second.run(feed)
        for name in before.outputs:
            if a[name].shape == b[name].shape and a[name].dtype.kind == "f":
                x, y = a[name].astype(np.float64), b[name].astype(np.float64)
                difference[name] += float(np.square(x - y).sum())
                power[name] += float(np.square(x).sum())
    return {n: float(np.sqrt(difference[n] / power[n])) for n in before.outputs if power[n] > 0}
