"""Hand-made integer graphs for the back end's tests: random int8 parameters without a quantiser, and their expected bits from `Op.integer`."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Activation, Graph, Node, Partition, TensorInfo
from npuforge.compile.ir.quantization import (
    AveragePoolParams,
    ConvParams,
    EltwiseParams,
    MoveParams,
    NodeParams,
    OutputStage,
    QGraph,
    Tail,
    TensorQuant,
)
from npuforge.hw_kernels import operator


class Net:
    """Adds nodes one by one with random parameters; tensors are named after their node. Every node is on the NPU."""

    def __init__(self, shape: tuple[int, int, int], seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.graph = Graph("net", [], {"input": TensorInfo("input", (1, *shape))}, {}, ["input"], [], 13)
        self.qgraph = QGraph(self.graph, "fine")
        self._quantise("input", shape[0])

    def shape(self, tensor: str) -> tuple[int, int, int]:
        """Channels, height, width."""
        _, c, h, w = self.graph.tensors[tensor].shape
        return c, h, w

    def input(self, name: str, shape: tuple[int, int, int]) -> str:
        """One more graph input."""
        self.graph.tensors[name] = TensorInfo(name, (1, *shape))
        self.graph.inputs.append(name)
        self._quantise(name, shape[0])
        return name

    def _quantise(self, tensor: str, channels: int) -> None:
        zero = self.random.integers(-128, 128, channels).astype(np.int32)
        self.qgraph.quant[tensor] = TensorQuant(self.random.uniform(0.01, 1, channels), zero)

    def _int8(self, count: int) -> np.ndarray:
        return self.random.integers(-128, 128, count).astype(np.int8)

    def stage(self, channels: int, kind: str, magnitude: float) -> OutputStage:
        """A stage that spreads accumulators of about `magnitude` over the int8 range."""
        r = self.random
        zero = self._int8(channels)
        if kind == "direct":
            shift = np.clip(np.log2(magnitude / 64) + r.integers(-1, 2, channels), 0, 47).astype(np.int8)
            low = r.integers(-128, 0, channels).astype(np.int8)
            return OutputStage("direct", shift, zero, low=low, high=r.integers(0, 128, channels).astype(np.int8))
        target = 80.0 if kind == "pwl" else 4096.0
        shift = np.clip(np.floor(np.log2(12000.0 * magnitude / target)) + r.integers(-1, 2, channels), 0, 47).astype(
            np.int8
        )
        m_pos = (r.integers(6000, 32768, channels) * r.choice([1, 1, 1, -1], channels)).astype(np.int16)
        if kind == "pwl":
            m_neg = (m_pos * r.choice([0.0, 0.1, 1.0, -0.5], channels)).astype(np.int16)
            low = r.integers(-128, 0, channels).astype(np.int8)
            high = r.integers(0, 128, channels).astype(np.int8)
            return OutputStage("pwl", shift, zero, m_pos, m_neg, low, high)
        bits = int(r.integers(5, 12))
        table = np.sort(r.integers(-20000, 20000, 257)).astype(np.int16)
        shift2 = np.full(channels, 20, np.int8) + r.integers(0, 4, channels).astype(np.int8)
        m2 = r.integers(6000, 32768, channels).astype(np.int16)
        tails = (Tail(False, int(r.integers(-3000, 3000))), Tail(True))
        return OutputStage("table", shift, zero, m_pos, m2, None, None, shift2, table, bits, *tails)

    def add(self, op: str, name: str, inputs: list[str], params: NodeParams | None = None, **attrs: Any) -> str:
        """A node whose parameters are given."""
        node = Node(name, op, inputs, [name], attrs, Activation(), [name], "NPU")
        shapes = [
            self.graph.tensors[t].shape if t in self.graph.tensors else self.graph.constants[t].shape for t in inputs
        ]
        shape = operator.get(node).infer(node, shapes)[0]
        self.graph.tensors[name] = TensorInfo(name, tuple(int(s) for s in shape))
        self.graph.nodes.append(node)
        self.qgraph.params[name] = params or MoveParams()
        self._quantise(name, int(shape[1]))
        return name

    def conv(
        self,
        name: str,
        x: str,
        outputs: int,
        kernel: tuple[int, int] = (3, 3),
        strides: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        dilations: tuple[int, int] = (1, 1),
        group: int = 1,
        stage: str = "pwl",
        transpose: bool = False,
        output_padding: tuple[int, int] = (0, 0),
    ) -> str:
        """Conv or ConvTranspose with random weights."""
        channels = self.shape(x)[0]
        weight = self.random.integers(-127, 128, (outputs, *kernel, channels // group)).astype(np.int8)
        onnx = (channels, outputs // group, *kernel) if transpose else (outputs, channels // group, *kernel)
        for suffix, shape in (("w", onnx), ("b", (outputs,))):
            self.graph.constants[f"{name}.{suffix}"] = np.zeros(shape, np.float32)
        fan = channels // group * kernel[0] * kernel[1]
        bias = self.random.integers(-3000, 3000, outputs).astype(np.int32)
        params = ConvParams(weight, bias, self._int8(channels), self.stage(outputs, stage, 5000.0 * fan**0.5))
        attrs: dict[str, Any] = {
            "kernel_shape": list(kernel),
            "strides": list(strides),
            "pads": list(pads),
            "dilations": list(dilations),
            "group": group,
        }
        if transpose:
            attrs["output_padding"] = list(output_padding)
        return self.add("ConvTranspose" if transpose else "Conv", name, [x, f"{name}.w", f"{name}.b"], params, **attrs)

    def pool(self, op: str, name: str, x: str, kernel: tuple[int, int], **attrs: Any) -> str:
        """MaxPool or AveragePool."""
        attrs = {"kernel_shape": list(kernel), "strides": [1, 1], "pads": [0, 0, 0, 0]} | attrs
        if op == "MaxPool":
            return self.add(op, name, [x], None, **attrs)
        channels = self.shape(x)[0]
        whole = tuple(kernel) == self.shape(x)[1:] or not any(attrs["pads"])
        rows = 1 if whole else kernel[0] * kernel[1]
        factor = self.random.integers(3000, 32768, (rows, channels)).astype(np.int16)
        shift = int(np.clip(np.log2(rows * 30000) + 1, 0, 47))
        params = AveragePoolParams(factor, shift, self._int8(channels), self._int8(channels), whole)
        return self.add(op, name, [x], params, **attrs)

    def pair(self, op: str, name: str, a: str, b: str, stage: str = "direct") -> str:
        """Add, Sub or Mul."""
        channels = self.shape(a)[0]
        m_a, m_b = (self.random.integers(-32767, 32768, channels).astype(np.int16) for _ in "ab")
        magnitude = 1.5e6 if op != "Mul" else 6e7
        params = EltwiseParams(
            m_a,
            m_b,
            self._int8(channels),
            self._int8(channels),
            np.zeros(channels, np.int32),
            self.stage(channels, stage, magnitude),
        )
        return self.add(op, name, [a, b], params)

    def affine(self, name: str, x: str, stage: str = "pwl") -> str:
        """Affine."""
        channels = self.shape(x)[0]
        zeros = np.zeros(channels, np.int16)
        k = self.random.integers(-100000, 100000, channels).astype(np.int32)
        m_a = self.random.integers(-32767, 32768, channels).astype(np.int16)
        params = EltwiseParams(
            m_a, zeros, self._int8(channels), zeros.astype(np.int8), k, self.stage(channels, stage, 1.5e6)
        )
        return self.add("Affine", name, [x], params, scale=[1.0] * channels, bias=[0.0] * channels)

    def finish(self, *outputs: str) -> QGraph:
        """One NPU partition with everything."""
        self.graph.outputs = list(outputs)
        self.graph.partitions = [
            Partition("NPU", [n.name for n in self.graph.nodes], list(self.graph.inputs), list(outputs))
        ]
        return self.qgraph

    def feeds(self) -> dict[str, np.ndarray]:
        """Random int8 [1, H, W, C] for every input."""
        result = {}
        for name in self.graph.inputs:
            c, h, w = self.shape(name)
            result[name] = self.random.integers(-128, 128, (1, h, w, c)).astype(np.int8)
        return result


def expected(qgraph: QGraph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor's bits from the operators' integer semantics."""
    values = dict(feeds)
    for node in qgraph.graph.nodes:
        inputs = [values[t] for t in node.inputs if t in values]
        values[node.outputs[0]] = operator.get(node).integer(node, inputs, qgraph)
    return values
