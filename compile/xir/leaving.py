"""How network outputs leave the file: one op each, which nobody reads, since that is what XIR takes for an output of the network and of a subgraph.

An `identity` leads a result that is read on out of its child: inside of it where all readers are there, else in the last child, `subgraph_outputs`. There
constants are too, for the vendor's graph runner leaves out a child that reads nothing (they have a partition of their own only where the CPU has no other, so
that the other outputs are the NPU's or inputs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.xir import cpu_ops
from npuforge.compile.xir.builder import BOOL, SCALAR, Builder
from npuforge.compile.xir.model import Attrs, XOp, XSubgraph, XTensor


def constant_partitions(graph: Graph) -> dict[int, list[Node]]:
    """Partitions that only name constants as network outputs, by index: their nodes."""
    nodes = {node.name: node for node in graph.nodes}
    read = {tensor for node in graph.nodes for tensor in node.inputs}

    def is_constant(node: Node) -> bool:
        return node.op == "Identity" and node.inputs[0] in graph.constants and node.outputs[0] not in read

    found = {index: [nodes[name] for name in partition.nodes] for index, partition in enumerate(graph.partitions)}
    return {index: own for index, own in found.items() if all(is_constant(node) for node in own)}


@dataclass
class Leaving:
    """`children`: those before the last one. `added`: makes a name that the network does not have. `leaf`: the ops of `subgraph_outputs`."""

    graph: Graph
    builder: Builder
    children: list[XSubgraph]
    added: Callable[[str, str], str]
    leaf: list[str] = field(default_factory=list)

    def plain(self, name: str, source: str) -> str:
        """The op that gives the network output `name`, of which the op `source` has the float form (in a CPU child, or as it is given)."""
        child = next(leaf for child in self.children for leaf in child.leaves() if source in leaf.ops)
        readers = self._readers(source)
        on_cpu = child.get("device") == cpu_ops.DEVICE
        if on_cpu and not readers:
            return source
        op = self._op(source)
        if not on_cpu or not all(reader in child.ops for reader in readers):
            return self._identity(name, op, op.tensor, self.leaf)
        own = self._copy(op.tensor)  # the output has its name: to XIR what is read inside only does not leave the child
        self.builder.rename_tensor(op, self.added(op.tensor.name, "_inner"))
        return self._identity(source, op, own, child.ops)

    def constant(self, node: Node) -> str:
        """The op that gives a network output that is a constant, by its Identity."""
        producers: dict[str, str] = {}
        cpu_ops.emit(cpu_ops.HostNode(node, self.graph, self.builder, self.leaf, producers), {})
        return producers[node.outputs[0]]

    def _identity(self, name: str, op: XOp, tensor: XTensor, leaf: list[str]) -> str:
        """An op that hands on what `op` gives. `tensor`: like it; the new one's name where it is free, else `<name>_output`."""
        own = self._copy(tensor)
        if tensor is op.tensor:
            own.name = self.added(name, "_output")
        still_open: Attrs = {k: v for k, v in op.attrs.items() if k == "npuforge_open_shape"}
        label = self.added(name, "_output")
        return self.builder.op(label, "identity", own, {"input": [op.name]}, still_open, cpu_ops.DEVICE, leaf)

    @staticmethod
    def _copy(tensor: XTensor) -> XTensor:
        kept = {key: attr for key, attr in tensor.attrs.items() if key in (BOOL, SCALAR)}
        return XTensor(tensor.name, list(tensor.shape), tensor.data_type, tensor.bit_width, kept)

    def _op(self, name: str) -> XOp:
        return next(op for op in self.builder.ops if op.name == name)

    def _readers(self, name: str) -> list[str]:
        return [op.name for op in self.builder.ops if name in op.inputs()]
