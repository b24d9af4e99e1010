"""The graph editor that fold and fuse are written with: producers and users by tensor, replacement, pruning, stable order.

A rule reads through `Editor` (`producer`, `users`, `constant`, `sole_user`) and changes through it (`add`, `remove`, `rewire`), so that
the indices stay right; `finish()` gives the graph back in topological order, close to the order of the ONNX file.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.quant.regions import CONVOLUTIONS

ELEMENTWISE = (  # operators that treat every element alike, so that layout and rank of a map don't matter to them
    "Relu",
    "LeakyRelu",
    "Clip",
    "Sigmoid",
    "Tanh",
    "HardSigmoid",
    "HardSwish",
    "Elu",
    "Softplus",
    "Identity",
)


_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
_ACTIVATIONS = (
    "Relu",
    "LeakyRelu",
    "Activation",
    "Affine",
)  # the last two: on the way to the canonical form, and by itself
_TAIL = (*_POOLS, "Add", "Sum", "Mul", "Concat", "Resize", *_ACTIVATIONS)


class Editor:
    """Edits one `Graph` in place."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._rank: dict[int, float] = {}
        self._live: dict[int, Node] = {}
        self._producer: dict[str, Node] = {}
        self._users: dict[str, list[Node]] = {}
        self._names = {n.name for n in graph.nodes}
        self._outputs = set(graph.outputs)
        for position, node in enumerate(graph.nodes):
            self._enter(node, float(position))

    def _enter(self, node: Node, rank: float) -> None:
        self._rank[id(node)] = rank
        self._live[id(node)] = node
        for name in node.outputs:
            if name:
                self._producer[name] = node
        for name in node.inputs:
            if name:
                self._users.setdefault(name, []).append(node)

    # ---- reading
    def nodes(self) -> list[Node]:
        """Live nodes, in order of rank."""
        return sorted(self._live.values(), key=lambda n: self._rank[id(n)])

    def alive(self, node: Node) -> bool:
        """False once the node was removed."""
        return id(node) in self._live

    def producer(self, tensor: str) -> Node | None:
        """The node that writes `tensor`."""
        return self._producer.get(tensor)

    def users(self, tensor: str) -> list[Node]:
        """Nodes that read `tensor`, once per reading input."""
        return list(self._users.get(tensor, ()))

    def constant(self, tensor: str) -> np.ndarray | None:
        """The value of a constant, None for anything else."""
        return self.graph.constants.get(tensor) if tensor else None

    def is_output(self, tensor: str) -> bool:
        """Whether `tensor` is a graph output."""
        return tensor in self._outputs

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Static shape of `tensor`."""
        return self.graph.tensors[tensor].shape

    def sole_user(self, tensor: str) -> Node | None:
        """The only reader of `tensor`; None where there are more, none, or the tensor is a graph output."""
        users = self._users.get(tensor, ())
        return users[0] if len(users) == 1 and tensor not in self._outputs else None

    def reaches_convolution(self) -> set[int]:
        """Ids of the nodes that are a convolution or have one downstream, and of those in the tail."""
        found = self._before_convolutions()
        return found | self._behind(found)

    def tail(self) -> set[int]:
        """Ids of the nodes behind the last convolution that compute maps from its maps alone; none unless the graph has a `fixed_tail`."""
        return self._behind(self._before_convolutions())

    def _behind(self, before: set[int]) -> set[int]:
        found: set[int] = set()
        for node in self.ordered() if self.graph.fixed_tail else ():
            if (
                id(node) not in before
                and node.op in _TAIL
                and all(self._is_map(t, before | found) for t in node.inputs)
            ):
                found.add(id(node))
        return found

    def _is_map(self, tensor: str, makers: set[int]) -> bool:
        """Whether one of `makers` gives the tensor as [1, C, H, W], or it is a parameter of a Resize."""
        if not tensor or self.constant(tensor) is not None:
            return all(u.op == "Resize" for u in self.users(tensor))
        producer = self.producer(tensor)
        return (
            producer is not None
            and id(producer) in makers
            and len(self.shape(tensor)) == 4 == 3 + self.shape(tensor)[0]
        )

    def _before_convolutions(self) -> set[int]:
        found: set[int] = set()
        for node in reversed(self.ordered()):
            if node.op in CONVOLUTIONS or any(id(u) in found for t in node.outputs for u in self._users.get(t, ())):
                found.add(id(node))
        return found

    # ---- changing
    def fresh_node(self, wanted: str) -> str:
        """A node name not in use."""
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def fresh_tensor(self, wanted: str, shape: Iterable[int], dtype: str = "float32") -> str:
        """Declares a new tensor and returns its name."""
        name, count = wanted, 1
        while name in self.graph.tensors:
            count += 1
            name = f"{wanted}_{count}"
        self.graph.tensors[name] = TensorInfo(name, tuple(int(d) for d in shape), dtype)
        return name

    def add_constant(self, wanted: str, value: np.ndarray) -> str:
        """Declares a new constant and returns its name."""
        name = self.fresh_tensor(wanted, value.shape, value.dtype.name)
        self.graph.constants[name] = value
        return name

    def add(self, node: Node, near: Node) -> None:
        """Enters a new node at the place of `near` (which may already be removed)."""
        self._names.add(node.name)
        self._enter(node, self._rank[id(near)])

    def remove(self, node: Node) -> None:
        """Takes a node out. Its outputs lose their producer."""
        if self._live.pop(id(node), None) is None:
            return
        for name in node.outputs:
            if self._producer.get(name) is node:
                del self._producer[name]
        for name in node.inputs:
            if name:
                self._users[name].remove(node)

    def update(self, node: Node, inputs: list[str] | None = None, outputs: list[str] | None = None) -> None:
        """Changes inputs or outputs of a live node."""
        rank = self._rank[id(node)]
        self.remove(node)
        node.inputs = node.inputs if inputs is None else inputs
        node.outputs = node.outputs if outputs is None else outputs
        self._enter(node, rank)

    def rewire(self, old: str, new: str) -> None:
        """Every reader of `old` reads `new`."""
        for node in {id(n): n for n in self.users(old)}.values():
            self.update(node, inputs=[new if t == old else t for t in node.inputs])

    def bypass(self, node: Node) -> bool:
        """Removes a node that hands its first input on unchanged; False where both ends are fixed names of the graph."""
        source, target = node.inputs[0], node.outputs[0]
        if not self.is_output(target):
            self.remove(node)
            self.rewire(target, source)
            self._inherit(node, source, target)
            return True
        producer = self.producer(source)
        if producer is None or self.is_output(source):
            return False
        self.remove(node)
        self.update(producer, outputs=[target if t == source else t for t in producer.outputs])
        self.rewire(source, target)
        extend_sources(producer, node)
        return True

    def _inherit(self, node: Node, source: str, target: str) -> None:
        heir = self.producer(source)
        if heir is None:
            users = self.users(source)
            heir = users[0] if users else None
        if heir is not None:
            extend_sources(heir, node)

    def prune(self) -> None:
        """Removes nodes none of whose outputs is read or is a graph output."""
        for node in reversed(self.ordered()):
            if not any(self._users.get(t) or t in self._outputs for t in node.outputs if t):
                self.remove(node)

    def ordered(self) -> list[Node]:
        """Live nodes in topological order, ties by rank."""
        live = self.nodes()
        index = {id(n): i for i, n in enumerate(live)}
        waiting = [0] * len(live)
        readers: list[list[int]] = [[] for _ in live]
        for i, node in enumerate(live):
            for producer in {id(p): p for t in node.inputs if (p := self._producer.get(t)) is not None}.values():
                waiting[i] += 1
                readers[index[id(producer)]].append(i)
        ready = [i for i, count in enumerate(waiting) if count == 0]
        heapq.heapify(ready)
        order: list[Node] = []
        while ready:
            i = heapq.heappop(ready)
            order.append(live[i])
            for j in readers[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    heapq.heappush(ready, j)
        if len(order) != len(live):
            stuck = next(n.name for i, n in enumerate(live) if waiting[i])
            raise RuntimeError(f"cycle through node '{stuck}'")
        return order

    def finish(self) -> Graph:
        """Prunes, orders, and drops tensors and constants that nothing names any more."""
        self.prune()
        graph = self.graph
        graph.nodes = self.ordered()
        named = set(graph.inputs) | set(graph.outputs)
        for node in graph.nodes:
            named.update(node.inputs, node.outputs)
        graph.tensors = {k: v for k, v in graph.tensors.items() if k in named}
        graph.constants = {k: v for k, v in graph.constants.items() if k in named}
        graph.grids = {k: v for k, v in graph.grids.items() if k in named}
        return graph


def extend_sources(node: Node, *others: Node) -> None:
    """Adds the ONNX names of `others` to `node.sources`, each once."""
    for other in others:
        node.sources.extend(s for s in other.sources if s not in node.sources)


def merged_sources(*nodes: Node) -> list[str]:
    """The ONNX names of all `nodes`, in order, each once."""
    return list(dict.fromkeys(s for node in nodes for s in node.sources))
