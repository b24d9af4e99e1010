"""Quantised (QDQ) files: pairs go, the ReLU that a range implies comes back, unlike pairs stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuforge.compile.context import Options
from npuforge.compile.onnx_runner import OnnxRunner
from npuforge.compile.pipeline import inspect
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.dequantise import QuantisedModelWarning
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.verify import verify
from npuforge.hw_kernels.arch import load
from npuforge.quant.given import missing_scales
from npuforge.quant.regions import Region

CPU = ["CPUExecutionProvider"]
ONE = {"kernel_shape": [1, 1]}


def pair(source: str, target: str, zero: str = "z", scale: str = "s", other: str | None = None):
    return [
        ("QuantizeLinear", [source, scale, zero], [f"{target}_q"], {}, f"q_{target}"),
        ("DequantizeLinear", [f"{target}_q", other or scale, zero], [target], {}, f"dq_{target}"),
    ]


@pytest.fixture
def network(build, weights):
    """x → pair → Conv (int8 weights) → pair with `zero` → Conv."""
    quantised = np.random.default_rng(0).integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)
    last = weights(3, 4, 1, 1)

    def make(zero, middle=()):
        nodes = [
            *pair("x", "xf", zero="zx"),
            ("DequantizeLinear", ["wq", "ws", "wz"], ["w"], {"axis": 0}, "dq_w"),
            ("Conv", ["xf", "w"], ["t"], ONE, "conv"),
            *(middle or pair("t", "u")),
            ("Conv", ["u", "v"], ["y"], ONE, "last"),
        ]
        constants = {
            "wq": quantised,
            "ws": np.array([0.01, 0.02, 0.03, 0.04], np.float32),
            "wz": np.zeros(4, np.int8),
            "s": np.float32(0.1),
            "z": zero,
            "zx": np.int8(0),
            "v": last,
            "s2": np.float32(0.2),
            "s6": np.float32(6 / 255),
        }
        return build(nodes, constants=constants), constants

    return make


@pytest.mark.parametrize(("zero", "relu"), [(np.int8(-128), True), (np.uint8(0), True), (np.int8(3), False)])
def test_pairs_go_and_an_implied_relu_comes_back(build, network, zero, relu):
    model, c = network(zero)
    imported = import_onnx(model)
    assert len(imported.warnings) == 1 and isinstance(imported.warnings[0], QuantisedModelWarning)
    assert "2 QuantizeLinear" in str(imported.warnings[0])
    graph = fuse(fold(imported.graph))
    verify(graph, "fuse")
    assert [n.op for n in graph.nodes] == ["Conv", "Conv"]
    assert graph.nodes[0].activation.kind == ("Relu" if relu else "none")
    assert {"conv", "q_u", "dq_u"} <= set(graph.nodes[0].sources)
    # The same network written in float.
    w = c["wq"].astype(np.float32) * c["ws"].reshape(-1, 1, 1, 1)
    plain = build(
        [
            ("Conv", ["x", "w"], ["t"], ONE),
            ("Relu" if relu else "Identity", ["t"], ["u"], {}),
            ("Conv", ["u", "v"], ["y"], ONE),
        ],
        constants={"w": w, "v": c["v"]},
    )
    x = np.random.default_rng(1).normal(size=(1, 4, 8, 8)).astype(np.float32)
    expected = OnnxRunner(plain, providers=CPU).run({"x": x})["y"]
    assert np.abs(GraphExecutor(graph, providers=CPU).run({"x": x})["y"] - expected).max() < 1e-4


def test_no_second_relu_behind_a_relu(network):
    model, _ = network(np.uint8(0), [("Relu", ["t"], ["r"], {}, "relu"), *pair("r", "u")])
    imported = import_onnx(model)
    assert "ReLU" not in str(imported.warnings[0])
    assert [n.op for n in fuse(fold(imported.graph)).nodes] == ["Conv", "Conv"]


def test_pair_with_two_scales_is_no_pair(network):
    """It is written out in float operators, rounding included (its value: test_qoperator)."""
    model, _ = network(np.int8(0), pair("t", "u", other="s2"))
    imported = import_onnx(model)
    assert "1 QuantizeLinear" in str(imported.warnings[0])
    ops = [n.op for n in imported.graph.nodes]
    assert "Round" in ops and not any("Linear" in op for op in ops)


@pytest.mark.data
def test_real_model(models: Path) -> None:
    imported = import_onnx(models / "yolo_fastest_1.1_qdq_int8.onnx")
    graph = partition(fuse(fold(imported.graph)))
    verify(graph, "partition")
    assert [p.device for p in graph.partitions] == ["NPU"] and "163 " in str(imported.warnings[0])


def folded(model):
    return fuse(fold(import_onnx(model).graph))


def test_relu6_that_the_range_implies(network):
    """uint8 from 0 to 6: the quantiser deleted a ReLU6, whatever becomes of the scales."""
    model, _ = network(np.uint8(0), pair("t", "u", scale="s6"))
    (conv,) = [n for n in folded(model).nodes if "conv" in n.sources]
    assert (conv.activation.kind, conv.activation.low, conv.activation.high) == ("Clip", 0.0, 6.0)


def test_range_of_a_tensor_that_the_cpu_computes(build, weights):
    """Behind the last convolution there is no int8 tensor that saturates: the end of the range is kept as a Clip (values: ONNX Runtime's)."""
    nodes = [
        ("Conv", ["x", "w"], ["a"], ONE),
        ("Conv", ["x", "v"], ["b"], ONE),
        ("Add", ["a", "b"], ["t"], {}),
        *pair("t", "y"),
    ]
    constants = {"w": weights(3, 4, 1, 1), "v": weights(3, 4, 1, 1), "s": np.float32(0.004), "z": np.uint8(0)}
    model = build(nodes, constants=constants)
    x = np.random.default_rng(1).normal(size=(1, 4, 8, 8)).astype(np.float32)
    expected = OnnxRunner(model).run({"x": x})["y"]
    assert expected.max() == np.float32(255) * np.float32(0.004)
    found = GraphExecutor(folded(model), providers=CPU).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, atol=0.00201)  # half a step, which no longer is rounded


