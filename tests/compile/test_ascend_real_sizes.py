"""`--target ascend`: TBE source of convolutions and region sampling at the sizes of a detector, run on Apache TVM in place of TBE (`full`; skipped without TVM)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tbe_stand_in import install, run_tvm, tvm_modules

from npuforge.compile.ascend import flow
from npuforge.compile.context import Options
from npuforge.compile.onnx_runner import OnnxRunner
from npuforge.compile.steps.import_onnx import prepare_model
from npuforge.hw_kernels import arch

REGIONS = 100


def _network() -> onnx.ModelProto:
    """Four ConvBnLeakyRelu (the first of 32 x 416 x 416), a RotatedConv of eight angles, 7 x 7 bins of 100 regions."""
    random, constants, nodes = np.random.default_rng(0), [], []

    def constant(name: str, *shape: int, low: float = -1.0) -> str:
        value = random.uniform(low, 1.0, shape).astype(np.float32) * np.float32(0.2)
        constants.append(numpy_helper.from_array(value, name))
        return name

    layers = [("x", "a", 3, 32, 3, 1), ("a", "b", 32, 64, 3, 2), ("b", "c", 64, 32, 1, 1), ("c", "d", 32, 64, 3, 1)]
    for x, y, inputs, outputs, kernel, stride in layers:
        of_channels = [constant(f"{y}_{p}", outputs, low=0.1) for p in ("scale", "bias", "mean", "variance")]
        nodes.append(
            helper.make_node(
                "ConvBnLeakyRelu", [x, constant(f"{y}_w", outputs, inputs, kernel, kernel), "", *of_channels], [y], y, domain="npuforge",
                strides=[stride, stride], pads=[kernel // 2] * 4, alpha=0.1,
            )
        )  # fmt: skip
    own: dict[str, Any] = {"domain": "npuforge"}
    nodes.append(
        helper.make_node(
            "RotatedConv", ["d", constant("e_w", 8, 64, 3, 3)], ["e"], "e", rotations=8, pads=[1] * 4, strides=[4, 4], **own
        )
    )  # fmt: skip
    sizes = {"output_height": 7, "output_width": 7, "spatial_scale": 0.125}
    nodes.append(helper.make_node("RotatedRoiAlign", ["e", "regions"], ["f"], "f", **sizes, **own))
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [1, 3, 416, 416]), value("regions", TensorProto.FLOAT, [REGIONS, 6])]
    graph = helper.make_graph(nodes, "net", inputs, [value("f", TensorProto.FLOAT, None)], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.full
def test_every_node_on_tvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with the reference's inputs, to 2e-6 of the largest value; prints the errors."""
    built: list[Any] = []
    install(monkeypatch, tvm_modules(built))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    onnx.save(_network(), tmp_path / "net.onnx")
    build = flow.compile_for_ascend(
        Options(tmp_path / "net.onnx", arch.load("nf-b1024"), tmp_path / "out"), "Ascend310"
    )
    assert len(build.operators) == 3 and not build.on_ai_cpu and not build.lowered
    random = np.random.default_rng(1)
    parts = (np.zeros((REGIONS, 1)), random.uniform(0, 416, (REGIONS, 2)), random.uniform(4, 300, (REGIONS, 2)))
    regions = np.concatenate([*parts, random.uniform(-3, 3, (REGIONS, 1))], 1).astype(np.float32)
    feeds = {"x": random.normal(size=(1, 3, 416, 416)).astype(np.float32), "regions": regions}
    model = onnx.load(tmp_path / "out" / "model.onnx")
    tensors = feeds | {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    outputs = [t for n in model.graph.node for t in n.output]
    tensors |= OnnxRunner(prepare_model(tmp_path / "net.onnx"), outputs).run(feeds)
    for node in model.graph.node:
        file = build.operators[f"npuforge::{node.op_type}"][0].removesuffix(".py")
        space: dict[str, Any] = {}
        exec((tmp_path / "out" / f"{file}.py").read_text(), space)
        inputs, expected = [tensors[t] for t in node.input], tensors[node.output[0]]
        described = [{"shape": x.shape, "dtype": x.dtype.name} for x in inputs]
        values = [helper.get_attribute_value(a) for a in sorted(node.attribute, key=lambda a: a.name)]
        space[file](*described, {"shape": expected.shape}, *values)
        (found,) = run_tvm(built.pop()[1]["tensor_list"], inputs)
        error = float(np.abs(found - expected).max() / np.abs(expected).max())
        print(f"{node.op_type} {[*expected.shape]}: {error:.1e} of the largest value")
        assert error <= 2e-6
