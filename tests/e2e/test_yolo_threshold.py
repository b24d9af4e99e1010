"""YoloDecode with a score threshold behind convolutions: import, compile, run and compare whole; a picture without any detection included."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.board_runtime.session import Session
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import ModelError
from npuforge.compile.pipeline import compile_model
from npuforge.compile.reference import NodesExecutor
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels.arch import load
from npuforge.quant.executor import IntegerExecutor
from npuforge.scripts import cli

CLASSES, ROWS = 2, 2 * 8 * 8


def network(threshold: float) -> onnx.ModelProto:
    """x → convolution → one map [1, 14, 8, 8] → boxes, scores, classes of the rows above the threshold, and the boxes' sizes [1, M, 2]."""
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.normal(size=(14, 3, 4, 4)).astype(np.float32) * 0.25,
        "b": rng.normal(size=14).astype(np.float32),
        "two": np.array([2]), "four": np.array([4]), "zero": np.array([0]), "last": np.array([2]),
    }  # fmt: skip
    decode = {"anchors": [6.0, 7.0, 11.0, 9.0], "strides": [4], "num_classes": CLASSES, "score_threshold": threshold}
    outputs = ("boxes", "scores", "classes", "sizes")
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["map"], "conv", kernel_shape=[4, 4], strides=[4, 4]),
            helper.make_node("YoloDecode", ["map"], list(outputs[:3]), "decode", domain="npuforge", **decode),
            helper.make_node("Slice", ["boxes", "two", "four", "last"], ["far"], "far"),
            helper.make_node("Slice", ["boxes", "zero", "two", "last"], ["near"], "near"),
            helper.make_node("Sub", ["far", "near"], ["sizes"], "sub"),
        ],
        "with_threshold",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 32, 32))],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("npuforge", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("threshold", [0.3, 1.0], ids=["some rows", "no row"])
def test_compiles_runs_and_compares(tmp_path: Path, threshold: float, capsys: pytest.CaptureFixture[str]) -> None:
    import cv2

    path, build = tmp_path / "net.onnx", tmp_path / "build"
    onnx.save(network(threshold), path)
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    assert cv2.imwrite(str(tmp_path / "a.png"), image)
    _, ctx = compile_model(Options(path, load("nf-b1024"), build, calibration=[tmp_path / "a.png"]))
    qgraph = ctx.qgraph
    assert qgraph is not None and qgraph.graph.tensors["boxes"].shape == (1, -1, 4)
    ops = {op.tensor.name: op for op in read_xmodel(build / "model.xmodel").ops}
    for name, shape in (("boxes", [ROWS, 4]), ("scores", [ROWS]), ("classes", [ROWS]), ("sizes", [ROWS, 2])):
        assert ops[name].tensor.shape == [1, *shape], "the file declares the most rows there can be"
        assert ops[name].get("npuforge_open_shape") == [1, -1, *shape[1:]]
    session = Session(build, device="sim", threads=1)
    expected = IntegerExecutor(qgraph, NodesExecutor(qgraph.graph)).run_outputs(image[np.newaxis])
    rows = expected["scores"].shape[1]
    assert 0 < rows < ROWS if threshold < 1 else rows == 0
    for _ in range(2):  # a session's memory is used again
        found = session.run({"x": image[np.newaxis]})
        for name, value in expected.items():
            assert found[name].shape == value.shape
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-4)
    with pytest.raises(SystemExit) as done:
        cli.main(["compare", str(build), str(tmp_path / "a.png"), "--json"])
    assert done.value.code == 0
    assert json.loads(capsys.readouterr().out)


def test_a_threshold_that_is_no_probability_is_refused_at_import() -> None:
    with pytest.raises(
        ModelError, match=r"node decode: YoloDecode has score_threshold 1\.5; expected a number from 0 to 1"
    ):
        import_onnx(network(1.5))
