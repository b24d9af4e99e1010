"""A network's outputs as the rules of recognise_head ask about them: shapes, cells, and what stands between the last convolutions and an output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.quant.regions import CONVOLUTIONS

MOVES = ("Transpose", "Reshape", "Identity", "Flatten")


def _kernel(node: Node) -> int:
    """The larger side of a convolution's kernel, 1 for any other node."""
    return max(node.attrs["kernel_shape"]) if node.op in CONVOLUTIONS else 1


@dataclass
class Outputs:
    """A network's outputs with what the rules ask about them. `image`: the input that takes the image."""

    graph: Graph
    image: str

    @property
    def names(self) -> list[str]:
        """In the graph's order."""
        return self.graph.outputs

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image."""
        height, width = self.graph.tensors[self.image].shape[2:4]
        return height, width

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one output; -1 where only the run knows."""
        return self.graph.tensors[name].shape

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of all outputs, in order."""
        return [self.shape(n) for n in self.names]

    def map_size(self, stride: int) -> tuple[int, int]:
        """Height and width of a map at this stride (rounded up)."""
        height, width = self.size
        return -(-height // stride), -(-width // stride)

    def cells(self, *strides: int) -> int:
        """Cells of the maps at these strides together."""
        return sum(int(np.prod(self.map_size(s))) for s in strides)

    @cached_property
    def strides_of_rows(self) -> dict[int, list[int]]:
        """Strides of the usual three or four levels by the number of cells that they have together."""
        return {self.cells(*strides): list(strides) for strides in ((8, 16, 32), (8, 16, 32, 64))}

    def stride_of(self, height: int, width: int) -> int:
        """The power of two that gives a map of this size, 0 where none does."""
        return next((s for s in (4, 8, 16, 32, 64, 128) if self.map_size(s) == (height, width)), 0)

    @cached_property
    def _producers(self) -> dict[str, Node]:
        return {t: n for n in self.graph.nodes for t in n.outputs}

    def producer(self, name: str) -> Node | None:
        """The node that writes a tensor."""
        return self._producers.get(name)

    def _up_to(self, name: str, last: Callable[[Node], bool]) -> Iterator[Node]:
        """The nodes above an output, each once per tensor that it writes, upwards until `last` holds of one (which is given too)."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            tensor = waiting.pop()
            node = self.producer(tensor)
            if node is None or tensor in seen:
                continue
            seen.add(tensor)
            yield node
            if not last(node):
                waiting += node.inputs

    def above(self, name: str) -> set[str]:
        """Operators and activations between the last convolutions and an output."""
        found: set[str] = set()
        for node in self._up_to(name, lambda node: node.op in CONVOLUTIONS):
            found |= {node.activation.kind} - {"none"}
            plain = node.op == "Affine" and np.all(node.attrs["scale"] == 1) and np.all(node.attrs["bias"] == 0)
            if node.op not in CONVOLUTIONS and not plain:
                found.add(node.op)
        return found

    def kernels(self, name: str) -> set[int]:
        """Sizes of the last convolutions above an output that see more than one pixel."""
        sizes = [_kernel(node) for node in self._up_to(name, lambda node: _kernel(node) > 1)]
        return {size for size in sizes if size > 1}

    def parts(self, name: str) -> list[int]:
        """Channels of what a Concat above an output joins (through transposes and reshapes), else nothing."""
        node = self.producer(name)
        while node is not None and node.op in MOVES:
            node = self.producer(node.inputs[0])
        return [self.shape(t)[1] for t in node.inputs] if node is not None and node.op == "Concat" else []

    def column_parts(self, name: str, values: int) -> list[tuple[int, bool]]:
        """(width, whether a Sigmoid stands above) of the parts that Concats join to rows of `values`; empty where none do, or differently."""
        found: list[list[tuple[int, bool]]] = []
        waiting = [name]
        while waiting:
            node = self.producer(waiting.pop())
            if node is None or node.op not in (*MOVES, "Concat"):
                return []
            widths = [self.shape(t)[node.attrs["axis"]] for t in node.inputs] if node.op == "Concat" else []
            if sum(widths) == values:
                found.append([(w, "Sigmoid" in self.above(t)) for w, t in zip(widths, node.inputs, strict=True)])
            else:
                waiting += node.inputs if widths else node.inputs[:1]
        return found[0] if all(parts == found[0] for parts in found) else []
