"""The bundled network for oriented boxes: one table of layers from which the trainer builds its modules and `build_onnx` the ONNX file.

Convolution + batch normalisation + SiLU, residual blocks, three poolings in a row (SPPF), a path up (nearest resize) and one down again, two
anchor-free heads (stride 16 and 32). A head gives box, class scores and the angle as (sin 2a, cos 2a), which does not jump where -90 degrees meets
90; the graph decodes them (`npuforge::AngleDecode`) into rows of centre, size, scores and angle, as YOLO-OBB is exported. numpy and onnx only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from npuforge.scripts.layer_table import GraphBuilder, Layer, residual
from npuforge.scripts.scenes.parts import CLASS_NAMES

IMAGE_SIZE = 256
STRIDES = (16, 32)
PARTS = {"boxes": 4, "classes": len(CLASS_NAMES), "codes": 2}  # maps of a head and their channels
HEADS = [f"{part}{stride}" for stride in STRIDES for part in PARTS]
CELLS = sum((IMAGE_SIZE // stride) ** 2 for stride in STRIDES)

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
    Layer("narrow", "conv", ("block4",), 112, 48),
    Layer("pool1", "pool", ("narrow",), kernel=5),
    Layer("pool2", "pool", ("pool1",), kernel=5),
    Layer("pool3", "pool", ("pool2",), kernel=5),
    Layer("pyramid", "concat", ("narrow", "pool1", "pool2", "pool3")),
    Layer("neck32", "conv", ("pyramid",), 192, 64),
    Layer("up16", "nearest", ("neck32",)),
    Layer("join16", "concat", ("up16", "block3")),
    Layer("neck16", "conv", ("join16",), 144, 64),
    Layer("feature16", "conv", ("neck16",), 64, 80, 3),
    Layer("down32", "conv", ("neck16",), 64, 48, 3, 2),
    Layer("join32", "concat", ("down32", "neck32")),
    Layer("mix32", "conv", ("join32",), 112, 64),
    Layer("feature32", "conv", ("mix32",), 64, 80, 3),
    *(Layer(f"{p}{s}", "head", (f"feature{s}",), 80, channels) for s in STRIDES for p, channels in PARTS.items()),
]


def cells() -> tuple[np.ndarray, np.ndarray]:
    """Of all strides, row by row: centres in pixels float32 [2, CELLS] (x, y), strides float32 [CELLS]."""
    centres, steps = [], []
    for stride in STRIDES:
        axis = (np.arange(IMAGE_SIZE // stride, dtype=np.float32) + 0.5) * stride
        x, y = np.meshgrid(axis, axis)
        centres.append(np.stack([x.ravel(), y.ravel()]))
        steps.append(np.full(x.size, stride, np.float32))
    return np.concatenate(centres, 1), np.concatenate(steps)


def build_onnx(weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The network with its weights (names: `GraphBuilder.layers`).

    Output `predictions` [1, 4 + classes + 1, CELLS]: centre = cell's centre + p * stride, size = exp(p) * stride, sigmoid of the classes, angle in
    radians, clockwise in the image, in [-pi/2, pi/2).
    """
    graph = GraphBuilder()
    graph.layers(LAYERS, weights, "Silu")
    for part, channels in PARTS.items():
        rows = []
        for stride in STRIDES:
            shape = graph.constant(f"{part}{stride}.shape", np.array([1, channels, -1], np.int64))
            graph.node("Reshape", [f"{part}{stride}", shape], [f"{part}{stride}.rows"], f"{part}{stride}.rows")
            rows.append(f"{part}{stride}.rows")
        graph.node("Concat", rows, [part], part, axis=2)
    centres, steps = cells()
    step, origin = graph.constant("stride", steps[None, None]), graph.constant("origin", centres[None])
    graph.node("Split", ["boxes"], ["shift", "extent"], "split", axis=1)
    graph.node("Mul", ["shift", step], ["shift.pixels"], "shift.pixels")
    graph.node("Add", ["shift.pixels", origin], ["centres"], "centres")
    graph.node("Exp", ["extent"], ["extent.cells"], "extent.cells")
    graph.node("Mul", ["extent.cells", step], ["sizes"], "sizes")
    graph.node("Sigmoid", ["classes"], ["scores"], "scores")
    graph.node("AngleDecode", ["codes"], ["angles"], "angles", domain="npuforge", axis=1)
    graph.node("Concat", ["centres", "sizes", "scores", "angles"], ["predictions"], "predictions", axis=1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, IMAGE_SIZE, IMAGE_SIZE])
    values = [1, 4 + len(CLASS_NAMES) + 1, CELLS]
    output = helper.make_tensor_value_info("predictions", TensorProto.FLOAT, values)
    made = helper.make_graph(graph.nodes, "parts_obb", [image], [output], graph.initialisers)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("npuforge", 1)]
    model = helper.make_model(made, opset_imports=opsets, producer_name="npuforge", ir_version=8)
    helper.set_model_props(model, {"class_names": ",".join(CLASS_NAMES), "task": "obb"})
    onnx.checker.check_model(model)
    return model
