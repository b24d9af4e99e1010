"""The bundled network's shape: one table of layers from which the trainer builds its modules and `build_onnx` the ONNX file.

A small YOLOv3: convolution + batch normalisation + LeakyReLU(0.1) throughout, residual blocks, a transposed convolution that doubles the
coarse map, two heads (stride 16 and 32, three anchors each) and one `npuforge::YoloDecode` behind them. numpy and onnx only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuforge.scripts.scenes.parts import CLASS_NAMES

IMAGE_SIZE = 256
STRIDES = (16, 32)
ANCHORS_PER_SCALE = 3
SLOPE = 0.1
EPSILON = 1e-5
HEAD_CHANNELS = ANCHORS_PER_SCALE * (5 + len(CLASS_NAMES))


@dataclass(frozen=True)
class Layer:
    """kind: `conv` (+ BN + LeakyReLU), `up` (transposed convolution 2x2, stride 2, + BN + LeakyReLU), `head` (convolution with bias, nothing behind),
    `add`, `concat`. The layer's name is also its output's."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    channels_in: int = 0
    channels_out: int = 0
    kernel: int = 1
    stride: int = 1


def _residual(name: str, source: str, channels: int, inner: int) -> list[Layer]:
    return [
        Layer(f"{name}_reduce", "conv", (source,), channels, inner),
        Layer(f"{name}_expand", "conv", (f"{name}_reduce",), inner, channels, 3),
        Layer(name, "add", (source, f"{name}_expand")),
    ]


LAYERS: list[Layer] = [
    Layer("stem", "conv", ("image",), 3, 16, 3, 2),
    Layer("down1", "conv", ("stem",), 16, 32, 3, 2),
    *_residual("block1", "down1", 32, 16),
    Layer("down2", "conv", ("block1",), 32, 64, 3, 2),
    *_residual("block2", "down2", 64, 32),
    Layer("down3", "conv", ("block2",), 64, 80, 3, 2),
    *_residual("block3", "down3", 80, 40),
    Layer("down4", "conv", ("block3",), 80, 112, 3, 2),
    *_residual("block4", "down4", 112, 48),
    Layer("neck32", "conv", ("block4",), 112, 64),
    Layer("feature32", "conv", ("neck32",), 64, 96, 3),
    Layer("head32", "head", ("feature32",), 96, HEAD_CHANNELS),
    Layer("up16", "up", ("neck32",), 64, 48, 2, 2),
    Layer("join16", "concat", ("up16", "block3")),
    Layer("neck16", "conv", ("join16",), 128, 64),
    Layer("feature16", "conv", ("neck16",), 64, 96, 3),
    Layer("head16", "head", ("feature16",), 96, HEAD_CHANNELS),
]
HEADS = ("head16", "head32")  # in the order of STRIDES


def build_onnx(weights: Mapping[str, np.ndarray], anchors: Sequence[Sequence[Sequence[float]]]) -> onnx.ModelProto:
    """The network with its weights: `<layer>.weight`, and `.bias` (heads) or `.gamma`, `.beta`, `.mean`, `.variance` (the others).

    anchors: [scale][anchor] = (width, height) in input pixels.
    """
    nodes: list[onnx.NodeProto] = []
    initialisers: list[onnx.TensorProto] = []

    def constant(name: str) -> str:
        initialisers.append(numpy_helper.from_array(np.ascontiguousarray(weights[name], np.float32), name))
        return name

    for layer in LAYERS:
        name, inputs = layer.name, list(layer.inputs)
        if layer.kind == "add":
            nodes.append(helper.make_node("Add", inputs, [name], name))
        elif layer.kind == "concat":
            nodes.append(helper.make_node("Concat", inputs, [name], name, axis=1))
        elif layer.kind == "head":
            inputs += [constant(f"{name}.weight"), constant(f"{name}.bias")]
            nodes.append(helper.make_node("Conv", inputs, [name], f"{name}.conv", kernel_shape=[1, 1]))
        else:
            inputs.append(constant(f"{name}.weight"))
            size: dict[str, Any] = {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2}
            if layer.kind == "up":
                nodes.append(helper.make_node("ConvTranspose", inputs, [f"{name}.sum"], f"{name}.conv", **size))
            else:
                pads = [layer.kernel // 2] * 4
                nodes.append(helper.make_node("Conv", inputs, [f"{name}.sum"], f"{name}.conv", pads=pads, **size))
            normal = [f"{name}.sum"] + [constant(f"{name}.{p}") for p in ("gamma", "beta", "mean", "variance")]
            nodes.append(
                helper.make_node("BatchNormalization", normal, [f"{name}.normal"], f"{name}.bn", epsilon=EPSILON)
            )
            nodes.append(helper.make_node("LeakyRelu", [f"{name}.normal"], [name], f"{name}.act", alpha=SLOPE))
    flat = [float(v) for scale in anchors for pair in scale for v in pair]
    decode: dict[str, Any] = {"anchors": flat, "strides": list(STRIDES), "num_classes": len(CLASS_NAMES)}
    results = ["boxes", "scores", "classes"]
    nodes.append(helper.make_node("YoloDecode", list(HEADS), results, "decode", domain="npuforge", **decode))
    count = sum((IMAGE_SIZE // s) ** 2 * ANCHORS_PER_SCALE for s in STRIDES)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, IMAGE_SIZE, IMAGE_SIZE])
    shapes = {"boxes": [1, count, 4], "scores": [1, count], "classes": [1, count]}
    outputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in shapes.items()]
    graph = helper.make_graph(nodes, "parts_yolo", [image], outputs, initialisers)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("npuforge", 1)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="npuforge", ir_version=8)
    helper.set_model_props(model, {"class_names": ",".join(CLASS_NAMES)})
    onnx.checker.check_model(model)
    return model
