"""Small graphs that end as a detector's exporter ends them: what the tests of head recognition build on."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.graph import Graph
from npuforge.compile.steps import fold, fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition


class Net:
    """A graph on one image of 128 x 128: convolutions that give maps at a stride, and nodes behind them."""

    def __init__(self, side: int = 128) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.outputs: list[str] = []
        self.side, self.count = side, 0
        self.metadata: dict[str, str] = {}
        self._rng = np.random.default_rng(7)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"const{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, dtype=dtype), name))
        return name

    def node(self, op: str, *inputs: str, name: str = "", outputs: int = 1, **attributes: Any) -> str:
        self.count += 1
        names = [name or f"t{self.count}"] + [f"t{self.count}_{i}" for i in range(1, outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0]

    def map(self, stride: int, channels: int, name: str = "") -> str:
        """A convolution from the image straight to [1, channels, side / stride, side / stride]."""
        weight = self.constant(self._rng.standard_normal((channels, 3, 1, 1)), np.float32)
        return self.node("Conv", "image", weight, name=name, kernel_shape=[1, 1], strides=[stride, stride])

    def after(self, x: str, before: int, channels: int, kernel: int, group: int = 1) -> str:
        """A convolution that keeps the size of [1, before, h, w]."""
        weight = self.constant(self._rng.standard_normal((channels, before // group, kernel, kernel)), np.float32)
        return self.node("Conv", x, weight, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, group=group)

    def rows(self, x: str, values: int, name: str = "", per_cell: int = 1) -> str:
        """[1, per_cell · values, h, w] → [1, cells · per_cell, values]."""
        turned = self.node("Transpose", x, perm=[0, 2, 3, 1])
        return self.node("Reshape", turned, self.constant([1, -1, values]), name=name)

    def flat(self, x: str, channels: int) -> str:
        """[1, channels, h, w] → [1, channels, cells]."""
        return self.node("Reshape", x, self.constant([1, channels, -1]))

    def graph(self, *outputs: str) -> Graph:
        shown = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, self.side, self.side])
        body = helper.make_graph(self.nodes, "net", [image], shown, self.weights)
        model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        helper.set_model_props(model, self.metadata)
        return partition(fuse.run(fold.run(import_onnx(model).graph, None), None))
