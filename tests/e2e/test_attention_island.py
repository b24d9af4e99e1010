"""Attention between convolutions: its products and Softmax are an island on the CPU, and device and integer graph still agree in every bit."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile import pipeline
from npuforge.compile.context import Options
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.hw_kernels import arch
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.comparison import compare

SIDE, CHANNELS = 64, 32
TOKENS = (SIDE // 2) ** 2


def network(path: Path) -> None:
    """Convolution to q, k and v; Softmax(q·kᵀ)·v over 1024 tokens, sums long enough that their order shows; convolution."""
    random = np.random.default_rng(5)
    window = {"kernel_shape": [3, 3], "pads": [1] * 4}
    constants = {
        "w1": random.normal(0, 0.4, (CHANNELS, 3, 3, 3)).astype(np.float32),
        "w2": random.normal(0, 0.4, (3 * CHANNELS, CHANNELS, 1, 1)).astype(np.float32),
        "w3": random.normal(0, 0.1, (8, CHANNELS, 3, 3)).astype(np.float32),
        "tokens": np.array([1, 3 * CHANNELS, TOKENS]),
        "map": np.array([1, CHANNELS, SIDE // 2, SIDE // 2]),
        "scale": np.float32(CHANNELS**-0.5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="first", strides=[2, 2], **window),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="qkv", kernel_shape=[1, 1]),
        helper.make_node("Reshape", ["c", "tokens"], ["d"], name="flat"),
        helper.make_node("Split", ["d"], ["q", "k", "v"], name="split", axis=1, num_outputs=3),
        helper.make_node("Transpose", ["q"], ["qt"], name="transpose", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["qt", "k"], ["e"], name="scores"),
        helper.make_node("Mul", ["e", "scale"], ["f"], name="scaled"),
        helper.make_node("Softmax", ["f"], ["g"], name="softmax", axis=-1),
        helper.make_node("Transpose", ["g"], ["gt"], name="turned", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["v", "gt"], ["h"], name="mixed"),
        helper.make_node("Reshape", ["h", "map"], ["i"], name="map_again"),
        helper.make_node("Conv", ["i", "w3"], ["y"], name="last", **window),
    ]
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, SIDE, SIDE))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, SIDE // 2, SIDE // 2))],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def test_bits_behind_a_float_island(tmp_path: Path) -> None:
    network(tmp_path / "attention.onnx")
    random = np.random.default_rng(6)
    images = []
    for number in range(6):
        small = random.integers(0, 256, (9, 9, 3), dtype=np.uint8)
        images.append(tmp_path / f"{number}.png")
        cv2.imwrite(str(images[-1]), cv2.resize(small, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC))
    options = Options(
        tmp_path / "attention.onnx",
        arch.load("nf-b1024"),
        tmp_path / "build",
        preprocess=Preprocess(SIDE, SIDE, mean=[127.5] * 3, std=[64.0] * 3),
        calibration=images,
    )
    compiled, _ = pipeline.compile_model(options)
    assert [p["device"] for p in compiled.meta["partitions"]] == ["NPU", "CPU", "NPU"]
    result = compare(open_build(tmp_path / "build"), images, layer_images=1)
    assert sum(layer.values_compared for layer in result.data.layers if layer.name == "last") > 0
    assert result.differing == 0
    assert result.outputs.cosine > 0.99
