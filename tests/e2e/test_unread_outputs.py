"""CPU nodes with an output that nobody reads, in the `.xmodel`: an op that nobody reads is a result of its subgraph to XIR, so it is not written. Run child by
child on our VART and with `--device dpu` on the vendor's; right values are ONNX Runtime's, of what the convolution gave.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from vart_build import check_on_the_vendors_vart

from npuforge.board_runtime import xir
from npuforge.board_runtime.graph_runner import GraphRunner
from npuforge.board_runtime.session import Session
from npuforge.compile import pipeline
from npuforge.compile.context import Options
from npuforge.compile.xir.listing import border
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels import arch

SHAPE = (1, 4, 6, 5)
POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
# by name: node behind the convolution's Softmax, which of its outputs is the network's
NODES: dict[str, tuple[onnx.NodeProto, str]] = {
    "values of TopK": (helper.make_node("TopK", ["s", "two"], ["v", "i"], "node", axis=1), "v"),
    "indices of TopK": (helper.make_node("TopK", ["s", "two"], ["v", "i"], "node", axis=1), "i"),
    "first part of Split": (helper.make_node("Split", ["s"], ["v", "i"], "node", axis=1), "v"),
    "second part of Split": (helper.make_node("Split", ["s"], ["v", "i"], "node", axis=1), "i"),
    "values of MaxPool": (helper.make_node("MaxPool", ["s"], ["v", "i"], "node", **POOL), "v"),
    "indices of MaxPool": (helper.make_node("MaxPool", ["s"], ["v", "i"], "node", **POOL), "i"),
}


def _network(node: onnx.NodeProto, output: str) -> onnx.ModelProto:
    weight = np.random.default_rng(0).normal(size=(4, 4, 3, 3)).astype(np.float32) / 6
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Softmax", ["c"], ["s"], "soft", axis=1),
        node,
    ]
    dtype = TensorProto.INT64 if output == "i" and node.op_type != "Split" else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "unread",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(output, dtype, None), helper.make_tensor_value_info("c", TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([2]), "two")][: 1 + (node.op_type == "TopK")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


@pytest.fixture(scope="module", params=NODES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, np.ndarray]:
    """Build, name of the output, input."""
    folder, (node, output) = tmp_path_factory.mktemp("unread"), NODES[str(request.param)]
    onnx.save(_network(node, output), folder / "net.onnx")
    random = np.random.default_rng(1)
    for number in range(4):
        np.savez(folder / f"{number}.npz", x=random.normal(size=SHAPE).astype(np.float32))
    samples = [folder / f"{number}.npz" for number in range(4)]
    options = Options(
        folder / "net.onnx", arch.load("nf-b1024"), folder / "build", calibration=samples, mode="pow2"
    )  # fmt: skip
    pipeline.compile_model(options)
    return folder / "build", output, random.normal(size=SHAPE).astype(np.float32)


def test_only_what_is_read_is_in_the_file(built: tuple[Path, str, np.ndarray]) -> None:
    model = read_xmodel(built[0] / "model.xmodel")
    assert len([op for op in model.ops if op.name in ("node", "node/1")]) == 1
    results = {name for child in model.by_device("CPU") for name in border(model, child)[1]}
    assert results == {built[1], "c_float"} or results == {built[1], "c"}


def test_graph_runner_and_session(built: tuple[Path, str, np.ndarray]) -> None:
    """Both give what ONNX Runtime makes of the convolution's result."""
    build, output, x = built
    found = Session(build / "model.bin").run({"x": x})
    rest = onnx.utils.Extractor(onnx.load(build.parent / "net.onnx")).extract_model(["c"], [output])
    (expected,) = onnxruntime.InferenceSession(rest.SerializeToString()).run(None, {"c": found["c"]})
    np.testing.assert_allclose(found[output], expected, rtol=1e-6)
    runner = GraphRunner.create_graph_runner(xir.Graph.deserialize(build / "model.xmodel"))
    (tensor,) = runner.get_input_tensors()
    fixed = np.clip(np.floor(x.transpose(0, 2, 3, 1) * 2.0 ** tensor.get_attr("fix_point") + 0.5), -128, 127)
    outputs = runner.get_outputs()
    job = runner.execute_async([np.ascontiguousarray(fixed.astype(np.int8))], outputs)
    assert runner.wait(job) == 0, runner.message(job)
    values = {b.get_tensor().name: np.asarray(b) for b in outputs}
    np.testing.assert_array_equal(values[output].reshape(expected.shape), found[output])


def test_on_the_vendors_vart(built: tuple[Path, str, np.ndarray]) -> None:
    lines = check_on_the_vendors_vart(built[0])
    assert [line.split(":")[0] for line in lines] == [built[1], "c"] and not any("NOT" in line for line in lines)
