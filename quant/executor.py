"""Walks a graph through the operators: `IntegerExecutor` with the normative integers, `ReferenceExecutor` with the float64 meaning.

Integer tensors are int8 N, H, W, C of logical channels; float tensors are in ONNX's layout. Nodes outside the NPU run in float on dequantised
values: through the operator's own reference, or, for nodes nobody registered, through a callable of the caller (`run_cpu`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import QuantisationError, UnsupportedError
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.ir.quantization import QGraph, TensorQuant
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.arithmetic import round_half_up, sat8
from npuforge.hw_kernels.bf16 import from_float32, to_float32
from npuforge.quant.regions import npu_nodes
from npuforge.quant.statistics import pre_activation

Arrays = dict[str, np.ndarray]
RunNodes = Callable[
    [list[Node], Arrays], Arrays
]  # CPU nodes in order and the float tensors known -> tensors they write


def quantise(x: np.ndarray, quant: TensorQuant) -> np.ndarray:
    """Float N, C, H, W to int8 N, H, W, C: clamp(round_half_up(x/s + z)), or to bf16 bits. For an image tensor x is the preprocessed value of
    whole pixels. Infinities become the ends of int8; NaN is a QuantisationError there, bf16 keeps both.
    """
    if quant.dtype == "bf16":
        return from_float32(np.ascontiguousarray(np.moveaxis(np.asarray(x, np.float32), 1, -1)))
    channels_last = np.moveaxis(np.asarray(x, np.float64), 1, -1)
    if np.isnan(channels_last).any():
        raise QuantisationError(
            "a tensor contains NaN, which has no int8 value; look for the layer that makes it in the float network"
        )
    with np.errstate(invalid="ignore"):  # the fraction of an infinity
        if quant.image_mean is not None:
            return sat8(round_half_up(channels_last / quant.scale + quant.image_mean - 128.0))
        return sat8(round_half_up(channels_last / quant.scale) + quant.zero_point)


def dequantise(q: np.ndarray, quant: TensorQuant) -> np.ndarray:
    """int8 or bf16 bits, N, H, W, C, to float32 N, C, H, W."""
    if quant.dtype == "bf16":
        return np.ascontiguousarray(np.moveaxis(to_float32(q), -1, 1))
    zero = quant.zero_point if quant.image_mean is None else quant.image_mean - 128.0
    return np.ascontiguousarray(np.moveaxis(((q - zero) * quant.scale).astype(np.float32), -1, 1))


def image_bytes(pixels: np.ndarray) -> np.ndarray:
    """Raw uint8 pixels [N, H, W, C] as the int8 the network reads: q = pixel - 128."""
    return (pixels ^ np.uint8(128)).view(np.int8)


def float_feeds(qgraph: QGraph, feeds: Arrays) -> Arrays:
    """Inputs as nodes outside the NPU read them: the values themselves, also of one that the NPU reads in 8 bits or bf16. Pixels, int8 and bf16 bits
    given in a float input's place are left out: they are dequantised where they are read.
    """
    plain = {n: v for n, v in feeds.items() if n not in qgraph.quant}
    return plain | {n: np.asarray(v, np.float32) for n, v in feeds.items() if n in qgraph.quant and v.dtype.kind == "f"}


class ReferenceExecutor:
    """Runs a float graph through `Op.reference` in float64. `wanted`: tensors or `pre_activation` names, the graph's outputs by default."""

    def __init__(self, graph: Graph, wanted: list[str] | None = None) -> None:
        self.graph = graph
        self.wanted = wanted if wanted is not None else list(graph.outputs)

    def run(self, feeds: Arrays) -> Arrays:
        """Wanted tensors from the graph's inputs (ONNX layout)."""
        values: Arrays = {name: np.asarray(feeds[name], np.float64) for name in self.graph.inputs}
        for node in self.graph.nodes:
            before = pre_activation(node.outputs[0])
            if before in self.wanted:
                run_reference(replace(node, activation=Activation(), outputs=[before]), self.graph, values)
            run_reference(node, self.graph, values)
        return {name: values[name] for name in self.wanted}


def run_reference(node: Node, graph: Graph, values: Arrays) -> None:
    """One node through its operator's reference; adds its outputs to `values`."""
    inputs: list[Any] = [graph.constants[t] if t in graph.constants else values[t] if t else None for t in node.inputs]
    for name, value in zip(node.outputs, operator.get(node).reference(node, inputs), strict=True):
        values[name] = value


