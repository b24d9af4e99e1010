"""Which nodes and tensors are quantised, and how bytes move between tensors without arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels import operator

CONVOLUTIONS = ("Conv", "ConvTranspose")
PAIRS = ("Add", "Sub", "Mul")


def npu_nodes(graph: Graph) -> list[Node]:
    """The nodes that run on integers: those placed on the NPU, or, before placement, every supported node that is a convolution or feeds one."""
    if any(node.device for node in graph.nodes):
        return [node for node in graph.nodes if node.device == "NPU"]
    needed: set[str] = set()
    chosen: list[Node] = []
    for node in reversed(graph.nodes):
        op = operator.find(node.op)
        if op is None or op.failed_constraint(node, graph) is not None:
            continue
        if node.op in CONVOLUTIONS or needed.intersection(node.outputs):
            chosen.append(node)
            needed.update(t for t in node.inputs if t not in graph.constants)
    return chosen[::-1]


def activation_inputs(node: Node, graph: Graph) -> list[str]:
    """The inputs of a node that are computed tensors."""
    return [t for t in node.inputs if t and t not in graph.constants]


def channel_sources(node: Node, graph: Graph) -> list[tuple[str, int]]:
    """For an operator that moves bytes: (input tensor, channel) of every output channel; channel -1 is a real 0."""
    inputs = activation_inputs(node, graph)
    counts = [graph.tensors[t].shape[1] for t in inputs]
    return [(inputs[number], channel) for number, channel in operator.get(node).source_channels(node, counts)]


def subgraph(graph: Graph, nodes: list[Node], known: set[str]) -> Graph:
    """`nodes` (in order) as a graph of their own, which reads tensors of `known` and gives everything they write that others read."""
    written = [t for n in nodes for t in n.outputs if t]
    inputs = list(dict.fromkeys(t for n in nodes for t in n.inputs if t in known and t not in written))
    names = {n.name for n in nodes}
    outside = {t for n in graph.nodes if n.name not in names for t in n.inputs} | set(graph.outputs)
    outputs = [t for t in written if t in outside]
    return Graph(graph.name, nodes, graph.tensors, graph.constants, inputs, outputs, graph.opset)


@dataclass
class Region:
    """The quantised part of a graph: its nodes in order, tensors they read that nobody in it writes, consumers by tensor."""

    graph: Graph
    nodes: list[Node]
    entries: list[str]
    readers: dict[str, list[Node]]

    @staticmethod
    def of(graph: Graph) -> Region:
        """The region of `npu_nodes(graph)`."""
        nodes = npu_nodes(graph)
        written = {t for n in nodes for t in n.outputs}
        entries: list[str] = []
        readers: dict[str, list[Node]] = {}
        for node in nodes:
            for tensor in dict.fromkeys(activation_inputs(node, graph)):
                readers.setdefault(tensor, []).append(node)
                if tensor not in written and tensor not in entries:
                    entries.append(tensor)
        return Region(graph, nodes, entries, readers)

    def read_outside(self) -> set[str]:
        """Tensors that a node outside the region or the user reads."""
        inside = {n.name for n in self.nodes}
        return {t for n in self.graph.nodes if n.name not in inside for t in n.inputs} | set(self.graph.outputs)

    def leaves(self) -> list[str]:
        """Tensors written here that a node outside or the user reads."""
        outside = self.read_outside()
        return [t for n in self.nodes for t in n.outputs if t in outside]
