"""`vitis_ai_library.GraphRunner`: one script on ours and, where it is installed, on the vendor's; right values are our session's and the integers'."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from vart_build import Build, make_build, vendor_folder

from npuforge.board_runtime import xir
from npuforge.board_runtime.graph_runner import GraphRunner
from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import UsageError
from npuforge.quant.executor import IntegerExecutor

SCRIPT = """
import sys
import numpy as np, xir, vart, vitis_ai_library
graph = xir.Graph.deserialize(sys.argv[1])
runner = vitis_ai_library.GraphRunner.create_graph_runner(graph)
inputs, outputs = runner.get_inputs(), runner.get_outputs()
assert [b.get_tensor().name for b in inputs] == [t.name for t in runner.get_input_tensors()] == ["x"]
sizes = [int(t.get_element_num() / t.dims[0]) for t in runner.get_output_tensors()]
assert sizes == [np.asarray(b).size for b in outputs]
np.asarray(inputs[0])[...] = np.load(sys.argv[2])
job = runner.execute_async(inputs, outputs)
assert job[1] == 0 and runner.wait(job) == 0
np.savez(sys.argv[3], **{b.get_tensor().name: np.array(b) for b in outputs})
"""


@pytest.fixture(scope="module", params=["pow2", "fine"])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    return make_build(tmp_path_factory.mktemp(request.param), request.param)


def given(build: Build, index: int = 0) -> np.ndarray:
    """An image as the int8 input."""
    image = build.images[index : index + 1].transpose(0, 3, 1, 2)
    return np.ascontiguousarray(IntegerExecutor(build.qgraph).quantise_input("x", image))


def expected(build: Build, index: int = 0) -> dict[str, np.ndarray]:
    """Our session's, under the names in the file."""
    image = np.ascontiguousarray(build.images[index : index + 1].transpose(0, 3, 1, 2))
    results = Session(build.folder / "model.bin").run([image])
    return {f"{n}_float" if n in ("first", "tail") else n: array for n, array in results.items()}


def results(build: Build, *command: str, libraries: str = "") -> dict[str, np.ndarray]:
    script = build.folder / "script.py"
    script.write_text(SCRIPT)
    np.save(build.folder / "input.npy", given(build))
    environment = dict(os.environ)
    if libraries:
        environment["LD_LIBRARY_PATH"] = f"{os.environ.get('LD_LIBRARY_PATH', '')}:{libraries}"
    words = [sys.executable, *command, script, build.model, build.folder / "input.npy", build.folder / "made.npz"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    with np.load(build.folder / "made.npz") as values:
        return dict(values)


def test_whole_file_on_our_modules(build: Build) -> None:
    found, wanted = results(build, "-m", "npuforge.board_runtime.vart"), expected(build)
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_whole_file_on_the_vendors_modules(build: Build) -> None:
    folder: Path = vendor_folder()
    probe = subprocess.run([sys.executable, "-c", "import xir, vart, vitis_ai_library"], capture_output=True)
    if probe.returncode != 0 or not (folder / "libnpuforge-ops.so").exists():
        pytest.skip("the Vitis AI Library (module vitis_ai_library, header vart/op_imp.h) is not installed")
    found, wanted = results(build, libraries=str(folder)), expected(build)
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-6, err_msg=name)  # exp() is the vendor's own


def test_threads_and_batches(build: Build) -> None:
    runner = GraphRunner.create_graph_runner(xir.Graph.deserialize(build.model))
    names = [t.name for t in runner.get_output_tensors()]

    def one(index: int) -> dict[str, np.ndarray]:
        outputs = runner.get_outputs()
        job = runner.execute_async([given(build, index)], outputs)
        assert runner.wait(job) == 0 and runner.wait(job) == 3
        return dict(zip(names, outputs, strict=True))

    with ThreadPoolExecutor(3) as pool:
        for index, found in enumerate(pool.map(one, range(6))):
            for name, values in expected(build, index).items():
                np.testing.assert_array_equal(found[name], values, err_msg=name)
    outputs = [np.zeros((2, *t.dims[1:]), t.dtype) for t in runner.get_output_tensors()]
    assert runner.wait(runner.execute_async([np.concatenate([given(build, 4), given(build, 2)])], outputs, True)) == 0
    for part, index in enumerate((4, 2)):
        for name, values in expected(build, index).items():
            np.testing.assert_array_equal(outputs[names.index(name)][part : part + 1], values, err_msg=name)


def test_mistakes(build: Build) -> None:
    runner = GraphRunner.create_graph_runner(xir.Graph.deserialize(build.model))
    with pytest.raises(UsageError, match="outputs: expected 5 arrays, found 0"):
        runner.execute_async([given(build)], [])
    job = runner.execute_async([given(build)[:, :3].copy()], runner.get_outputs())
    assert runner.wait(job) == 1 and "input 'x'" in runner.message(job)
