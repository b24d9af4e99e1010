"""Runs a bf16 network with the normative numpy semantics, layer by layer, on lanes as the code generator has laid them out.

What a convolution in bf16 sums first depends on the lanes and blocks its channels lie in (DESIGN section 4), so this executor walks the layers of the
lane step instead of the graph's nodes. It reads no packed parameter and no instruction. CPU partitions run in float32 between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.steps import lanes as lanes_step
from npuforge.compile.steps.emit import make_work
from npuforge.compile.steps.layers import LaneResult, Layer, Lowered, Place, Storage
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.arch import Arch
from npuforge.hw_kernels.bf16_lanes import fold
from npuforge.quant.bf16 import run_node
from npuforge.quant.executor import Arrays, RunNodes, dequantise, float_feeds, quantise, run_reference


class LaneExecutor:
    """One bf16 network on one arch. `run_cpu` runs nodes of CPU partitions; by default each through its operator's reference."""

    def __init__(self, qgraph: QGraph, arch: Arch, run_cpu: RunNodes | None = None) -> None:
        self.qgraph, self.run_cpu = qgraph, run_cpu
        self.lanes: LaneResult = lanes_step.run(qgraph, arch)
        self._lowered = {part.index: part for part in self.lanes.partitions}
        self._nodes = {n.name: n for n in qgraph.graph.nodes}
        # Layer id -> the tensor it writes. A copy that the compiler made has a name and bits of its own: moving lanes makes +0 of -0.
        self.written = {layer.id: layer.output for part in self.lanes.partitions for layer in part.layers}

    def run_all(self, feeds: Arrays, wanted: Iterable[str] | None = None) -> tuple[Arrays, Arrays]:
        """bf16 bits [1, H, W, C] of every tensor that an NPU node or a layer writes, and float tensors (`wanted`, or the graph's outputs).

        Float feeds are N, C, H, W.
        """
        graph = self.qgraph.graph
        bits: Arrays = {
            n: v if v.dtype == np.uint16 else quantise(v, self.qgraph.quant[n])
            for n, v in feeds.items()
            if n in self.qgraph.quant
        }
        floats = float_feeds(self.qgraph, feeds)
        memory: dict[Storage, np.ndarray] = {}
        for index, part in enumerate(graph.partitions):
            if part.device == "NPU":
                self._partition(self._lowered[index], bits, floats, memory)
            else:
                self._cpu([self._nodes[n] for n in part.nodes], bits, floats)
        return bits, {n: self._float(n, bits, floats) for n in (graph.outputs if wanted is None else wanted)}

    def run(self, feeds: Arrays, wanted: Iterable[str] | None = None) -> Arrays:
        """bf16 bits of the NPU's tensors."""
        bits, _ = self.run_all(feeds, [])
        return bits if wanted is None else {n: bits[n] for n in wanted}

    def run_outputs(self, feeds: Arrays, wanted: Iterable[str] | None = None) -> Arrays:
        """Float tensors."""
        return self.run_all(feeds, wanted)[1]

    # ---- NPU partitions ------------------------------------------------------------------------------------------------
    def _partition(self, part: Lowered, bits: Arrays, floats: Arrays, memory: dict[Storage, np.ndarray]) -> None:
        for tensor in part.inputs:
            if tensor not in bits:
                bits[tensor] = quantise(floats[tensor], self.qgraph.quant[tensor])
            self._write(memory, self.lanes.places[tensor], bits[tensor][0])
        for layer in part.layers:
            self._layer(layer, memory)
            bits[layer.output] = self._read(memory, self.lanes.places[layer.output])[None]
        for name in self.qgraph.graph.partitions[part.index].nodes:
            node = self._nodes[name]
            place = self.lanes.places.get(node.outputs[0])
            if place is not None:
                bits[node.outputs[0]] = self._read(memory, place)[None]
            else:  # channels of an image that are folded where they are read: nothing computes them
                given = [bits[t] for t in node.inputs if t not in self.qgraph.graph.constants]
                bits[node.outputs[0]] = run_node(node, self.qgraph, given)

    def _layer(self, layer: Layer, memory: dict[Storage, np.ndarray]) -> None:
        work = make_work(layer, self.lanes)
        inputs = [self._blocks(memory, self.lanes.places[t]) for t in layer.inputs]
        if layer.fold is not None:
            f = layer.fold
            inputs[0] = fold(inputs[0], f.window, f.height, f.width, f.blocks)
        out = operator.get(layer.node).bf16(work, inputs)
        place, first = self.lanes.places[layer.output], 0
        target = self._storage(memory, place.storage)
        for block, count in place.runs:  # whole blocks, pad lanes too
            target[..., 16 * block : 16 * (block + count)] = out[..., first : first + 16 * count]
            first += 16 * count

    @staticmethod
    def _storage(memory: dict[Storage, np.ndarray], storage: Storage) -> np.ndarray:
        if storage not in memory:
            memory[storage] = np.zeros((storage.height, storage.width, storage.tight or 16 * storage.blocks), np.uint16)
        return memory[storage]

    def _blocks(self, memory: dict[Storage, np.ndarray], place: Place) -> np.ndarray:
        """The blocks of a place, other tensors' lanes in them included; a tight image as it is."""
        whole = self._storage(memory, place.storage)
        if place.storage.tight:
            return whole
        return np.concatenate([whole[..., 16 * b : 16 * (b + n)] for b, n in place.runs], axis=2)

    def _read(self, memory: dict[Storage, np.ndarray], place: Place) -> np.ndarray:
        return np.ascontiguousarray(self._blocks(memory, place)[..., place.map.lanes])

    def _write(self, memory: dict[Storage, np.ndarray], place: Place, values: np.ndarray) -> None:
        lanes = place.map.lanes if place.storage.tight else 16 * place.first_block + place.map.lanes
        self._storage(memory, place.storage)[..., lanes] = values

    # ---- CPU partitions --------------------------------------------------------------------------------------------------
    def _float(self, name: str, bits: Arrays, floats: Arrays) -> np.ndarray:
        if name not in floats:
            floats[name] = dequantise(bits[name], self.qgraph.quant[name])
        return floats[name]

    def _cpu(self, nodes: list[Node], bits: Arrays, floats: Arrays) -> None:
        graph = self.qgraph.graph
        written = {t for n in nodes for t in n.outputs}
        needed: dict[str, Any] = {
            t: None for n in nodes for t in n.inputs if t and t not in graph.constants and t not in written
        }
        for tensor in needed:
            self._float(tensor, bits, floats)
        if self.run_cpu is not None:
            floats.update(self.run_cpu(nodes, floats))
            return
        for node in nodes:
            run_reference(node, graph, floats)
