"""Quantised (QDQ) files: pairs go, the ReLU that a range implies comes back, unlike pairs stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuforge.compile.onnx_runner import OnnxRunner
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.dequantise import QuantisedModelWarning
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.verify import verify

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
