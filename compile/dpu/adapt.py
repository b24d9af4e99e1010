"""Activations that a DPU computes otherwise: LeakyReLU has the slope 26/256, SiLU becomes HardSwish on request. The loss of that is measured. Nodes that
the target leaves to the CPU keep their own; so do those whose slope is not between 0 and 1 (the limits leave them to the CPU).

Where an engine has not the activation of its own operator, the node is separated into the two: the operator stays on the DPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from npuforge.compile.dpu.limits import ALONE, DpuTarget, activation_word, is_leaky
from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.compile.reference import GraphExecutor

SLOPE = 26 / 256
_EXACT = {0.0: "Relu", 1.0: Activation().kind}  # slopes that are another activation
MEASURED_IMAGES = 8  # how many calibration images the loss is measured on


def adapted(graph: Graph, silu_as_hardswish: bool) -> tuple[Graph, list[str]]:
    """A graph with the DPU's activations (nodes are new objects, tensors and constants shared) and the names of the nodes that changed."""
    changed: list[str] = []

    def of(name: str, activation: Activation) -> Activation:
        if activation.kind == "LeakyRelu" and activation.alpha in _EXACT:
            return Activation(_EXACT[activation.alpha])
        if activation.kind == "LeakyRelu" and activation.alpha != SLOPE and is_leaky(activation):
            changed.append(name)
            return replace(activation, alpha=SLOPE)
        if activation.kind == "Silu" and silu_as_hardswish:
            changed.append(name)
            return Activation("HardSwish")
        return activation

    nodes = [replace(n, activation=of(n.name, n.activation)) for n in graph.nodes]
    return replace(graph, nodes=nodes), changed


def own_on_cpu(placed: Graph, before: Graph, changed: list[str]) -> tuple[Graph, list[str]]:
    """`placed`, adapted from `before`, with the network's own activations on nodes that were left to the CPU; `changed` without their names."""
    own = {n.name: n.activation for n in before.nodes}
    kept: list[str] = []
    nodes: list[Node] = []
    for node in placed.nodes:
        name = node.name if node.name in own else node.name.removesuffix(f"/{ALONE.get(node.activation.kind)}")
        carries = (
            name in changed and node.activation.kind != Activation().kind
        )  # not the node that its activation was separated from
        if carries and node.device != "CPU":
            kept.append(name)
        nodes.append(replace(node, activation=own[name]) if carries and node.device == "CPU" else node)
    return replace(placed, nodes=nodes), kept


def separated(graph: Graph, target: DpuTarget) -> Graph:
    """Nodes that `target` has without their activation become two, the operator and the activation alone; the value between them is rounded as well. The activation
    is another operator of the DPU, or the CPU's."""
    nodes: list[Node] = []
    tensors = dict(graph.tensors)
    for node in graph.nodes:
        if not _only_without(node, graph, target):
            nodes.append(node)
            continue
        word, output = activation_word(node.activation), node.outputs[0]
        shape, between = graph.tensors[output].shape, f"{output}/linear"
        tensors[between] = TensorInfo(between, shape, graph.tensors[output].dtype)
        attrs = {"scale": [1.0] * shape[1], "bias": [0.0] * shape[1]}
        nodes.append(replace(node, outputs=[between], activation=Activation()))
        name = f"{node.name}/{ALONE.get(word, word)}"
        nodes.append(Node(name, "Affine", [between], [output], attrs, node.activation, list(node.sources)))
    return replace(graph, nodes=nodes, tensors=tensors)


def _only_without(node: Node, graph: Graph, target: DpuTarget) -> bool:
    """Whether the DPU takes the operator, but not with the activation that it has."""
    if node.activation.kind == Activation().kind or node.op == "Affine" or not target.reason(node, graph):
        return False
    return not target.reason(replace(node, activation=Activation()), graph)


def measured_loss(before: Graph, after: Graph, feeds: Iterable[dict[str, np.ndarray]]) -> dict[str, float]:
    """Per tensor of `measured_tensors`: root of the mean squared difference of the two float graphs over the root of the mean square; none that is 0 throughout."""
    names = measured_tensors(before, after)
    if not names:
        return {}
    first, second = GraphExecutor(before, names), GraphExecutor(after, names)
    difference = dict.fromkeys(names, 0.0)
    power = dict(difference)
    for feed in feeds:
        a, b = first.run(feed), second.run(feed)
        for name in names:
            x, y = a[name].astype(np.float64), b[name].astype(np.float64)
            difference[name] += float(np.square(x - y).sum())
            power[name] += float(np.square(x).sum())
    return {n: float(np.sqrt(difference[n] / power[n])) for n in names if power[n] > 0}


def measured_tensors(before: Graph, after: Graph) -> list[str]:
    """The network's float outputs of a fixed size; in place of each other output, whose size depends on the data or which holds integers, the nearest such tensors
    in front of it that both graphs compute."""
    computed = {t for node in after.nodes for t in node.outputs}
    producers = {t: node for node in before.nodes for t in node.outputs}

    def fits(name: str) -> bool:
        info = before.tensors[name]
        return info.dtype == "float32" and all(d > 0 for d in info.shape) and name in computed

    found: dict[str, None] = {}
    seen: set[str] = set()
    waiting = list(before.outputs)[::-1]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in producers:
            continue
        seen.add(name)
        if fits(name):
            found[name] = None
        else:
            waiting += [t for t in reversed(producers[name].inputs) if t and t not in before.constants]
    return list(found)
