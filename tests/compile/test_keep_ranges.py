"""Both ends of a quantised model's range where a node stays in float: ONNX Runtime's quantiser deletes the Clip that the range replaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.dequantise import forget_scales
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.keep_ranges import keep_ranges
from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.rewrite import Editor
from npuforge.compile.steps.verify import verify

CPU = ["CPUExecutionProvider"]
PAIRED = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def image(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).uniform(0, 1, (1, 3, 12, 12)).astype(np.float32)}


class Images(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self.left = [image(i) for i in range(8)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def quantised(folder: Path, low: float, high: float, activation: QuantType) -> Path:
    """Two convolutions, their sum clipped: a tail that no convolution follows, hence float on the CPU. The sum goes far beyond the Clip."""
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": (3 * rng.normal(size=(8, 8, 3, 3))).astype(np.float32),
        "u": (3 * rng.normal(size=(8, 8, 3, 3))).astype(np.float32),
        "low": np.float32(low),
        "high": np.float32(high),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], **PAIRED),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["c"], **PAIRED),
        helper.make_node("Conv", ["r", "u"], ["d"], **PAIRED),
        helper.make_node("Add", ["c", "d"], ["s"]),
        helper.make_node("Clip", ["s", "low", "high"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 12, 12])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "float.onnx")
    form = {"quant_format": QuantFormat.QDQ, "activation_type": activation, "weight_type": QuantType.QInt8}
    quantize_static(str(folder / "float.onnx"), str(folder / "q.onnx"), Images(), **form)
    operators = [n.op_type for n in onnx.load(folder / "q.onnx").graph.node]
    assert "Clip" not in operators and "QuantizeLinear" in operators  # else this tests nothing
    return folder / "q.onnx"


@pytest.mark.parametrize("activation", [QuantType.QUInt8, QuantType.QInt8], ids=str)
@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-2.0, 2.0), (0.0, 3.5), (-5.0, 1.0)])
def test_a_float_tail_keeps_both_ends(tmp_path: Path, low: float, high: float, activation: QuantType) -> None:
    path = quantised(tmp_path, low, high, activation)
    graph = partition(fuse(fold(import_onnx(path).graph)), calibrated=False)
    verify(graph, "partition")
    assert [p.device for p in graph.partitions] == ["NPU", "CPU"]
    assert not keep_ranges(Editor(graph))  # once is enough
    session = onnxruntime.InferenceSession(path, providers=CPU)
    ours = GraphExecutor(graph, providers=CPU)
    for seed in (100, 101):
        expected, found = session.run(None, image(seed))[0], ours.run(image(seed))["y"]
        assert (expected == expected.max()).mean() > 0.1  # it does saturate
        assert abs(found.max() - expected.max()) < 1e-5
        assert abs(found.min() - expected.min()) < 1e-5
        assert np.abs(found - expected).mean() < 0.05 * (high - low)


def test_relu6_comes_back_without_the_scales(tmp_path: Path) -> None:
    """Where calibration chooses new scales, the activation that the range replaced is still the network's."""
    path = quantised(tmp_path, 0.0, 6.0, QuantType.QUInt8)
    graph = import_onnx(path).graph
    forget_scales(graph)
    found = GraphExecutor(partition(fuse(fold(graph))), providers=CPU).run(image(100))["y"]
    assert found.min() == 0.0 and found.max() == 6.0


def test_what_another_reader_sees_is_not_clipped(build, weights) -> None:
    """A tensor that is read in front of the pair too keeps its values there."""
    pair = {"s": np.float32(0.01), "z": np.int8(0)}
    nodes = [
        ("Conv", ["x", "w"], ["t"], {"kernel_shape": [1, 1]}),
        ("Neg", ["t"], ["n"], {}),
        ("Neg", ["n"], ["free"], {}),
        ("QuantizeLinear", ["n", "s", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
        ("Neg", ["d"], ["y"], {}),
    ]
    model = build(nodes, constants={"w": weights(3, 4, 1, 1), **pair}, outputs=["y", "free"])
    graph = partition(fuse(fold(import_onnx(model).graph)))
    x = 10 * np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=CPU).run(["free"], {"x": x})[0]
    assert np.abs(GraphExecutor(graph, providers=CPU).run({"x": x})["free"] - expected).max() < 1e-4
