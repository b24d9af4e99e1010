"""The bundled network's shape: one table of layers from which the trainer builds its modules and `build_onnx` the ONNX file.

A small YOLOv3: convolution + batch normalisation + LeakyReLU(0.1) throughout, residual blocks, a transposed convolution that doubles the
coarse map, two heads (stride 16 and 32, three anchors each) and one `npuforge::YoloDecode` behind them. numpy and onnx only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from npuforge.scripts.layer_table import GraphBuilder, Layer, residual
from npuforge.scripts.scenes.parts import CLASS_NAMES

IMAGE_SIZE = 256
STRIDES = (16, 32)
ANCHORS_PER_SCALE = 3
HEAD_CHANNELS = ANCHORS_PER_SCALE * (5 + len(CLASS_NAMES))


LAYERS: list[Layer] = [
    Layer("stem", "conv", ("image",), 3, 16, 3, 2),
    Layer("down1", "conv", ("stem",), 16, 32, 3, 2),
    *residual("block1", "down1", 32, 16),
    Layer("down2", "conv", ("block1",), 32, 64, 3, 2),
    *residual("block2", "down2", 64, 32),
    Layer("down3", "conv", ("block2",), 64, 80, 3, 2),
    *residual("block3", "down3", 80, 40),
    Layer("down4", "conv", ("block3",), 80, 112, 3, 2),
    *residual("block4", "down4", 112, 48),
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
    graph = GraphBuilder()
    graph.layers(LAYERS, weights, "LeakyRelu")
    flat = [float(v) for scale in anchors for pair in scale for v in pair]
    decode: dict[str, Any] = {"anchors": flat, "strides": list(STRIDES), "num_classes": len(CLASS_NAMES)}
    results = ["boxes", "scores", "classes"]
    graph.node("YoloDecode", HEADS, results, "decode", domain="npuforge", **decode)
    count = sum((IMAGE_SIZE // s) ** 2 * ANCHORS_PER_SCALE for s in STRIDES)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, IMAGE_SIZE, IMAGE_SIZE])
    shapes = {"boxes": [1, count, 4], "scores": [1, count], "classes": [1, count]}
    outputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in shapes.items()]
    made = helper.make_graph(graph.nodes, "parts_yolo", [image], outputs, graph.initialisers)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("npuforge", 1)]
    model = helper.make_model(made, opset_imports=opsets, producer_name="npuforge", ir_version=8)
    helper.set_model_props(model, {"class_names": ",".join(CLASS_NAMES)})
    onnx.checker.check_model(model)
    return model
