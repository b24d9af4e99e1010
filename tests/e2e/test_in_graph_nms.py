"""A network with NonMaxSuppression inside: compiles whole, the `.xmodel` declares upper bounds of the open shapes, the runtime gives the rows that survive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.board_runtime.session import Session
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.pipeline import compile_model
from npuforge.compile.reference import NodesExecutor
from npuforge.compile.xir.bounds import bounded
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels.arch import load
from npuforge.quant.executor import IntegerExecutor

CLASSES, CELLS, LIMIT = 2, 64, 5


def network(threshold: float) -> onnx.ModelProto:
    """x → convolution → boxes [1, 64, 4] and scores [1, 2, 64] → NMS → rows (batch, class, box) and their boxes [N, 4]."""
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(4 + CLASSES, 3, 4, 4)).astype(np.float32) * 0.2
    constants = {
        "w": weight,
        "b": np.array([1, 1, 4, 4, 0, 0], np.float32),
        "flat": np.array([1, 4 + CLASSES, CELLS]),
        "parts": np.array([4, CLASSES]),
        "grid": np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(1, CELLS, 2).astype(np.float32)
        @ np.eye(2, 4, dtype=np.float32),
        "limit": np.array([LIMIT]),
        "overlap": np.array([0.4], np.float32),
        "threshold": np.array([threshold], np.float32),
        "two": np.array(2),
    }
    nodes = [
        ("Conv", ["x", "w", "b"], ["c"], {"kernel_shape": [4, 4], "strides": [4, 4]}),
        ("Reshape", ["c", "flat"], ["f"], {}),
        ("Split", ["f", "parts"], ["raw", "logits"], {"axis": 1}),
        ("Sigmoid", ["logits"], ["scores"], {}),
        ("Transpose", ["raw"], ["rows"], {"perm": [0, 2, 1]}),
        ("Add", ["rows", "grid"], ["boxes"], {}),
        (
            "NonMaxSuppression",
            ["boxes", "scores", "limit", "overlap", "threshold"],
            ["picked"],
            {"center_point_box": 1},
        ),
        ("Gather", ["picked", "two"], ["index"], {"axis": 1}),
        ("Gather", ["boxes", "index"], ["kept"], {"axis": 1}),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, i, o, name=f"{op}_{o[0]}", **a) for op, i, o, a in nodes],
        "with_nms",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 32, 32))],
        [
            helper.make_tensor_value_info("picked", TensorProto.INT64, None),
            helper.make_tensor_value_info("kept", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("threshold", [0.45, 2.0], ids=["some boxes", "no box"])
def test_compiles_and_runs(tmp_path: Path, threshold: float) -> None:
    import cv2

    path = tmp_path / "net.onnx"
    onnx.save(network(threshold), path)
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    assert cv2.imwrite(str(tmp_path / "a.png"), image)
    _, ctx = compile_model(Options(path, load("nf-b1024"), tmp_path / "build", calibration=[tmp_path / "a.png"]))
    qgraph = ctx.qgraph
    assert qgraph is not None and qgraph.graph.tensors["picked"].shape == (-1, 3)
    ops = {op.tensor.name: op for op in read_xmodel(tmp_path / "build" / "model.xmodel").ops}
    assert ops["picked"].tensor.shape == [CLASSES * LIMIT, 3] and ops["picked"].get("npuforge_open_shape") == [-1, 3]
    assert ops["kept"].tensor.shape == [1, CLASSES * LIMIT, 4]
    assert "npuforge_open_shape" not in ops["boxes"].attrs
    session = Session(tmp_path / "build", device="sim", threads=1)
    found = session.run({"x": image[np.newaxis]})
    expected = IntegerExecutor(qgraph, NodesExecutor(qgraph.graph)).run_outputs(image[np.newaxis])
    assert (len(expected["picked"]) == 0) == (threshold > 1)
    np.testing.assert_array_equal(found["picked"], expected["picked"])
    np.testing.assert_allclose(found["kept"], expected["kept"], rtol=1e-5, atol=1e-5)


def test_a_shape_without_a_bound_is_refused() -> None:
    """Range up to a computed number."""
    node = Node("count", "Range", ["a", "b", "c"], ["r"], sources=["count"])
    tensors = {t: TensorInfo(t, (), "int64") for t in "abc"} | {"r": TensorInfo("r", (-1,), "int64")}
    with pytest.raises(UnsupportedError, match=r"'count' \(Range\).*'r' depends on the data without an upper bound"):
        bounded(Graph("g", [node], tensors, {}, ["a", "b", "c"], ["r"], 18))
