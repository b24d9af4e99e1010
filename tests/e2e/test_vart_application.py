"""One application written for the vendor's VART, unchanged, on our modules always and on the vendor's (with our plug-in) where they are installed.

The vendor's side needs its libraries and our plug-in on the loader's path, and the plug-in built against them:

    cmake -S board_runtime -B .native-build/cmake -G Ninja -DNPUFORGE_PYTHON=OFF -DCMAKE_PREFIX_PATH=PREFIX && cmake --build .native-build/cmake --target npuforge-runner
    LD_LIBRARY_PATH=PREFIX/lib pytest tests/e2e/test_vart_application.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from vart_build import OUTPUTS, Build, make_build, vendor_folder

from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import FormatError
from npuforge.compile.reference import NodesExecutor
from npuforge.compile.xir.model import to_message
from npuforge.compile.xir.reader import read_xmodel
from npuforge.quant.executor import IntegerExecutor


@pytest.fixture(scope="module", params=["pow2", "fine"])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    return make_build(tmp_path_factory.mktemp(request.param), request.param)


def expected(build: Build) -> dict[str, np.ndarray]:
    """The NPU's outputs by the numpy integer semantics, as the application gets them: int8 in pow2 mode, else real values; N, H, W, C."""
    executor = IntegerExecutor(build.qgraph)
    made: dict[str, list[np.ndarray]] = {"first": [], "scores": []}
    for image in build.images:
        integers = executor.run({"x": executor.quantise_input("x", image[np.newaxis].transpose(0, 3, 1, 2))})
        for name, parts in made.items():
            quant = build.qgraph.quant[name]
            real = (integers[name].astype(np.float32) - quant.zero_point.astype(np.float32)) * quant.scale
            parts.append(integers[name] if build.qgraph.mode == "pow2" else real.astype(np.float32))
    return {name: np.concatenate(parts) for name, parts in made.items()}


def check(results: dict[str, np.ndarray], build: Build) -> None:
    wanted = expected(build)
    assert sorted(results) == sorted(wanted)
    for name, values in wanted.items():
        assert results[name].dtype == values.dtype
        np.testing.assert_array_equal(results[name], values, err_msg=name)


def test_on_our_modules(build: Build) -> None:
    check(build.run("-m", "npuforge.board_runtime.vart"), build)


def test_outputs_of_the_network_are_outputs_of_their_subgraphs(build: Build) -> None:
    """XIR gives only tensors to the outside that their own subgraph does not read; `classes` and `joined` are read on."""
    model = read_xmodel(build.model)
    returned = {op.name: op for op in model.ops if op.name in model.attrs["return_ops"].value}
    assert [returned[name].tensor.name for name in model.attrs["return_ops"].value] == [
        "first_float",
        "classes",
        "joined",
        "mean",
        "tail_float",
    ]
    assert not [op.name for op in model.ops if set(op.inputs()) & set(returned)]
    assert sorted(op.type for op in returned.values()).count("identity") == 2


@pytest.fixture(scope="session")
def vendor() -> Path:
    return vendor_folder()


def test_on_the_vendors_modules(build: Build, vendor: Path) -> None:
    check(build.run(libraries=vendor), build)


CHAIN = """
import sys
import numpy as np, xir, vart
graph = xir.Graph.deserialize(sys.argv[1])
values = {"x": np.load(sys.argv[2])}
for child in graph.get_root_subgraph().toposort_child_subgraph():
    if child.get_attr("device") == "USER":
        continue
    runner = vart.Runner.create_runner(child, "run")
    types = {"xint8": np.int8, "float32": np.float32}
    outputs = [np.zeros(tuple(t.dims), types[t.dtype.lower()]) for t in runner.get_output_tensors()]
    job = runner.execute_async([values[t.name] for t in runner.get_input_tensors()], outputs)
    assert job[1] == 0 and runner.wait(job) == 0
    values.update({t.name: array for t, array in zip(runner.get_output_tensors(), outputs)})
    del runner
np.savez(sys.argv[3], **values)
"""


