"""Children of every kind with buffers of every type, one script on our modules and on the vendor's (test_vart_application.py says how).

The network has what is between the partitions: a CPU result that is a network output and is read by the NPU too (two outputs of its child), an input that NPU
and CPU read (it enters in both forms), pixels in N, H, W, C that only the CPU reads, results of type
bool, int8 and int64, of which one goes to another CPU partition. Right values: the numpy integer (bf16) semantics.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from vart_build import vendor_folder, write_build

from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.graph_runner import GraphRunner
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.compile.reference import NodesExecutor
from npuforge.compile.xir.listing import border
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels import arch as arches
from npuforge.quant.executor import IntegerExecutor, dequantise, quantise

SCRIPT = Path(__file__).with_name("vart_chain.py")
ONNX_NAMES = {"sm_float": "sm", "y_float": "y", "v_float": "v", "c_float": "c", "s_output": "s", "big_output": "big"}


def network() -> onnx.ModelProto:
    rng = np.random.default_rng(11)
    floats = {
        "w1": rng.normal(size=(4, 4, 3, 3)) / 4,
        "b1": rng.normal(size=4),
        "w2": rng.normal(size=(4, 4, 1, 1)),
        "b2": rng.normal(size=4),
        "w3": rng.normal(size=(2, 3, 1, 1)),
        "b3": rng.normal(size=2),
        "half": np.float32(0.5),
        "step": np.float32(1 / 64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Softmax", ["x"], ["s"], "s", axis=1),
        helper.make_node("Softmax", ["c"], ["sm"], "sm", axis=1),
        helper.make_node("Conv", ["sm", "w2", "b2"], ["y"], "y", kernel_shape=[1, 1]),
        helper.make_node("Greater", ["c", "half"], ["big"], "big"),
        helper.make_node("ArgMax", ["c"], ["top"], "top", axis=1, keepdims=1),
        helper.make_node("Cast", ["top"], ["small"], "small", to=TensorProto.INT8),
        helper.make_node("Where", ["big", "y", "s"], ["pick"], "pick"),
        helper.make_node("Cast", ["u"], ["uf"], "uf", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["uf", "step"], ["us"], "us"),
        helper.make_node("Transpose", ["us"], ["ut"], "ut", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["ut", "w3", "b3"], ["v"], "v", kernel_shape=[1, 1]),
    ]
    types = {"big": TensorProto.BOOL, "top": TensorProto.INT64, "small": TensorProto.INT8}
    outputs = [helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), None) for n in OUTPUTS]
    initializers = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in floats.items()]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 6, 5)),
        helper.make_tensor_value_info("u", TensorProto.UINT8, (1, 6, 5, 3)),
    ]
    graph = helper.make_graph(nodes, "edges", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


OUTPUTS = ("s", "sm", "y", "big", "top", "v", "small", "pick")


@dataclass
class Edges:
    folder: Path
    qgraph: QGraph
    x: np.ndarray  # N, C, H, W
    u: np.ndarray  # N, C, H, W
    fixed: dict[str, np.ndarray]  # the NPU's int8 values or bf16 bits, N, H, W, C
    floats: dict[str, np.ndarray]  # what the CPU operators see


@pytest.fixture(scope="module", params=["pow2", "fine", "bf16"])
def edges(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Edges:
    folder = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(5)
    feeds = [
        {
            "x": rng.normal(0, 1, (1, 4, 6, 5)).astype(np.float32),
            "u": rng.integers(0, 256, (1, 3, 6, 5)).astype(np.uint8),
        }
        for _ in range(4)
    ]
    qgraph = write_build(folder, request.param, network(), feeds)
    run_cpu = NodesExecutor(qgraph.graph)
    names = [*OUTPUTS, "c"]
    if request.param == "bf16":
        fixed, floats = LaneExecutor(qgraph, arches.load("nf-b1024-bf16"), run_cpu).run_all(feeds[0], names)
    else:
        fixed, floats = IntegerExecutor(qgraph, run_cpu).run_all(dict(feeds[0]), names)
    return Edges(folder, qgraph, feeds[0]["x"], feeds[0]["u"], fixed, floats)


def given(edges: Edges, kind: str) -> dict[str, np.ndarray]:
    """The inputs in the shapes that the file declares."""
    x, u = edges.x.transpose(0, 2, 3, 1), edges.u.transpose(0, 2, 3, 1)
    if kind == "own" or (kind == "int8" and edges.qgraph.mode != "bf16"):
        x = quantise(edges.x, edges.qgraph.quant["x"])
    return {"x": np.ascontiguousarray(x), "x_float": edges.x, "u": u.copy() if kind == "own" else u.astype(np.float32)}


def chain(edges: Edges, kind: str, *command: str, libraries: str = "") -> dict[str, np.ndarray]:
    environment = dict(os.environ)
    if libraries:
        environment["LD_LIBRARY_PATH"] = f"{os.environ.get('LD_LIBRARY_PATH', '')}:{libraries}"
    np.savez(edges.folder / "given.npz", **given(edges, kind))
    files = [edges.folder / "model.xmodel", edges.folder / "given.npz", edges.folder / "made.npz", kind]
    done = subprocess.run([sys.executable, *command, SCRIPT, *files], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    with np.load(edges.folder / "made.npz") as values:
        return dict(values)


def check(found: dict[str, np.ndarray], edges: Edges, kind: str) -> None:
    """Fixed tensors bit for bit; float results of CPU operators to within the rounding of exp()."""
    model = read_xmodel(edges.folder / "model.xmodel")
    assert model.root is not None
    wanted = [
        f"{child.name}: {', '.join(border(model, child)[1])}"
        for child in model.root.children
        if child.get("device") != "USER"
    ]
    assert found.pop("/children").tolist() == wanted
    assert any(": big, s, sm, sm_float, small, top" in line for line in wanted), wanted
    declared = {op.tensor.name: op.tensor for op in model.ops}
    for name in set(found) - {"x", "x_float", "u"}:
        array, tensor = found[name], declared[name]
        assert list(array.shape) == tensor.shape
        if tensor.dtype in ("XINT8", "BFLOAT16"):
            bits = edges.fixed[name]
            real = dequantise(bits, edges.qgraph.quant[name]).transpose(0, 2, 3, 1)
            np.testing.assert_array_equal(array, real if array.dtype == np.float32 else bits, err_msg=name)
        else:
            expected = edges.floats[ONNX_NAMES.get(name, name)]
            np.testing.assert_allclose(array, expected, rtol=2e-6, err_msg=name)
    if kind == "own":
        assert (found["big"].dtype, found["top"].dtype, found["small"].dtype) == (np.uint8, np.int64, np.int8)


@pytest.mark.parametrize("kind", ["own", "int8", "float32"])
def test_on_our_modules(edges: Edges, kind: str) -> None:
    check(chain(edges, kind, "-m", "npuforge.board_runtime.vart"), edges, kind)


@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_on_the_vendors_modules(edges: Edges, kind: str) -> None:
    check(chain(edges, kind, libraries=str(vendor_folder())), edges, kind)


DEVICE = """
import sys
import numpy as np
from npuforge.board_runtime.devices import open_session
given = dict(np.load(sys.argv[2]))
outputs, records = open_session(sys.argv[1], "dpu").trace(given)
np.savez(sys.argv[3], **outputs, **{"left/" + r.tensor: r.data for r in records})
"""


def test_device_dpu_on_the_vendors_modules(edges: Edges) -> None:
    """`--device dpu`: types that the vendor's Python module does not pass on go through our plug-in as float32."""
    libraries = f"{os.environ.get('LD_LIBRARY_PATH', '')}:{vendor_folder()}"
    (edges.folder / "manifest.json").write_text(json.dumps({"format": 1, "name": "edges"}))
    np.savez(edges.folder / "given.npz", x=edges.x, u=edges.u.transpose(0, 2, 3, 1))
    files = [edges.folder, edges.folder / "given.npz", edges.folder / "made.npz"]
    environment = dict(os.environ) | {"LD_LIBRARY_PATH": libraries}
    done = subprocess.run([sys.executable, "-c", DEVICE, *files], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    with np.load(edges.folder / "made.npz") as found:
        assert set(found) == {*OUTPUTS, "left/c", "left/y", "left/v"}
        for name in found:
            if name.startswith("left/"):
                np.testing.assert_array_equal(found[name], edges.fixed[name.removeprefix("left/")], err_msg=name)
            else:
                np.testing.assert_allclose(found[name], edges.floats[name], rtol=2e-6, err_msg=name)


def test_graph_runner_and_buffers(edges: Edges) -> None:
    """Buffers that RunnerExt makes, the whole file; bf16 tensors have float32 arrays."""
    runner = GraphRunner.create_graph_runner(xir.Graph.deserialize(edges.folder / "model.xmodel"))
    names = {t.name: t.dtype for t in (*runner.get_input_tensors(), *runner.get_output_tensors())}
    assert names["x"] == ("bfloat16" if edges.qgraph.mode == "bf16" else "xint8") and names["small"] == "int8"
    inputs, outputs = runner.get_inputs(), runner.get_outputs()
    for buffer in inputs:
        buffer[...] = given(edges, "int8")[buffer.get_tensor().name]
    job = runner.execute_async(inputs, outputs)
    assert runner.wait(job) == 0, runner.message(job)
    for buffer in outputs:
        name = buffer.get_tensor().name
        np.testing.assert_allclose(np.asarray(buffer), edges.floats[ONNX_NAMES.get(name, name)], rtol=2e-6)


def cpu_child(edges: Edges) -> vart.Runner:
    """The runner of the first CPU partition."""
    children = xir.Graph.deserialize(edges.folder / "model.xmodel").get_root_subgraph().get_children()
    sub = next(c for c in children if c.get_attr("device") == "CPU")
    runner = vart.Runner.create_runner(sub)
    fixed = "bfloat16" if edges.qgraph.mode == "bf16" else "xint8"
    assert [(t.name, t.dims, t.dtype) for t in runner.get_input_tensors()] == [
        ("c", [1, 6, 5, 4], fixed),
        ("u", [1, 6, 5, 3], "uint8"),
        ("x_float", [1, 4, 6, 5], "float32"),
    ]
    return runner


def zeros(tensors: list[xir.Tensor]) -> dict[str, np.ndarray]:
    return {t.name: np.zeros(t.dims, np.float32) for t in tensors}


@pytest.mark.parametrize(
    ("name", "value"), [("u", 0.5), ("u", -1.0), ("u", 256.0), ("u", np.nan), ("u", np.inf), ("c", np.nan)]
)
def test_values_that_the_tensor_cannot_hold(edges: Edges, name: str, value: float) -> None:
    """Nothing is rounded in silence; bf16 has NaN."""
    runner = cpu_child(edges)
    arrays, results = zeros(runner.get_input_tensors()), zeros(runner.get_output_tensors())
    assert runner.wait(runner.execute_async(list(arrays.values()), list(results.values()))) == 0
    arrays[name][0, 0, 0, 1] = value
    job = runner.execute_async(list(arrays.values()), list(results.values()))
    if name == "c" and edges.qgraph.mode == "bf16":
        assert runner.wait(job) == 0 and np.isnan(results["sm_float"]).any()
        return
    assert runner.wait(job) == 1
    expected = "input 'u': element 1 is " if name == "u" else "tensor 'c': contains NaN, which has no int8 value"
    assert runner.message(job).startswith(expected)


def test_types_that_the_tensor_has_not(edges: Edges) -> None:
    runner = cpu_child(edges)
    arrays, results = zeros(runner.get_input_tensors()), zeros(runner.get_output_tensors())
    fixed, other = ("bfloat16", np.int8) if edges.qgraph.mode == "bf16" else ("int8", np.uint16)
    for name, dtype, message in (
        ("u", np.int32, "input 'u': type expected uint8, found int32"),
        ("c", np.int32, f"input 'c': type expected float32 or {fixed}, found int32"),
        ("c", other, f"input 'c': type expected float32 or {fixed}, found "),
        ("big", np.int8, "output 'big': type expected bool, found int8"),
        ("top", np.int32, "output 'top': type expected int64, found int32"),
        ("sm", np.int64, f"output 'sm': type expected float32 or {fixed}, found int64"),
    ):
        given, wanted = (
            {n: a.astype(dtype) if n == name else a for n, a in side.items()} for side in (arrays, results)
        )
        job = runner.execute_async(list(given.values()), list(wanted.values()))
        assert job[1] == 1 and runner.message(job).startswith(message)
    with pytest.raises(UsageError, match="inputs: expected 3 arrays, found 4"):
        runner.execute_async([*arrays.values(), arrays["c"]], list(results.values()))


def test_float32_is_what_the_tensor_holds(edges: Edges) -> None:
    """Real values between the grid's points become those of the grid, on the way in and on the way out."""
    runner, quants = cpu_child(edges), edges.qgraph.quant
    reals = zeros(runner.get_input_tensors())
    reals["c"][...] = np.random.default_rng(3).normal(0, 1, reals["c"].shape)
    fixed = {n: quantise(a.transpose(0, 3, 1, 2), quants[n]) if n in quants else a for n, a in reals.items()}
    results = []
    for arrays in (reals, fixed):
        results.append(zeros(runner.get_output_tensors()))
        assert runner.wait(runner.execute_async(list(arrays.values()), list(results[-1].values()))) == 0
    for name, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][name], err_msg=name)
    grid = dequantise(quantise(results[0]["sm_float"], quants["sm"]), quants["sm"])
    np.testing.assert_array_equal(results[0]["sm"], grid.transpose(0, 2, 3, 1))