class IntegerExecutor:
    """Runs a QGraph with the normative integer semantics."""

    def __init__(self, qgraph: QGraph, run_cpu: RunNodes | None = None) -> None:
        self.qgraph = qgraph
        self.run_cpu = run_cpu
        self._npu = {n.name for n in npu_nodes(qgraph.graph)}

    def quantise_input(self, name: str, value: np.ndarray) -> np.ndarray:
        """Raw uint8 pixels or int8 [N, H, W, C], or float in ONNX's N, C, H, W, as the tensor's int8."""
        if value.dtype == np.int8:
            return value
        quant = self.qgraph.quant[name]
        if value.dtype == np.uint8:
            if quant.image_mean is None:
                raise UnsupportedError(
                    f"input {name}: raw pixels given, but the network takes preprocessed float values"
                )
            return image_bytes(value)
        return quantise(value, quant)

    def run(self, feeds: Arrays | np.ndarray, wanted: Iterable[str] | None = None) -> Arrays:
        """int8 tensors of the NPU nodes (`wanted` names, or all) from the network's inputs; CPU nodes run only where an NPU node needs them."""
        graph = self.qgraph.graph
        integers, floats = self._given(feeds if isinstance(feeds, dict) else {graph.inputs[0]: feeds})
        self._walk(integers, floats)
        if wanted is None:
            return integers
        return {name: integers[name] for name in wanted}

    def run_outputs(self, feeds: Arrays | np.ndarray, wanted: Iterable[str] | None = None) -> Arrays:
        """Float tensors (`wanted`, or the graph's outputs) with the CPU partition run in float on dequantised values."""
        return self.run_all(feeds, wanted)[1]

    def run_all(self, feeds: Arrays | np.ndarray, wanted: Iterable[str] | None = None) -> tuple[Arrays, Arrays]:
        """The int8 tensors of the NPU nodes, and what `run_outputs` gives, in one pass."""
        graph = self.qgraph.graph
        integers, floats = self._given(feeds if isinstance(feeds, dict) else {graph.inputs[0]: feeds})
        waiting = self._walk(integers, floats)
        if waiting:
            self._run_cpu(waiting, integers, floats)
        names = wanted if wanted is not None else graph.outputs
        return integers, {n: self._float(n, integers, floats) for n in names}

    def _given(self, feeds: Arrays) -> tuple[Arrays, Arrays]:
        """What the NPU and what the CPU partition reads of the network's inputs."""
        integers = {n: self.quantise_input(n, v) for n, v in feeds.items() if n in self.qgraph.quant}
        return integers, float_feeds(self.qgraph, feeds)

    def _float(self, name: str, integers: Arrays, floats: Arrays) -> np.ndarray:
        if name not in floats:
            floats[name] = dequantise(integers[name], self.qgraph.quant[name])
        return floats[name]

    def _walk(self, integers: Arrays, floats: Arrays) -> list[Node]:
        """Runs all NPU nodes and the CPU nodes they need; returns the CPU nodes still to run."""
        waiting: list[Node] = []
        for node in self.qgraph.graph.nodes:
            if node.name in self._npu:
                needed = [t for t in node.inputs if t not in self.qgraph.graph.constants]
                if waiting and any(t in w.outputs for w in waiting for t in needed):
                    self._run_cpu(waiting, integers, floats)
                    waiting = []
                for tensor in needed:
                    if tensor not in integers:
                        integers[tensor] = quantise(floats[tensor], self.qgraph.quant[tensor])
                integers[node.outputs[0]] = operator.get(node).integer(node, [integers[t] for t in needed], self.qgraph)
            else:
                waiting.append(node)
        return waiting

    def _run_cpu(self, nodes: list[Node], integers: Arrays, floats: Arrays) -> None:
        graph = self.qgraph.graph
        written = {t for n in nodes for t in n.outputs}
        for node in nodes:
            for tensor in node.inputs:
                if tensor and tensor not in graph.constants and tensor not in written:
                    self._float(tensor, integers, floats)
        if self.run_cpu is not None:
            floats.update(self.run_cpu(nodes, floats))
            return
        for node in nodes:
            run_reference(node, graph, floats)
