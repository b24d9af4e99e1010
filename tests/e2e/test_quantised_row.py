"""The output scale of a quantised fully connected layer (QDQ around Gemm; QGemm expands to the same) belongs to the convolution it becomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.context import Options
from npuforge.compile.pipeline import quantize
from npuforge.compile.reference import NodesExecutor
from npuforge.hw_kernels.arch import load
from npuforge.quant.executor import IntegerExecutor

STEP = 0.05


@pytest.mark.parametrize("operators", [False, True], ids=["QDQ", "QGemm"])
def test_row_is_quantised_without_images(tmp_path: Path, operators: bool) -> None:
    """On the NPU, and within one step of ONNX Runtime's values."""
    rng = np.random.default_rng(4)
    constants = {
        **{"sx": np.float32(4 / 255), "zx": np.uint8(128), "sw": np.float32(0.002), "zw": np.int8(0)},
        **{"sy": np.float32(STEP), "zy": np.uint8(120), "m": rng.integers(-127, 128, (64, 10)).astype(np.int8)},
        "b": rng.integers(-999, 999, 10).astype(np.int32),
        "sb": np.float32(np.float32(4 / 255) * np.float32(0.002)),
    }
    first, second = ["sx", "zx"], ["sy", "zy"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *first], ["q"]),
        helper.make_node("DequantizeLinear", ["q", *first], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
    ]
    if operators:
        inputs = ["fq", *first, "m", "sw", "zw", "b", *second]
        nodes[1:] = [
            helper.make_node("Flatten", ["q"], ["fq"]),
            helper.make_node("QGemm", inputs, ["yq"], domain="com.microsoft"),
        ]
    else:
        nodes += [
            helper.make_node("DequantizeLinear", ["m", "sw", "zw"], ["w"]),
            helper.make_node("DequantizeLinear", ["b", "sb"], ["c"]),
            helper.make_node("Gemm", ["f", "w", "c"], ["t"]),
            helper.make_node("QuantizeLinear", ["t", *second], ["yq"]),
        ]
    nodes.append(helper.make_node("DequantizeLinear", ["yq", *second], ["y"]))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 4, 4, 4)), ("y", (1, 10)))]
    graph = helper.make_graph(
        nodes, "row", ends[:1], ends[1:], [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    )
    sets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), path)
    qgraph, _ = quantize(Options(path, load("nf-b1024"), tmp_path))
    (conv,) = [n for n in qgraph.graph.nodes if n.op == "Conv"]
    assert conv.device == "NPU"
    np.testing.assert_allclose(qgraph.quant[conv.outputs[0]].scale, STEP, rtol=1e-6)
    x = rng.uniform(-2, 2, (1, 4, 4, 4)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    found = IntegerExecutor(qgraph, NodesExecutor(qgraph.graph)).run_outputs(x)["y"]
    assert np.abs(found - wanted).max() < 1.01 * STEP
