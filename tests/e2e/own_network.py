"""A small network of the kit's own operators as an ONNX model. Shared by the end-to-end and the binding tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """A chain of nodes on one feature map."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(8)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = "input"

    def add(self, op: str, constants: list[np.ndarray] | None = None, outputs: int = 1, **attrs: Any) -> None:
        domain, _, op_type = op.rpartition("::")
        name = f"n{len(self.nodes)}"
        names = [f"{name}_{i}" for i in range(len(constants or []))]
        self.constants += [
            numpy_helper.from_array(c.astype(np.float32), n) for c, n in zip(constants or [], names, strict=True)
        ]
        results = [f"{name}_out", *(f"{name}_extra{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, [self.last, *names], results, name=name, domain=domain, **attrs))
        self.last = results[0]

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.normal(0, 1 / np.sqrt(np.prod(shape[1:]) or 1), shape)

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "own",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 12, 10])],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)],
            self.constants,
        )
        opsets = [("", 18), ("npuforge", 1), ("com.example", 1)]
        return helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in opsets], ir_version=9)


def network() -> onnx.ModelProto:
    b = Builder()
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    channel = [b.normal(8) for _ in range(4)] + [b.random.uniform(0.5, 2, 8)]
    b.add("npuforge::ConvBnLeakyRelu", [b.normal(8, 3, 3, 3), *channel], alpha=0.1, **window)
    b.add("npuforge::RotatedConv", [b.normal(4, 4, 3, 3), b.normal(4)], rotations=4, group=2, **window)
    b.add("npuforge::Silu")
    b.add("Conv", [b.normal(20, 16, 1, 1), b.normal(20)])
    b.add("npuforge::LeakyReluMask", outputs=2, alpha=0.3)
    b.add("Conv", [b.normal(20, 20, 1, 1), b.normal(20)])
    b.add("npuforge::ModSigmoid", [b.normal(20, 1, 1)])
    b.add("Conv", [b.normal(9, 20, 1, 1), b.normal(9)])
    b.add("npuforge::ClipSigmoid")
    b.add("Conv", [b.normal(9, 9, 1, 1), b.normal(9)])
    b.add("com.example::CustomGELU")
    b.add("Conv", [b.normal(5, 9, 1, 1), b.normal(5)])
    return b.model()
