"""Tensors that the NPU and the CPU both read: a network input, what the CPU computed, an input that is an output as well. Every path reads the same: the NPU its 8
bits (bf16), the CPU the float. Right values of what the CPU makes of the input are ONNX Runtime's on the given floats.
"""

from __future__ import annotations

from pathlib import Path

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
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.xir.listing import border
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels import arch
from npuforge.quant.executor import IntegerExecutor
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.columns import DeviceColumn, IntegerColumn

MODES = ("fine", "pow2", "bf16")
SHAPE = (1, 3, 6, 5)
OUTPUTS = ("y", "s", "z", "x")
CLOSE = 2e-6  # of the largest value: exp() of ONNX Runtime and of our kernels


def network(folder: Path) -> Path:
    """x: NPU, CPU and an output; s: computed on the CPU, read by the NPU and by a later CPU partition."""
    rng = np.random.default_rng(7)

    def conv(source: str, target: str) -> onnx.NodeProto:
        return helper.make_node("Conv", [source, "w"], [target], target, kernel_shape=[3, 3], pads=[1] * 4)

    nodes = [
        conv("x", "c"),
        helper.make_node("Softmax", ["x"], ["s"], "s", axis=1),
        helper.make_node("Add", ["c", "s"], ["y"], "y"),
        conv("s", "d"),
        helper.make_node("Softmax", ["d"], ["e"], "e", axis=1),
        helper.make_node("Mul", ["e", "s"], ["m"], "m"),
        helper.make_node("Mul", ["m", "x"], ["z"], "z"),
    ]
    graph = helper.make_graph(
        nodes,
        "shared",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in OUTPUTS],
        [numpy_helper.from_array((rng.normal(size=(3, 3, 3, 3)) / 3).astype(np.float32), "w")],
    )
    path = folder / "shared.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def compiled(folder: Path, mode: str, record: Preprocess | None = None) -> tuple[Path, Path]:
    """A build and a sample that it was not calibrated on."""
    rng = np.random.default_rng(1)
    samples = [folder / f"{number}.npz" for number in range(5)]
    for path in samples:
        np.savez(path, x=rng.normal(size=SHAPE).astype(np.float32))
    kind = {"precision": "bf16"} if mode == "bf16" else {"mode": mode}
    name = arch.load("nf-b1024-bf16" if mode == "bf16" else "nf-b1024")
    given = {} if record is None else {"preprocess": record}
    pipeline.compile_model(
        Options(network(folder), name, folder / "build", calibration=samples[:4], **kind, **given)  # type: ignore[arg-type]
    )
    return folder / "build", samples[4]


@pytest.fixture(scope="module", params=MODES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return compiled(tmp_path_factory.mktemp(str(request.param)), str(request.param))


def same(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.abs(expected).max(), err_msg=name)


@pytest.mark.parametrize("device", ["sim", "csim"])
def test_the_device_is_what_the_integers_say(built: tuple[Path, Path], device: str) -> None:
    build = open_build(built[0])
    assert [p.device for p in build.qgraph.graph.partitions] == ["CPU", "NPU", "CPU"]
    integers = IntegerColumn(build)
    column = DeviceColumn(build, device, 1)
    for path in (build.folder / "sample.npz", built[1]):
        sample = build.sample(path)
        found, expected = column(sample), integers(sample)
        for name in OUTPUTS:
            same(found[name], expected[name], name)
    assert all(checked.right for checked in build.check_sample(column))


def test_the_cpu_reads_the_values_that_were_given(built: tuple[Path, Path]) -> None:
    x = np.load(built[1])["x"]
    expected = onnxruntime.InferenceSession(built[0].parent / "shared.onnx").run(["s"], {"x": x})[0]
    found = Session(built[0] / "model.bin").run({"x": x})
    same(found["s"], expected, "s")
    np.testing.assert_array_equal(found["x"], x)
    build = open_build(built[0])
    same(IntegerColumn(build)(build.sample(built[1]))["s"], expected, "s")


@pytest.mark.parametrize("mode", ["fine", "pow2"])
def test_an_image(tmp_path: Path, mode: str) -> None:
    """Values of a sample that are no whole pixels: the NPU reads the nearest pixels, the CPU the values."""
    build, path = compiled(tmp_path, mode, Preprocess(5, 6, mean=[100.0] * 3, std=[50.0] * 3, input="x"))
    opened = open_build(build)
    sample, column = opened.sample(path), DeviceColumn(opened, "sim", 1)
    found, expected = column(sample), IntegerColumn(opened)(sample)
    for name in OUTPUTS:
        same(found[name], expected[name], name)
    np.testing.assert_array_equal(found["x"], np.load(path)["x"])


def test_in_the_file_the_input_enters_in_both_forms(built: tuple[Path, Path]) -> None:
    model = read_xmodel(built[0] / "model.xmodel")
    assert model.root is not None
    users = {op: next(o for o in model.ops if o.name == op) for c in model.by_device("USER") for op in c.ops}
    assert list(users) == ["x", "x_float"]
    assert users["x_float"].tensor.dtype == "FLOAT32" and users["x_float"].tensor.shape == list(SHAPE)
    assert users["x_float"].tensor.attrs["npuforge_input"].value == "x"
    read = [set(border(model, child)[0]) for child in model.by_device("CPU")]
    assert read == [{"x_float"}, {"x_float", "s_float", "c", "d"}, {"x_float", "s_float"}]
    assert [name for op in model.ops if op.name == "x_output" for name in op.inputs()] == ["x_float"]
    assert model.attrs["return_ops"].value[-1] == "x_output"


def test_our_graph_runner(built: tuple[Path, Path]) -> None:
    build = open_build(built[0])
    x = np.load(built[1])["x"]
    runner = GraphRunner.create_graph_runner(xir.Graph.deserialize(built[0] / "model.xmodel"))
    fixed = IntegerExecutor(build.qgraph).quantise_input("x", x)
    if build.qgraph.mode == "bf16":  # numpy has no such type: real values, which become it
        fixed = x.transpose(0, 2, 3, 1)
    feeds = {"x": np.ascontiguousarray(fixed), "x_float": x}
    outputs = runner.get_outputs()
    job = runner.execute_async([feeds[t.name] for t in runner.get_input_tensors()], outputs)
    assert runner.wait(job) == 0, runner.message(job)
    expected = Session(built[0] / "model.bin").run({"x": x})
    found = {b.get_tensor().name: np.asarray(b) for b in outputs}
    found = {name.removesuffix("_output"): values for name, values in found.items()}
    assert set(found) == set(OUTPUTS)
    for name in OUTPUTS:
        same(found[name], expected[name], name)


def test_check_on_the_vendors_vart(built: tuple[Path, Path]) -> None:
    lines = check_on_the_vendors_vart(built[0])
    assert [line.split(":")[0] for line in lines] == list(OUTPUTS) and not any("NOT" in line for line in lines)
