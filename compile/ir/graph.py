"""The network between the import and the code generator: `Graph`, `Node`, `TensorInfo`. Pure data, imports nothing of ours.

Tensor shapes are as in ONNX (N, C, H, W for feature maps). Tensors are named; a name has one producer. Constants are numpy
arrays in `Graph.constants`. `Node.op` is the operator in the kit's vocabulary, `Conv` or `com.example::CustomGELU`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class TensorInfo:
    """Name, static shape (ONNX order) and numpy dtype name of one tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass
class Activation:
    """The function fused behind a compute node.

    kind: `none`, `Relu`, `Clip` (low, high), `LeakyRelu` (alpha), `PRelu` (slope per channel), all piecewise-linear; or a
    curve evaluated by table: `Silu`, `SiluPolynomial`, `Sigmoid`, `Tanh`, `Gelu`, `CustomGELU`, `Mish`, `HardSwish`, `HardSigmoid` (alpha, beta),
    `ClipSigmoid`, `Softplus`, `Erf`, `Elu` (alpha).
    """

    kind: str = "none"
    alpha: float = 0.0
    beta: float = 0.0
    low: float = float("-inf")
    high: float = float("inf")
    slope: np.ndarray | None = None


@dataclass
class Grid:
    """Scales that a quantised model brings: real = (q - zero_point) * scale.

    scale float64 and zero_point int64 have one entry, or one per index of `axis`. Of an activation q is int8 in [-128, 127] (an unsigned file's
    zero point is shifted by 128) and the axis is the channels'; of a constant q is the file's own integer. `saturates`: every reader of the activation
    gets it with the ends of this range, as a pair of QuantizeLinear and DequantizeLinear behind it did.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int = 1
    saturates: bool = False


@dataclass
class Node:
    """One operator application. `sources` are the ONNX node names it came from (never empty after import).

    `weight_scale` float64 [O]: of a convolution whose weights a quantised model brings as integers; each weight is a whole multiple of it.
    """

    name: str
    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    activation: Activation = field(default_factory=Activation)
    sources: list[str] = field(default_factory=list)
    device: str = ""  # "NPU" or "CPU" after the partition step
    reason: str = ""  # why the node is on the CPU
    weight_scale: np.ndarray | None = None


@dataclass
class Partition:
    """A run of nodes on one device, in execution order; tensors that cross its border."""

    device: str
    nodes: list[str]
    inputs: list[str]
    outputs: list[str]


@dataclass
class Graph:
    """Nodes in topological order, tensors by name, constants, graph inputs and outputs (names)."""

    name: str
    nodes: list[Node]
    tensors: dict[str, TensorInfo]
    constants: dict[str, np.ndarray]
    inputs: list[str]
    outputs: list[str]
    opset: int = 0
    input_layout: dict[str, str] = field(
        default_factory=dict
    )  # "NHWC" where the ONNX input is; shapes here stay N, C, H, W
    partitions: list[Partition] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)  # what the exporter wrote into the file (class names, task)
    grids: dict[str, Grid] = field(default_factory=dict)  # by tensor: the scales of a model that is quantised already
    fixed_tail: bool = False  # hardware other than our NPU takes operators behind the last convolution

    def producer(self, tensor: str) -> Node | None:
        """The node that writes `tensor`, None for graph inputs and constants."""
        return next((n for n in self.nodes if tensor in n.outputs), None)

    def consumers(self, tensor: str) -> list[Node]:
        """The nodes that read `tensor`, in order."""
        return [n for n in self.nodes if tensor in n.inputs]

    def node(self, name: str) -> Node:
        """The node called `name`; KeyError otherwise."""
        for n in self.nodes:
            if n.name == name:
                return n
        raise KeyError(name)

    def activations(self) -> Iterator[str]:
        """Names of all non-constant tensors: inputs first, then node outputs in order."""
        yield from self.inputs
        for n in self.nodes:
            yield from n.outputs
