"""Quantised weights that constant nodes compute are the integers that the chain gives; pairs between float convolutions are ranges, not a quantised model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.graph import Graph
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition

WEIGHT = np.random.default_rng(4).integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)
SCALES = np.linspace(0.001, 0.004, 8).astype(np.float32)
node = helper.make_node


def pair(x: str, scale: str, zero: str, y: str) -> list[onnx.NodeProto]:
    return [
        node("QuantizeLinear", [x, scale, zero], [f"{y}_q"]),
        node("DequantizeLinear", [f"{y}_q", scale, zero], [y]),
    ]


def prepared(nodes: list[onnx.NodeProto], constants: dict[str, Any], calibrated: bool = True) -> Graph:
    values = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "zw": np.int8(0),
        "zs": np.zeros(8, np.int8),
        "sw": SCALES,
    } | constants
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return partition(fuse(fold(import_onnx(model).graph)), calibrated=calibrated)


CONV = node("Conv", ["xd", "w"], ["c"], "conv", kernel_shape=[3, 3], pads=[1] * 4)
CHAINS: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "transpose": (
        [
            node("DequantizeLinear", ["q", "sw", "zs"], ["d"], axis=3),
            node("Transpose", ["d"], ["w"], perm=[3, 2, 0, 1]),
        ],
        {"q": np.ascontiguousarray(WEIGHT.transpose(2, 3, 1, 0))},
    ),
    "transposed integers": (
        [
            node("Transpose", ["q"], ["t"], perm=[3, 2, 0, 1]),
            node("DequantizeLinear", ["t", "sw", "zs"], ["w"], axis=0),
        ],
        {"q": np.ascontiguousarray(WEIGHT.transpose(2, 3, 1, 0))},
    ),
    "reshape to a computed shape": (
        [
            node("Concat", ["front", "back"], ["shape"], axis=0),
            node("DequantizeLinear", ["q", "sw", "zs"], ["d"], axis=0),
            node("Reshape", ["d", "shape"], ["w"]),
        ],
        {"q": WEIGHT.reshape(8, 27), "front": np.array([8, 3]), "back": np.array([3, 3])},
    ),
    "scale of two constants": (
        [node("Mul", ["sw", "half"], ["sc"]), node("DequantizeLinear", ["q", "sc", "zs"], ["w"], axis=0)],
        {"q": WEIGHT, "sw": SCALES * 2, "half": np.float32(0.5)},
    ),
    "times one": (
        [node("DequantizeLinear", ["q", "sw", "zs"], ["d"], axis=0), node("Mul", ["d", "one"], ["w"])],
        {"q": WEIGHT, "one": np.float32(1)},
    ),
    "quantised by the graph": (
        [
            node("QuantizeLinear", ["f", "sw", "zs"], ["q"], axis=0),
            node("DequantizeLinear", ["q", "sw", "zs"], ["w"], axis=0),
        ],
        {"f": WEIGHT * SCALES[:, None, None, None]},
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_weights_of_constant_chains_keep_their_integers(chain: str) -> None:
    nodes, constants = CHAINS[chain]
    graph = prepared([*pair("x", "s", "z", "xd"), *nodes, CONV, *pair("c", "s", "z", "y")], constants, calibrated=False)
    conv = next(n for n in graph.nodes if n.op == "Conv")
    assert conv.device == "NPU" and conv.weight_scale is not None
    np.testing.assert_allclose(conv.weight_scale, SCALES.astype(np.float64), rtol=1e-6)
    integers = graph.constants[conv.inputs[1]].astype(np.float64) / conv.weight_scale[:, None, None, None]
    np.testing.assert_allclose(integers, WEIGHT, atol=1e-3)


@pytest.mark.parametrize("where", ["before the last", "behind the input", "before the output"])
def test_a_pair_between_float_convolutions_leaves_all_on_the_npu(where: str) -> None:
    """Inspect (no images given) shows what compile does with the images that it needs anyway."""
    rng = np.random.default_rng(1)
    first = node(
        "Conv", ["xd" if where == "behind the input" else "x", "w1"], ["a"], "first", kernel_shape=[3, 3], pads=[1] * 4
    )
    last = node("Conv", ["ad" if where == "before the last" else "a", "w2"], ["c" if where == "before the output" else "y"], "last",
                kernel_shape=[1, 1])  # fmt: skip
    order = {
        "before the last": [first, *pair("a", "s", "z", "ad"), last],
        "behind the input": [*pair("x", "s", "z", "xd"), first, last],
        "before the output": [first, last, *pair("c", "s", "z", "y")],
    }[where]
    weights = {"w1": rng.standard_normal((8, 3, 3, 3)), "w2": rng.standard_normal((4, 8, 1, 1))}
    graph = prepared(order, {k: v.astype(np.float32) for k, v in weights.items()}, calibrated=False)
    assert [(n.name, n.device) for n in graph.nodes if n.op == "Conv"] == [("first", "NPU"), ("last", "NPU")]
    assert graph.grids  # its range is taken over all the same


def test_a_quantised_model_may_leave_its_last_convolution_in_float() -> None:
    """Weights of the first are integers, no images: the last one runs as the model says."""
    nodes, constants = CHAINS["times one"]
    last = node("Conv", ["ad", "w2"], ["y"], "last", kernel_shape=[1, 1])
    given = constants | {"w2": np.ones((4, 8, 1, 1), np.float32)}
    order = [*pair("x", "s", "z", "xd"), *nodes, CONV, *pair("c", "s", "z", "ad"), last]
    for calibrated, device in ((False, "CPU"), (True, "NPU")):
        graph = prepared(order, given, calibrated)
        assert next(n for n in graph.nodes if n.name == "last").device == device
