"""TensorFlow, channels last, with the kit's operators → ONNX by tf2onnx → import → integers → devices: same numbers as TensorFlow at every stage.

Run where TensorFlow and tf2onnx are: `pip install npuforge[tensorflow]`. The op library takes minutes to build, so the tests are marked `full`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ladder import Quantised, climb, compile_graph

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: pip install npuforge[tensorflow]")
pytest.importorskip("tf2onnx", reason="tf2onnx is not installed: pip install npuforge[tensorflow]")
import tensorflow as tf

from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import ModelError, UnsupportedError, UsageError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.bindings.tensorflow_onnx import to_onnx
from npuforge.hw_kernels.bindings.tensorflow_ops import run
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor
from npuforge.quant.quantize import quantize

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.usefixtures("tensorflow_library"),
]
IMAGE = tf.TensorSpec([1, 16, 16, 3], tf.float32, name="image")
NODES = {  # what has to be in the file, and whose own kernel runs in TensorFlow
    "Silu", "SiluPolynomial", "ClipSigmoid", "LeakyReluMask", "YoloDecode", "AngleEncode", "AngleDecode", "RotatedIou", "RotatedNms", "RotatedRoiAlign",
    "CsrMatMul", "AlignNhwc16", "UnalignNhwc16",
}  # fmt: skip
PARTS = {"ModSigmoid", "ConvBnLeakyRelu", "RotatedConv"}  # called by what they lower to


class Network(tf.Module):
    """A backbone of convolutions with element-wise operators of the kit, and heads behind it, a use of each other operator."""

    def __init__(self) -> None:
        super().__init__()
        random = np.random.default_rng(4)

        def variable(*shape: int, fan: int = 1) -> Any:
            return tf.Variable(random.normal(size=shape, scale=fan**-0.5).astype(np.float32))

        self.first, self.bias = variable(3, 3, 3, 16, fan=27), variable(16)
        self.gate, self.value = variable(1, 1, 16, 16, fan=16), variable(3, 3, 16, 16, fan=144)
        self.narrow, self.threshold = variable(3, 3, 16, 8, fan=144), variable(8)
        self.up = variable(2, 2, 8, 8, fan=32)
        self.fused = [variable(8, 8, 3, 3, fan=72), *(variable(8) for _ in range(4)), tf.Variable(tf.fill([8], 1.5))]
        self.turned, self.turned_bias = variable(2, 8, 3, 3, fan=72), variable(2)
        self.head, self.rows = variable(1, 1, 8, 7, fan=8), variable(1, 1, 8, 5, fan=8)
        self.sparse = variable(6)

    @tf.function(input_signature=[IMAGE])
    def backbone(self, image: Any) -> Any:
        """[1, 8, 8, 8] channels last."""
        x = tf.nn.conv2d(image, self.first, 2, "SAME") + self.bias
        x = run("npuforge::Silu", x)
        gate = run("npuforge::ClipSigmoid", tf.nn.conv2d(x, self.gate, 1, "SAME"))
        x = run("com.example::CustomGELU", tf.nn.conv2d(x, self.value, 1, "SAME")) * gate
        x = tf.nn.relu(tf.nn.conv2d(x, self.narrow, 2, "SAME"))
        x = run("npuforge::ModSigmoid", tf.nn.conv2d_transpose(x, self.up, [1, 8, 8, 8], 2), self.threshold)
        first = tf.transpose(x, [0, 3, 1, 2])
        window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        first = run("npuforge::ConvBnLeakyRelu", first, *self.fused, alpha=0.1, **window)
        first = run("npuforge::RotatedConv", first, self.turned, self.turned_bias, rotations=4, **window)
        x = tf.transpose(first, [0, 2, 3, 1])
        return run("npuforge::LeakyReluMask", x, outputs=2, alpha=0.3)[0]

    @tf.function(input_signature=[IMAGE])
    def __call__(self, image: Any) -> dict[str, Any]:
        x = self.backbone(image)
        first = tf.transpose(x, [0, 3, 1, 2])
        _, mask = run("npuforge::LeakyReluMask", first, outputs=2, alpha=0.25)
        maps = tf.transpose(tf.nn.conv2d(x, self.head, 1, "SAME"), [0, 3, 1, 2])
        boxes, scores, classes = run(
            "npuforge::YoloDecode", maps, outputs=3, anchors=[6, 9], strides=[2], num_classes=2
        )
        raw = tf.reshape(tf.nn.conv2d(x, self.rows, 1, "SAME"), [64, 5])
        angle = run("npuforge::AngleDecode", run("npuforge::AngleEncode", raw[:, 4:], axis=-1), axis=-1)
        rotated = tf.concat([4.0 * tf.sigmoid(raw[:, :2]) + 2.0, tf.abs(raw[:, 2:4]) + 1.0, angle], 1)
        regions = tf.concat([tf.zeros([3, 1]), rotated[:3]], 1)
        columns, pointers = tf.constant([0, 63, 5, 9, 0, 31], tf.int64), tf.constant([0, 2, 2, 6], tf.int64)
        return {
            "features": run("npuforge::UnalignNhwc16", run("npuforge::AlignNhwc16", first), channels=8),
            "polynomial": run("npuforge::SiluPolynomial", first), "mask": mask,
            "boxes": boxes, "scores": scores, "classes": classes,
            "overlap": run("npuforge::RotatedIou", rotated, rotated[:4]),
            "kept": run("npuforge::RotatedNms", rotated, tf.transpose(tf.sigmoid(raw[:, :2])), iou_threshold=0.3, score_threshold=0.2),
            "aligned": run("npuforge::RotatedRoiAlign", first, regions, output_height=2, output_width=3, sampling_ratio=2),
            "sums": run("npuforge::CsrMatMul", rotated, self.sparse, columns, pointers),
        }  # fmt: skip


def images(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(8)
    return [random.normal(size=(1, 16, 16, 3)).astype(np.float32) for _ in range(count)]


def placed(model: onnx.ModelProto) -> Graph:
    return partition(fuse(fold(import_onnx(model).graph)))


def feed(graph: Graph, image: np.ndarray) -> dict[str, np.ndarray]:
    """As the graph reads it: channels first inside, whatever the file had."""
    (name,) = graph.inputs
    return {name: image.transpose(0, 3, 1, 2) if graph.input_layout.get(name) == "NHWC" else image}


@pytest.fixture(scope="module")
def network() -> Network:
    return Network()


@pytest.fixture(scope="module")
def model(network: Network) -> onnx.ModelProto:
    return to_onnx(network.__call__)


@pytest.fixture(scope="module")
def graph(model: onnx.ModelProto) -> Graph:
    return placed(model)


def test_every_operator_of_the_kit_is_in_the_file(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model)
    found = {(n.domain, n.op_type) for n in model.graph.node if n.domain}
    assert found == {("npuforge", name) for name in NODES} | {("com.example", "CustomGELU")}
    own = {name.split("::")[1] for name in operator.registry() if "::" in name}
    assert own == NODES | PARTS | {"CustomGELU"}, "an operator is not in this network"
    assert {entry.domain for entry in model.opset_import} == {"", "npuforge", "com.example"}


def test_attributes_are_those_of_the_call(model: onnx.ModelProto) -> None:
    nodes = {n.op_type: n for n in model.graph.node}
    values = {n: {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} for n, node in nodes.items()}
    assert values["YoloDecode"] == {"anchors": [6, 9], "strides": [2], "num_classes": 2}
    assert values["LeakyReluMask"] == {"alpha": 0.25} and len(nodes["LeakyReluMask"].output) == 2
    assert values["RotatedNms"] == {"iou_threshold": pytest.approx(0.3), "score_threshold": pytest.approx(0.2)}
    assert values["Silu"] == {}


def test_import_gives_tensorflows_numbers(network: Network, graph: Graph) -> None:
    for image in images(2):
        expected = network(image)
        assert sorted(graph.outputs) == sorted(expected)
        values = ReferenceExecutor(graph, graph.outputs).run(feed(graph, image))
        for name, right in expected.items():
            assert np.any(right.numpy()), name
            np.testing.assert_allclose(values[name], right.numpy(), rtol=1e-5, atol=1e-5, err_msg=name)


def test_simulator_gives_the_integer_graphs_numbers(network: Network, graph: Graph) -> None:
    """Every NPU layer by its bits, every output of the CPU partition to float32's precision; the features near TensorFlow's."""
    given = images(4)
    statistics = calibrate(graph, [feed(graph, x) for x in given], lambda wanted: ReferenceExecutor(graph, wanted).run)
    integer = Quantised(quantize(graph, statistics, "fine"), Preprocess())
    binary = compile_graph(integer, "nf-b1024")
    (name,) = graph.inputs
    executor, session = IntegerExecutor(integer.qgraph), Session(binary.image, device="sim")
    for image in given[:2]:
        fed = feed(graph, image)
        assert climb(integer, binary, {name: executor.quantise_input(name, fed[name])}) == []
        expected, found = executor.run_outputs(fed), session.run({name: image})
        assert sorted(found) == sorted(expected)
        for output, right in expected.items():
            np.testing.assert_allclose(found[output], right, rtol=1e-4, atol=1e-4, err_msg=output)
        right = network(image)["features"].numpy()
        assert 10 * np.log10(np.square(right).sum() / np.square(found["features"] - right).sum()) > 20


def test_backbone_runs_on_the_npu(network: Network) -> None:
    """Channels last as they were written, the element-wise operators between the convolutions included."""
    graph = placed(to_onnx(network.backbone))
    assert graph.input_layout == {"image": "NHWC"}
    assert [n.op for n in graph.nodes if n.device != "NPU"] == ["Transpose", "LeakyRelu"]


def test_saved_model_gives_the_same_file(network: Network, model: onnx.ModelProto, tmp_path: Path) -> None:
    tf.saved_model.save(network, str(tmp_path), signatures=network.__call__)
    found = placed(to_onnx(tmp_path))
    (image,) = images(1)
    expected = ReferenceExecutor(placed(model), list(network(image))).run(feed(placed(model), image))
    values = ReferenceExecutor(found, found.outputs).run(feed(found, image))
    for name in network(image):
        np.testing.assert_allclose(values[name], expected[name], rtol=1e-6, atol=1e-6, err_msg=name)
    with pytest.raises(UsageError, match="has no signature other, only"):
        to_onnx(tmp_path, signature_key="other")


def test_what_has_no_onnx_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="Lgamma"):
        to_onnx(tf.function(tf.math.lgamma), [IMAGE])
    with pytest.raises(UnsupportedError, match="Clip has no attribute max"):
        to_onnx(tf.function(lambda x: run("Clip", x, min=0.0, max=1.0)), [IMAGE])
    with pytest.raises(UsageError, match=r"needs `signature`"):
        to_onnx(tf.function(tf.nn.relu))
    with pytest.raises(UsageError, match=r"expected a tf\.function"):
        to_onnx(3)
    with pytest.raises(ModelError, match="does not load"):
        to_onnx(tmp_path / "nothing")


def test_without_tf2onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(UsageError, match=r"^export from TensorFlow needs tf2onnx: pip install npuforge\[tensorflow\]$"):
        to_onnx(tf.function(tf.nn.relu), [IMAGE])
