"""Files that our `xir` reads but does not run: of the vendor's compiler, without an NPU partition, not compiled. They list as in the vendor's module (where
that is importable), and a runner says what is needed. Also where a failed job says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from vart_build import Build, make_build, vendor_folder, write_build

from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.graph_runner import GraphRunner
from npuforge.compile.ir.errors import FormatError, UsageError
from npuforge.compile.xir.model import Attr, to_message
from npuforge.compile.xir.reader import read_xmodel

SAMPLES = Path(__file__).parents[3] / "shared" / "xir" / "samples"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"{SAMPLES} is absent")

LISTING = """
import sys, xir
def tensors(some):
    return sorted((t.name, list(t.dims), t.dtype, sorted(t.get_attrs())) for t in some)
def shown(s):
    device = s.get_attr("device") if s.has_attr("device") else None
    return s.get_name(), device, s.is_leaf, s.get_op_num(), tensors(s.get_input_tensors()), tensors(s.get_output_tensors())
graph = xir.Graph.deserialize(sys.argv[1])
root = graph.get_root_subgraph()
print(graph.get_name(), graph.get_op_num(), shown(root))
for child in root.toposort_child_subgraph():
    print(shown(child), sorted(map(shown, child.get_children()), key=str))
for op in sorted(graph.get_ops(), key=lambda op: op.get_name()):
    print(op.get_name(), op.get_type(), sorted(op.get_attrs()), tensors(op.get_input_tensors()), tensors([op.get_output_tensor()]))
