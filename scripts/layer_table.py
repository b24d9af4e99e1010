"""Bundled networks as a table of layers, and the table as ONNX nodes. The trainers build their modules from the same table (`layer_modules.py`).

numpy and onnx only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

EPSILON = 1e-5  # of the batch normalisations
SLOPE = 0.1  # of LeakyReLU


@dataclass(frozen=True)
class Layer:
    """One row. The layer's name is also its output's.

    kind: `conv` (+ BN + activation), `up` (transposed convolution 2x2, stride 2, + BN + activation), `head` (1x1 convolution with bias, nothing
    behind), `add`, `concat` (channels), `nearest` (twice the size), `pool` (largest of kernel x kernel, stride 1, same size).
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    channels_in: int = 0
    channels_out: int = 0
    kernel: int = 1
    stride: int = 1


def residual(name: str, source: str, channels: int, inner: int) -> list[Layer]:
    """1x1 to `inner` channels, 3x3 back to `channels`, plus the block's input."""
    return [
        Layer(f"{name}_reduce", "conv", (source,), channels, inner),
        Layer(f"{name}_expand", "conv", (f"{name}_reduce",), inner, channels, 3),
        Layer(name, "add", (source, f"{name}_expand")),
    ]


class GraphBuilder:
    """Nodes and initialisers of an ONNX graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initialisers: list[onnx.TensorProto] = []

    def constant(self, name: str, values: np.ndarray) -> str:
        """The initialiser's name."""
        self.initialisers.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: Any) -> None:
        """Appends a node."""
        self.nodes.append(helper.make_node(kind, list(inputs), list(outputs), name, **attributes))

    def layers(self, layers: Sequence[Layer], weights: Mapping[str, np.ndarray], activation: str) -> None:
        """The table with its weights: `<layer>.weight`, and `.bias` (heads) or `.gamma`, `.beta`, `.mean`, `.variance` (the others).

        activation: `LeakyRelu` (slope SLOPE) or `Silu` (Sigmoid and Mul, as exporters write it).
        """

        def weight(name: str) -> str:
            return self.constant(name, weights[name].astype(np.float32, copy=False))

        for layer in layers:
            name, inputs = layer.name, list(layer.inputs)
            size: dict[str, Any] = {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2}
            pads = [layer.kernel // 2] * 4
            if layer.kind == "add":
                self.node("Add", inputs, [name], name)
            elif layer.kind == "concat":
                self.node("Concat", inputs, [name], name, axis=1)
            elif layer.kind == "nearest":
                inputs += ["", self.constant(f"{name}.scales", np.array([1, 1, 2, 2], np.float32))]
                modes = {
                    "mode": "nearest",
                    "coordinate_transformation_mode": "asymmetric",
                    "nearest_mode": "floor",
                }
                self.node("Resize", inputs, [name], name, **modes)
            elif layer.kind == "pool":
                self.node("MaxPool", inputs, [name], name, pads=pads, **size)
            elif layer.kind == "head":
                inputs += [weight(f"{name}.weight"), weight(f"{name}.bias")]
                self.node("Conv", inputs, [name], f"{name}.conv", kernel_shape=[1, 1])
            else:
                inputs.append(weight(f"{name}.weight"))
                if layer.kind == "up":
                    self.node("ConvTranspose", inputs, [f"{name}.sum"], f"{name}.conv", **size)
                else:
                    self.node("Conv", inputs, [f"{name}.sum"], f"{name}.conv", pads=pads, **size)
                normal = [f"{name}.sum"] + [weight(f"{name}.{p}") for p in ("gamma", "beta", "mean", "variance")]
                self.node("BatchNormalization", normal, [f"{name}.normal"], f"{name}.bn", epsilon=EPSILON)
                self._activation(activation, name)

    def _activation(self, activation: str, name: str) -> None:
        if activation == "LeakyRelu":
            self.node("LeakyRelu", [f"{name}.normal"], [name], f"{name}.act", alpha=SLOPE)
        else:
            self.node("Sigmoid", [f"{name}.normal"], [f"{name}.gate"], f"{name}.sigmoid")
            self.node("Mul", [f"{name}.normal", f"{name}.gate"], [name], f"{name}.act")
