"""A whole file by one call of the graph runner, ours and (where it is installed) the vendor's: it has every network output, with the right values, where a result is
read on, where an output is an input or a constant, where values are bool, which XIR does not have, where inputs and outputs do not begin with the batch, and
where the data decide how many rows there are. `--device dpu` too, and child by child.

Right values: ONNX Runtime's, of an input that the NPU's scales hold exactly where the NPU reads it, or of what the NPU gave.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
import onnxruntime
from vart_build import check_on_the_vendors_vart, vendor_folder
from whole_networks import NETWORKS, SHAPE, Network

from npuforge.board_runtime import xir
from npuforge.board_runtime.graph_runner import GraphRunner
from npuforge.board_runtime.session import Session
from npuforge.compile import pipeline
from npuforge.compile.context import Options
from npuforge.compile.xir.listing import border
from npuforge.compile.xir.model import XModel
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels import arch
from npuforge.hw_kernels.bf16 import from_float32
from npuforge.quant.executor import IntegerExecutor
from npuforge.scripts.build_folder import open_build


@dataclass
class Built:
    folder: Path
    network: Network
    given: dict[str, np.ndarray]  # by name of the network's inputs
    model: XModel

    def expected(self) -> dict[str, np.ndarray]:
        """By name of the file's tensors. Our session's, which `test_the_session` holds against ONNX Runtime."""
        found = Session(self.folder / "model.bin").run(self.given)
        return {self.network.names.get(name, name): values for name, values in found.items()}

    def users(self) -> dict[str, np.ndarray]:
        """Values of the USER tensors, by name; bf16 as real values."""
        qgraph, values = open_build(self.folder).qgraph, {}
        for tensor in (op.tensor for op in self.model.ops if op.type in ("data", "data-fix")):
            name = tensor.attrs["npuforge_input"].value if "npuforge_input" in tensor.attrs else tensor.name
            values[tensor.name] = self.given[name]
            if tensor.dtype == "XINT8":
                values[tensor.name] = IntegerExecutor(qgraph).quantise_input(name, self.given[name])
            elif tensor.dtype == "BFLOAT16":
                values[tensor.name] = self.given[name].transpose(0, 2, 3, 1)
            values[tensor.name] = values[tensor.name].reshape(tensor.shape)
        return values

    def on_ours(self) -> dict[str, np.ndarray]:
        """Results by name of the file's tensors."""
        runner = GraphRunner.create_graph_runner(xir.Graph.deserialize(self.folder / "model.xmodel"))
        inputs, outputs = runner.get_inputs(), runner.get_outputs()
        values = self.users()
        for buffer in inputs:
            buffer[...] = values[buffer.get_tensor().name]
        job = runner.execute_async(inputs, outputs)
        assert runner.wait(job) == 0, runner.message(job)
        return {b.get_tensor().name: np.asarray(b) for b in outputs}

    def on_the_vendors(self, program: Path) -> dict[str, np.ndarray]:
        """The same by the vendor's graph runner."""
        tensors = {op.tensor.name: op.tensor for op in self.model.ops}
        for name, values in self.users().items():
            bits = from_float32(values) if tensors[name].dtype == "BFLOAT16" else values
            (self.folder / f"{name.encode().hex()}.in").write_bytes(np.ascontiguousarray(bits).tobytes())
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{program.parent}"}
        words = [program, self.folder / "model.xmodel", self.folder]
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr
        found = {}
        for file in self.folder.glob("*.out"):
            tensor = tensors[bytes.fromhex(file.stem).decode()]
            found[tensor.name] = np.frombuffer(file.read_bytes(), tensor.dtype.lower()).reshape(tensor.shape)
        return found


@pytest.fixture(scope="module", params=[f"{name}, {mode}" for name, net in NETWORKS.items() for mode in net.modes])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder, (name, mode) = tmp_path_factory.mktemp("whole"), str(request.param).split(", ")
    network = NETWORKS[name]
    onnx.save(network.model(), folder / "net.onnx")
    samples = []
    for number in range(5):
        rng = np.random.default_rng(number)
        drawn = {"x": rng.normal(size=SHAPE).astype(np.float32), "m": rng.integers(0, 2, SHAPE).astype(bool)}
        drawn |= {
            "q": rng.integers(-9, 9, SHAPE),
            "row": rng.normal(size=5).astype(np.float32),
            "pick": np.array([0, 2, 2, 3]),
        }
        drawn["gain"] = np.array(rng.normal(), np.float32)
        samples.append({key: drawn[key] for key in network.inputs})
        np.savez(folder / f"{number}.npz", **samples[-1])
    paths = [folder / f"{number}.npz" for number in range(4)]
    kind = {"precision": "bf16"} if mode == "bf16" else {"mode": mode}
    made = arch.load("nf-b1024-bf16" if mode == "bf16" else "nf-b1024")
    pipeline.compile_model(Options(folder / "net.onnx", made, folder / "build", calibration=paths, **kind))  # type: ignore[arg-type]
    return Built(folder / "build", network, samples[4], read_xmodel(folder / "build" / "model.xmodel"))