def run_vendor_script(script: str, build: Build, vendor: Path) -> dict[str, np.ndarray]:
    """What a script on the vendor's modules makes of the first image, given as the int8 input: model, input, results."""
    image = build.images[:1].transpose(0, 3, 1, 2)
    np.save(build.folder / "input.npy", IntegerExecutor(build.qgraph).quantise_input("x", image))
    environment = dict(os.environ) | {"LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{vendor}"}
    files = [build.model, build.folder / "input.npy", build.folder / "vendor.npz"]
    done = subprocess.run([sys.executable, "-c", script, *files], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    with np.load(build.folder / "vendor.npz") as values:
        return dict(values)


def own_results(build: Build) -> dict[str, np.ndarray]:
    """Of our session for the first image; under the names in the .xmodel."""
    results = Session(build.folder / "model.bin").run([np.ascontiguousarray(build.images[:1].transpose(0, 3, 1, 2))])
    for name in ("first", "tail"):  # computed by the NPU
        results[f"{name}_float"] = results.pop(name)
    return results


def test_every_subgraph_on_the_vendors_modules(build: Build, vendor: Path) -> None:
    """One runner per child, tensors from child to child by name; the float results are those of our own session."""
    values = run_vendor_script(CHAIN, build, vendor)
    for name, expected_values in own_results(build).items():
        np.testing.assert_array_equal(values[name], expected_values, err_msg=name)


def test_every_subgraph_on_our_modules(build: Build) -> None:
    """The same script, unchanged: the children of the .xmodel under the vendor's names, `subgraph_outputs` among them."""
    script = build.folder / "chain.py"
    script.write_text(CHAIN)
    executor = IntegerExecutor(build.qgraph)
    np.save(build.folder / "input.npy", executor.quantise_input("x", build.images[:1].transpose(0, 3, 1, 2)))
    files = [build.model, build.folder / "input.npy", build.folder / "own.npz"]
    command = [sys.executable, "-m", "npuforge.board_runtime.vart", script, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(build.folder / "own.npz") as values:
        for name, expected_values in own_results(build).items():
            np.testing.assert_array_equal(values[name], expected_values, err_msg=name)
    children = xir.Graph.deserialize(build.model).get_root_subgraph().toposort_child_subgraph()
    model = read_xmodel(build.model)
    assert model.root is not None
    assert [c.get_name() for c in children] == [c.name for c in model.root.children]
    assert children[1].get_attr("dpu_name") == "nf-b1024" and children[1].get_attr("workload") > 0


def test_outputs_child_refuses_other_arrays(build: Build) -> None:
    child = xir.Graph.deserialize(build.model).get_root_subgraph().get_children()[-1]
    runner = vart.Runner.create_runner(child)
    given = [np.zeros(t.dims, np.int8) for t in runner.get_input_tensors()]
    results = [np.zeros(t.dims, np.float32) for t in runner.get_output_tensors()]
    job = runner.execute_async([given[0].astype(np.int32), *given[1:]], results)
    assert job[1] == 1 and "input 'first': expected int8 or float32 [1, 12, 10, 9], found int32" in runner.message(job)
    job = runner.execute_async(given, results[:1])
    assert job[1] == 1 and runner.message(job) == "outputs: expected 2 arrays, found 1"
    assert runner.wait(runner.execute_async(given, results)) == 0
    assert runner.wait((99, 0)) == 3


def test_file_of_an_older_npuforge_is_refused(build: Build, tmp_path: Path) -> None:
    model = read_xmodel(build.model)
    del model.by_device("DPU")[0].attrs["npuforge_partition"]
    (tmp_path / "old.xmodel").write_bytes(to_message(model).SerializeToString())
    with pytest.raises(FormatError, match="no attribute npuforge_partition; compile the network again"):
        xir.Graph.deserialize(tmp_path / "old.xmodel")


def test_an_op_that_xir_would_refuse_is_refused_before_use(build: Build, tmp_path: Path) -> None:
    model = read_xmodel(build.model)
    op = next(op for op in model.ops if op.type.startswith("conv2d"))
    del op.attrs["kernel"]
    (tmp_path / "odd.xmodel").write_bytes(to_message(model).SerializeToString())
    with pytest.raises(FormatError, match=rf"odd\.xmodel: .*{op.name}.*kernel"):
        xir.Graph.deserialize(tmp_path / "odd.xmodel")


BUFFERS = """
import sys
import numpy as np, xir, vart
graph = xir.Graph.deserialize(sys.argv[1])
dpu = [c for c in graph.get_root_subgraph().toposort_child_subgraph() if c.get_attr("device") == "DPU"][0]
given = np.load(sys.argv[2])
runner = vart.RunnerExt.create_runner(dpu, "run")
results = {}
inputs, outputs = runner.get_inputs(), runner.get_outputs()
np.array(inputs[0], copy=False)[...] = given
job = runner.execute_async(inputs, outputs)
assert job[1] == 0 and runner.wait(job) == 0
for buffer in outputs:
    results["own buffers/" + buffer.get_tensor().name] = np.array(buffer)
tensors = runner.get_output_tensors()
batch = [np.zeros((3, *t.dims[1:]), np.int8) for t in tensors]
job = runner.execute_async([np.concatenate([given, ~given, given])], batch, True)
assert job[1] == 0 and runner.wait(job) == 0
jobs = []
for number in range(8):
    arrays = [np.zeros(t.dims, np.int8) for t in tensors]
    jobs.append((runner.execute_async([given], arrays), arrays))
assert len({job[0] for job, _ in jobs}) == 8
assert all(runner.wait(job) == 0 for job, _ in reversed(jobs))
for index, tensor in enumerate(tensors):
    results["batch of 3, first/" + tensor.name] = batch[index][:1]
    results["batch of 3, last/" + tensor.name] = batch[index][2:]
    results["batch of 3, middle/" + tensor.name] = batch[index][1:2]
    for number, (_, arrays) in enumerate(jobs):
        results[f"job {number}/{tensor.name}"] = arrays[index]
del inputs, outputs, runner
np.savez(sys.argv[3], **results)
"""


def test_buffers_batches_and_jobs_on_the_vendors_modules(build: Build, vendor: Path) -> None:
    """RunnerExt's buffers, a batch of three in one array, eight jobs in flight waited for backwards: all the bits of the integer semantics."""
    executor = IntegerExecutor(build.qgraph)
    given = executor.quantise_input("x", build.images[:1].transpose(0, 3, 1, 2))
    first, middle = executor.run({"x": given}), executor.run({"x": ~given})
    values = run_vendor_script(BUFFERS, build, vendor)
    assert len(values) == 2 * (1 + 3 + 8)
    for key, array in values.items():
        where, name = key.split("/")
        wanted = (middle if where.endswith("middle") else first)[name]
        np.testing.assert_array_equal(array, wanted, err_msg=key)


def test_buffers_at_every_location_on_the_vendors_classes(build: Build, vendor: Path) -> None:
    """Host, physical and device buffers derived from the vendor's TensorBuffer, through vart::RunnerExt::create_runner (C++)."""
    if build.qgraph.mode != "pow2":
        pytest.skip("int8 and float32 inputs with the same values need a fix_point")
    program = vendor / "vart_buffers"
    if not program.exists():
        pytest.skip(f"{program} is not built: cmake --build {vendor} --target vart_buffers")
    environment = dict(os.environ) | {"LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{vendor}"}
    done = subprocess.run([program, build.model], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout == "ok 12\n", done


DEVICE = """
import sys
import numpy as np
from npuforge.board_runtime.devices import open_session
session = open_session(sys.argv[1], "dpu", threads=2)
outputs, records = session.trace([np.load(sys.argv[2])])
np.savez(sys.argv[3], **outputs, **{"left/" + r.tensor: r.data for r in records})
"""


def test_device_dpu_on_the_vendors_modules(build: Build, vendor: Path) -> None:
    """`--device dpu`: the vendor's xir and vart open the file, our plug-in takes the DPU's place; all bits of our own session and of the integers."""
    image = np.ascontiguousarray(build.images[:1].transpose(0, 3, 1, 2))
    (build.folder / "manifest.json").write_text(json.dumps({"format": 1, "name": "two_heads"}))
    np.save(build.folder / "image.npy", image)
    files = [build.folder, build.folder / "image.npy", build.folder / "device.npz"]
    environment = dict(os.environ) | {"LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{vendor}"}
    done = subprocess.run([sys.executable, "-c", DEVICE, *files], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    expected_outputs = Session(build.folder / "model.bin").run([image])
    integers, _ = IntegerExecutor(build.qgraph, NodesExecutor(build.qgraph.graph)).run_all({"x": image})
    with np.load(build.folder / "device.npz") as found:
        assert set(found) == {*OUTPUTS, "left/first", "left/scores", "left/tail"}
        for name in found:
            own = integers[name.removeprefix("left/")] if name.startswith("left/") else expected_outputs[name]
            np.testing.assert_array_equal(found[name], own, err_msg=name)


GRAPH = """
import sys
import numpy as np, xir, vart, vitis_ai_library
graph = xir.Graph.deserialize(sys.argv[1])
runner = vitis_ai_library.GraphRunner.create_graph_runner(graph)
inputs, outputs = runner.get_inputs(), runner.get_outputs()
np.array(inputs[0], copy=False)[...] = np.load(sys.argv[2])
job = runner.execute_async(inputs, outputs)
assert job[1] == 0 and runner.wait(job) == 0
np.savez(sys.argv[3], **{t.get_tensor().name: np.array(t) for t in outputs})
"""


def test_whole_file_on_the_vendors_graph_runner(build: Build, vendor: Path) -> None:
    """The Vitis AI Library runs NPU children by our plug-in and CPU children by its CPU task with our operator libraries where it has none."""
    probe = subprocess.run([sys.executable, "-c", "import xir, vart, vitis_ai_library"], capture_output=True, text=True)
    if probe.returncode != 0 or not (vendor / "libnpuforge-ops.so").exists():
        pytest.skip("the Vitis AI Library (module vitis_ai_library, header vart/op_imp.h) is not installed")
    values = run_vendor_script(GRAPH, build, vendor)
    for name, expected_values in own_results(build).items():
        np.testing.assert_allclose(values[name], expected_values, rtol=2e-6, err_msg=name)  # exp() is the vendor's own