"""


def listing(tmp_path: Path, model: Path, *modules: str) -> list[str]:
    script = tmp_path / "listing.py"
    script.write_text(LISTING)
    done = subprocess.run([sys.executable, *modules, script, model], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_samples
@pytest.mark.parametrize("name", ["pt_custom_op", "tf2_custom_op"])
def test_files_of_the_vendors_compiler_are_listed(name: str, tmp_path: Path) -> None:
    path = SAMPLES / f"{name}.xmodel"
    stored = read_xmodel(path)
    assert stored.root is not None
    graph = xir.Graph.deserialize(path)
    children = graph.get_root_subgraph().toposort_child_subgraph()
    assert sorted(c.get_name() for c in children) == sorted(c.name for c in stored.root.children)
    assert [op.get_name() for op in graph.get_ops()] == [op.name for op in stored.ops]
    given: set[str] = set()
    for child in children:  # in an order of execution
        assert {t.name for t in child.get_input_tensors()} <= given
        given |= {t.name for t in child.get_output_tensors()}
    lines = listing(tmp_path, path, "-m", "npuforge.board_runtime.vart")
    assert len(lines) == 1 + len(children) + len(stored.ops)


@needs_samples
@pytest.mark.parametrize("name", ["pt_custom_op", "tf2_custom_op"])
def test_listings_are_the_vendors(name: str, tmp_path: Path) -> None:
    vendor_folder()
    path = SAMPLES / f"{name}.xmodel"
    assert listing(tmp_path, path, "-m", "npuforge.board_runtime.vart") == listing(tmp_path, path)


@needs_samples
@pytest.mark.parametrize("name", ["pt_custom_op", "tf2_custom_op"])
def test_files_of_the_vendors_compiler_are_not_run(name: str) -> None:
    graph = xir.Graph.deserialize(SAMPLES / f"{name}.xmodel")
    message = (
        r"compiled for the DPU 'DPUCV2DX8G_ISA1_C20B14' by another compiler .* needs the vendor's VART and that DPU"
    )
    root = graph.get_root_subgraph()
    for subgraph in (root, *(c for c in root.get_children() if c.get_attr("device") != "USER")):
        with pytest.raises(UsageError, match=message):
            vart.Runner.create_runner(subgraph, "run")
    with pytest.raises(UsageError, match=message):
        GraphRunner.create_graph_runner(graph)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return make_build(tmp_path_factory.mktemp("build"), "pow2")


CPU_ONLY = """
import sys, numpy as np, xir, vart
children = xir.Graph.deserialize(sys.argv[1]).get_root_subgraph().toposort_child_subgraph()
(child,) = [c for c in children if c.get_attr("device") == "CPU"]
runner = vart.Runner.create_runner(child, "run")
given = np.array([[0.0, np.log(3.0)]], np.float32)
result = np.zeros((1, 2), np.float32)
assert runner.wait(runner.execute_async([given], [result])) == 0
print(*map(float, result[0]))
"""


@pytest.fixture(scope="module")
def host_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a network that is Softmax alone."""
    folder = tmp_path_factory.mktemp("host")
    node = helper.make_node("Softmax", ["x"], ["y"], "s", axis=1)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 2)) for n in "xy"]
    network = helper.make_model(
        helper.make_graph([node], "host", values[:1], values[1:]),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    write_build(folder, "pow2", onnx.shape_inference.infer_shapes(network), [{"x": np.ones((1, 2), np.float32)}])
    return folder


def run_on_the_host(folder: Path, *modules: str, libraries: str = "") -> None:
    """Softmax by hand: of two values, ln 3 apart, 1/4 and 3/4."""
    (folder / "application.py").write_text(CPU_ONLY)
    environment = dict(os.environ) | {"LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{libraries}"}
    words = [sys.executable, *modules, folder / "application.py", folder / "model.xmodel"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose([float(v) for v in done.stdout.split()], [0.25, 0.75], rtol=0, atol=1e-6)


def test_a_network_without_npu_partition_on_our_modules(host_only: Path) -> None:
    run_on_the_host(host_only, "-m", "npuforge.board_runtime.vart")


def test_a_network_without_npu_partition_on_the_vendors(host_only: Path) -> None:
    run_on_the_host(host_only, libraries=str(vendor_folder()))


def test_a_network_without_npu_partition_and_without_its_bin(host_only: Path, tmp_path: Path) -> None:
    """It lists; a runner says what is missing. Another network's .bin is none of its."""
    path = tmp_path / "model.xmodel"
    path.write_bytes((host_only / "model.xmodel").read_bytes())
    children = xir.Graph.deserialize(path).get_root_subgraph().toposort_child_subgraph()
    assert [c.get_attr("device") for c in children] == ["USER", "CPU"]
    (source,), (result,) = children[1].get_input_tensors(), children[1].get_output_tensors()
    assert (source.name, source.dims, result.dims, result.dtype) == ("x", [1, 2], [1, 2], "float32")
    with pytest.raises(
        UsageError, match=r"no part of the network is on the NPU.* needs model\.bin of its build beside it"
    ):
        vart.Runner.create_runner(children[1], "run")


def test_another_networks_bin_beside_it(host_only: Path, build: Build, tmp_path: Path) -> None:
    path = tmp_path / "model.xmodel"
    path.write_bytes((host_only / "model.xmodel").read_bytes())
    path.with_suffix(".bin").write_bytes((build.folder / "model.bin").read_bytes())
    with pytest.raises(FormatError, match=r"of the network 'host', its \.bin of 'two_heads'"):
        xir.Graph.deserialize(path)


def test_a_network_that_is_not_compiled(build: Build, tmp_path: Path) -> None:
    model = read_xmodel(build.model)
    model.root = None
    path = tmp_path / "net.xmodel"
    path.write_bytes(to_message(model).SerializeToString())
    graph = xir.Graph.deserialize(path)
    assert len(graph.get_ops()) == len(model.ops) and graph.get_root_subgraph().get_children() == []
    with pytest.raises(UsageError, match="a network without subgraphs, not compiled yet"):
        vart.Runner.create_runner(graph.get_root_subgraph())


@pytest.mark.parametrize(
    ("device", "value", "message"),
    [
        ("DPU", Attr("int32", -1), "npuforge_partition -1 on the device DPU; the .bin's partitions are NPU, CPU, NPU"),
        ("DPU", Attr("int32", 9), "npuforge_partition 9 on the device DPU"),
        ("CPU", Attr("int32", 0), "npuforge_partition 0 on the device CPU"),
        ("DPU", None, "no attribute npuforge_partition; compile the network again"),
    ],
)
def test_partitions_that_the_bin_has_not(
    build: Build, tmp_path: Path, device: str, value: Attr | None, message: str
) -> None:
    model = read_xmodel(build.model)
    attrs = model.by_device(device)[0].attrs
    del attrs["npuforge_partition"]
    if value is not None:
        attrs["npuforge_partition"] = value
    path = tmp_path / "net.xmodel"
    path.write_bytes(to_message(model).SerializeToString())
    with pytest.raises(FormatError, match=message):
        xir.Graph.deserialize(path)


def test_different_bins_are_refused(build: Build, tmp_path: Path) -> None:
    model = read_xmodel(build.model)
    model.by_device("DPU")[1].attrs["reg_id_to_parameter_value"] = Attr("map_string_2_bytes", {"REG_0": b"other"})
    path = tmp_path / "net.xmodel"
    path.write_bytes(to_message(model).SerializeToString())
    with pytest.raises(FormatError, match=r"do not hold one and the same \.bin"):
        xir.Graph.deserialize(path)


def test_a_failed_job_says_why(build: Build, capfd: pytest.CaptureFixture[str]) -> None:
    """On standard error as our plug-in does, and in `message`."""
    for child in xir.Graph.deserialize(build.model).get_root_subgraph().get_children()[1:]:
        runner = vart.RunnerExt.create_runner(child, "run")
        wrong = [np.zeros(t.dims, np.int64) for t in runner.get_input_tensors()]
        job = runner.execute_async(wrong, runner.get_outputs())
        assert runner.wait(job) == 1
        said = capfd.readouterr().err
        assert said == f"npuforge-runner: subgraph {child.get_name()}: {runner.message(job)}\n"
        assert "int64" in said
        assert runner.wait(runner.execute_async(runner.get_inputs(), runner.get_outputs())) == 0
        assert capfd.readouterr().err == ""


@pytest.mark.parametrize("fix_point", [2**31 - 1, -(2**31), 1100, -1100])
def test_fix_points_beyond_every_float(build: Build, tmp_path: Path, fix_point: int) -> None:
    """The outputs child is refused, as by our plug-in; scales of such a tensor are float32's 0 or infinity."""
    model = read_xmodel(build.model)
    for op in model.ops:
        if op.type == "fix2float":
            op.attrs["fix_point"] = Attr("int32", fix_point)
    path = tmp_path / "net.xmodel"
    path.write_bytes(to_message(model).SerializeToString())
    child = xir.Graph.deserialize(path).get_root_subgraph().get_children()[-1]
    with pytest.raises(FormatError, match=rf"fix2float\): fix_point {fix_point}; expected -64 to 64"):
        vart.Runner.create_runner(child)
    tensor = xir.Tensor("x", [1], "xint8", {"fix_point": fix_point})
    assert vart.get_output_scale(tensor) == (0.0 if fix_point > 0 else np.inf)
    assert vart.get_input_scale(tensor) == (np.inf if fix_point > 0 else 0.0)
