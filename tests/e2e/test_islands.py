"""What would be an island on the CPU between convolutions, on the NPU instead: a pixel shuffle and an MLP over tokens, compiled and run, every bit as the integer graph says."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile import pipeline
from npuforge.compile.context import Options
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.hw_kernels import arch
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.comparison import compare

SIDE, MAP = 40, 20
RNG = np.random.default_rng(4)


def weight(*shape: int, inputs: int) -> np.ndarray:
    return RNG.normal(0, 1 / np.sqrt(inputs), shape).astype(np.float32)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolution, tokens, MLP with a residual, map, pixel shuffle, convolution."""
    constants = {
        "w1": weight(32, 3, 3, 3, inputs=27),
        "up": weight(32, 64, inputs=32),
        "down": weight(64, 32, inputs=64),
        "bias": weight(64, inputs=4),
        "w2": weight(4, 8, 3, 3, inputs=72),
        "flat": np.array([1, 32, MAP * MAP]),
        "map": np.array([1, 32, MAP, MAP]),
    }
    nodes = [
        ("Conv", ["x", "w1"], "a", {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}),
        ("Relu", ["a"], "b", {}),
        ("Reshape", ["b", "flat"], "c", {}),
        ("Transpose", ["c"], "t", {"perm": [0, 2, 1]}),
        ("MatMul", ["t", "up"], "d", {}),
        ("Add", ["d", "bias"], "e", {}),
        ("Gelu", ["e"], "f", {}),
        ("MatMul", ["f", "down"], "g", {}),
        ("Add", ["t", "g"], "h", {}),
        ("Transpose", ["h"], "i", {"perm": [0, 2, 1]}),
        ("Reshape", ["i", "map"], "j", {}),
        ("DepthToSpace", ["j"], "k", {"blocksize": 2, "mode": "CRD"}),
        ("Conv", ["k", "w2"], "y", {"kernel_shape": [3, 3], "pads": [1] * 4}),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, [output], name=output, **attrs) for op, inputs, output, attrs in nodes],
        "islands",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, SIDE, SIDE))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, SIDE, SIDE))],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    path = tmp_path_factory.mktemp("islands") / "islands.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.mark.parametrize("mode", ["fine", "pow2"])
def test_islands_are_pulled_in(network: Path, tmp_path: Path, mode: str) -> None:
    images = []
    for number in range(3):
        small = RNG.integers(0, 256, (9, 9, 3), dtype=np.uint8)
        images.append(tmp_path / f"{number}.png")
        cv2.imwrite(str(images[-1]), cv2.resize(small, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC))
    record = Preprocess(SIDE, SIDE, mean=[127.5] * 3, std=[64.0] * 3)
    options = Options(
        network, arch.load("nf-b1024"), tmp_path / "build", preprocess=record, calibration=images, mode=mode
    )
    compiled, _ = pipeline.compile_model(options)
    assert [p["device"] for p in compiled.meta["partitions"]] == ["NPU"]
    result = compare(open_build(tmp_path / "build"), images[:2], layer_images=1)
    assert result.differing == 0
    assert result.outputs.cosine > (0.999 if mode == "fine" else 0.99)