def check(found: dict[str, np.ndarray], built: Built) -> None:
    expected = built.expected()
    assert set(found) == set(expected)
    check_values(found, built)
    for name, values in expected.items():
        assert found[name].dtype == (np.uint8 if values.dtype == bool else values.dtype), name


def check_values(found: dict[str, np.ndarray], built: Built) -> None:
    """Of tensors with open axes the rows that are there; what is left over holds -1 (of bool tensors 255)."""
    ops = {op.tensor.name: op for op in built.model.ops}
    for name, values in built.expected().items():
        open_shape = ops[name].get("npuforge_open_shape")
        array = found[name]
        if open_shape is not None:
            axis = list(open_shape).index(-1)
            count = values.shape[axis - (array.ndim - values.ndim)]
            array, rest = np.split(array, [count], axis)
            assert (rest == (255 if values.dtype == bool else -1)).all(), name
        np.testing.assert_allclose(array, values.reshape(array.shape), rtol=2e-6, atol=1e-7, err_msg=name)


def test_the_session(built: Built) -> None:
    """Right values, of what the NPU gave."""
    found = Session(built.folder / "model.bin").run(built.given)
    whole = onnx.load(built.folder.parent / "net.onnx")
    npu = [n for n in whole.graph.node if n.op_type == "Conv"]
    from_npu = [n.output[0] for n in npu if n.output[0] in found]
    if len(from_npu) != len(npu):
        pytest.skip("not all that the NPU gives is an output")
    names = [name for name in found if name not in from_npu]
    rest = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(whole)).extract_model(
        [*built.network.inputs, *from_npu], names
    )
    feeds = built.given | {name: found[name] for name in from_npu}
    for name, expected in zip(
        names, onnxruntime.InferenceSession(rest.SerializeToString()).run(names, feeds), strict=True
    ):
        np.testing.assert_allclose(found[name], expected, rtol=2e-6, atol=1e-7, err_msg=name)


def test_the_file(built: Built) -> None:
    """To the vendor's graph runner an output is what nobody in the file reads; `return_ops` names the same."""
    tensors = {op.name: op.tensor.name for op in built.model.ops}
    returned = [tensors[name] for name in built.model.attrs["return_ops"].value]
    assert returned == [built.network.names.get(name, name) for name in built.network.outputs.split()]
    assert built.model.root is not None
    assert border(built.model, built.model.root)[1] == sorted(returned)


def test_on_our_graph_runner(built: Built) -> None:
    check(built.on_ours(), built)


def test_on_the_vendors_graph_runner(built: Built) -> None:
    program = vendor_folder() / "vart_graph_runner"
    if not program.exists():
        pytest.skip(f"{program} is not built: cmake --build {program.parent} --target vendor_programs")
    check(built.on_the_vendors(program), built)


def chained(built: Built, *command: str, libraries: str = "") -> dict[str, np.ndarray]:
    """Child by child, every buffer float32."""
    floats = {name: values.astype(np.float32) for name, values in built.users().items()}
    for name in set(built.given) & set(floats):
        if open_build(built.folder).qgraph.quant.get(name) is not None:
            floats[name] = built.given[name].transpose(0, 2, 3, 1)
    files = [built.folder / name for name in ("model.xmodel", "floats.npz", "chained.npz")]
    np.savez(files[1], **floats)
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{libraries}"}
    words = [sys.executable, *command, Path(__file__).with_name("vart_chain.py"), *files, "float32"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    with np.load(files[2]) as found:
        return {name: found[name] for name in built.expected()}


def check_chained(found: dict[str, np.ndarray], built: Built) -> None:
    check_values(found, built)


def test_child_by_child_on_our_vart(built: Built) -> None:
    check_chained(chained(built, "-m", "npuforge.board_runtime.vart"), built)


def test_child_by_child_on_the_vendors_vart(built: Built) -> None:
    check_chained(chained(built, libraries=str(vendor_folder())), built)


def test_device_dpu_on_the_vendors_vart(built: Built) -> None:
    if not built.model.by_device("DPU"):
        pytest.skip("nothing for --device dpu")
    lines = check_on_the_vendors_vart(built.folder)
    assert [line.split(":")[0] for line in lines] == built.network.outputs.split()
    assert not any("NOT" in line for line in lines)