def test_pairs_of_a_channels_last_network(build):
    """Pairs stand behind the Transpose that follows each convolution (Keras): the scales are the convolutions'."""
    constants = {
        **{"s": np.float32(0.1), "z": np.int8(3), "ws": np.float32(0.01), "wz": np.int8(0)},
        **{name: np.random.default_rng(i).integers(-9, 9, (4, 4, 1, 1)).astype(np.int8) for i, name in enumerate("wv")},
    }
    nodes = [
        *pair("x", "xf"),
        *[("DequantizeLinear", [n, "ws", "wz"], [f"{n}f"], {}) for n in "wv"],
        ("Conv", ["xf", "wf"], ["a"], ONE),
        ("Transpose", ["a"], ["at"], {"perm": [0, 2, 3, 1]}),
        *pair("at", "af"),
        ("Transpose", ["af"], ["b"], {"perm": [0, 3, 1, 2]}),
        ("Conv", ["b", "vf"], ["c"], ONE),
        ("Transpose", ["c"], ["ct"], {"perm": [0, 2, 3, 1]}),
        *pair("ct", "y"),
    ]
    graph = partition(folded(build(nodes, constants=constants)), calibrated=False)
    assert [n.device for n in graph.nodes if n.op == "Conv"] == ["NPU", "NPU"]
    assert missing_scales(Region.of(graph), set()) == []


def test_weights_alone_are_no_quantised_model(build, tmp_path):
    """A weight-only file (TFLite's dynamic range) asks for images; `inspect` shows what they give."""
    constants = {"wq": np.random.default_rng(0).integers(-9, 9, (4, 4, 1, 1)).astype(np.int8), "ws": np.float32(0.01)}
    nodes = [("DequantizeLinear", ["wq", "ws"], ["w"], {}), ("Conv", ["x", "w"], ["y"], ONE)]
    path = tmp_path / "net.onnx"
    onnx.save(build(nodes, constants=constants), path)
    graph = inspect(Options(path, load("nf-b1024"), tmp_path))
    assert [n.device for n in graph.nodes] == ["NPU"]
