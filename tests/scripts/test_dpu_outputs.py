"""Network outputs and inputs that both the DPU and the CPU have to do with: the file gives them as the manifest says, the CPU reads the floats that were given.

Right values are ONNX Runtime's on the float network: of what the CPU computes from the input exactly, of what lies behind the DPU within what 8 bits leave.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from command_line import CommandLine, make_model, node
from onnx import TensorProto, helper, numpy_helper

from npuforge.board_runtime.devices import open_session
from npuforge.compile.xir.reader import read_xmodel

SHAPE = (1, 3, 12, 20)
ISLANDS = {
    "broadcast": [node("GlobalMaxPool", ["r"], ["p"]), node("Mul", ["r", "p"], ["s"])],
    "sigmoid": [node("Sigmoid", ["r"], ["s"])],
    "softmax": [node("Softmax", ["r"], ["s"], axis=1)],
    "prelu": [node("PRelu", ["r", "slopes"], ["s"])],
}  # what a CPU makes of r, [1, 8, 12, 20]


def network(island: str) -> onnx.ModelProto:
    """x -> convolution -> r -> CPU -> s -> convolution -> y. Outputs: s, which the DPU reads too; x, given; i, from x on the CPU; y."""
    random = np.random.default_rng(11)
    constants = {
        "w": random.normal(size=(8, 3, 3, 3)) / 5,
        "v": random.normal(size=(8, 8, 3, 3)) / 9,
        "slopes": np.linspace(0.1, 0.4, 8).reshape(8, 1, 1),
        "factors": random.uniform(1, 2, (1, 3, 1, 20)),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], "first", kernel_shape=[3, 3], pads=[1] * 4),
        node("Relu", ["c"], ["r"]),
        *ISLANDS[island],
        node("Conv", ["s", "v"], ["y"], "second", kernel_shape=[3, 3], pads=[1] * 4),
        node("Mul", ["x", "factors"], ["i"], "on_input"),
    ]
    values = {name: value.astype(np.float32) for name, value in constants.items()}
    return make_model(nodes, values, SHAPE, output=("s", "x", "i", "y"))


@pytest.mark.parametrize("island", ISLANDS)
def test_outputs_and_inputs_of_both_sides(command: CommandLine, vendor: Path, island: str) -> None:
    model, random = network(island), np.random.default_rng(3)
    onnx.save(model, command.folder / "net.onnx")
    samples = command.folder / "samples"
    samples.mkdir()
    for number in range(4):
        np.savez(samples / f"{number}.npz", x=random.normal(size=SHAPE).astype(np.float32))
    compiled = command("compile", "net.onnx", "--calib", "samples", "--target", "dpu:DPUCZDX8G", "-o", "dpu")
    assert compiled.code == 0, compiled
    folder = command.folder / "dpu"
    assert json.loads((folder / "manifest.json").read_text())["nhwc_outputs"] == ["y"]
    file = read_xmodel(folder / "quantised.xmodel")
    shapes = {op.name: op.tensor.shape for op in file.ops}
    returned = [shapes[name] for name in file.attrs["return_ops"].value]
    assert returned == [[1, 8, 12, 20], list(SHAPE), list(SHAPE), [1, 12, 20, 8]]

    x = random.normal(size=SHAPE).astype(np.float32)
    names = [value.name for value in model.graph.output]
    expected = dict(
        zip(names, onnxruntime.InferenceSession(model.SerializeToString()).run(names, {"x": x}), strict=True)
    )
    found = open_session(folder, "dpu").run({"x": x})
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_allclose(found["i"], expected["i"], rtol=1e-6)
    for name in ("s", "y"):
        a, b = found[name].ravel(), expected[name].ravel()
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.99, name
    checked = command("run", "dpu", "--check", "--device", "dpu")
    assert checked.code == 0, checked


def test_names_that_look_like_the_compilers(command: CommandLine, vendor: Path) -> None:
    """The vendor's compiler gives what leaves the DPU as `<name>_`; a node of the network may be called so too."""
    random = np.random.default_rng(13)
    nodes = [
        node("Conv", ["x", "w"], ["c"], "first", kernel_shape=[3, 3], pads=[1] * 4),
        node("Sigmoid", ["c"], ["s"], "gate"),
        node("Softmax", ["c"], ["t"], "gate_", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("s", "t", "c")],
        [numpy_helper.from_array((random.normal(size=(8, 3, 3, 3)) / 5).astype(np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, command.folder / "net.onnx")
    x = random.normal(size=SHAPE).astype(np.float32)
    np.savez(command.folder / "sample.npz", x=x)
    compiled = command("compile", "net.onnx", "--calib", "sample.npz", "--target", "dpu:DPUCZDX8G", "-o", "dpu")
    assert compiled.code == 0, compiled
    names = [value.name for value in model.graph.output]
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(names, {"x": x})
    found = open_session(command.folder / "dpu", "dpu").run({"x": x})
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(found[name], value, atol=0.05 * np.abs(value).max(), err_msg=name)
