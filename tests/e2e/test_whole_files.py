"""A whole file by one call of the graph runner, ours and (where it is installed) the vendor's: it has every network output, with the right values, where a result is
read on, where an output is an input or a constant, and where values are bool, which XIR does not have. `--device dpu` too, and child by child.

Right values: ONNX Runtime's, of an input that the NPU's scales hold exactly where the NPU reads it, or of what the NPU gave.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
import onnxruntime
from vart_build import check_on_the_vendors_vart, vendor_folder

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

SHAPE = (1, 4, 6, 5)
RNG = np.random.default_rng(2)
MASK = RNG.integers(0, 2, SHAPE).astype(bool)


def node(op: str, inputs: str, output: str, **attrs: int | list[int]) -> onnx.NodeProto:
    """A node named as its (one) output."""
    return helper.make_node(op, inputs.split(), [output], f"n_{output}", **attrs)


def conv(source: str, target: str) -> onnx.NodeProto:
    return node("Conv", f"{source} w", target, kernel_shape=[3, 3], pads=[1] * 4)


@dataclass
class Network:
    """`names`: how the tensors of outputs are called in the file where not as in ONNX; `inputs`: their types; `modes`: "pow2", "fine", "bf16"."""

    nodes: list[onnx.NodeProto]
    outputs: str
    names: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=lambda: {"x": TensorProto.FLOAT})
    modes: tuple[str, ...] = ("pow2", "bf16")

    def model(self) -> onnx.ModelProto:
        constants = {"w": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6, "mask": MASK}
        constants |= {"k": RNG.normal(size=SHAPE).astype(np.float32), "level": np.float32(0.1)}
        used = {name for n in self.nodes for name in n.input}
        graph = helper.make_graph(
            self.nodes,
            "whole",
            [helper.make_tensor_value_info(name, kind, SHAPE) for name, kind in self.inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in self.outputs.split()],
            [numpy_helper.from_array(v, name) for name, v in constants.items() if name in used],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        types = {v.name: v for v in onnx.shape_inference.infer_shapes(_typeless(model)).graph.value_info}
        types |= {v.name: v for v in model.graph.input}
        outputs = [types[name] for name in self.outputs.split()]
        del model.graph.output[:]
        model.graph.output.extend(outputs)
        return model


def _typeless(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same without outputs, so that shape inference says all types."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    return copy


BOOLS = [
    node("Not", "m", "no"),
    node("And", "m mask", "both"),
    node("Or", "mask m", "one"),
    node("Xor", "m no", "odd"),
    node("Equal", "m mask", "same"),
    node("Where", "no k x", "chosen"),
    node("Or", "both odd", "picked"),
    node("Concat", "m picked", "joined", axis=1),
    node("Transpose", "joined", "turned", perm=[0, 2, 3, 1]),
    node("Not", "turned", "not"),
    node("Cast", "x", "truth", to=TensorProto.BOOL),
    node("And", "truth m", "true"),
    node("Cast", "true", "number", to=TensorProto.FLOAT),
    node("Identity", "m", "alias"),
    node("Where", "alias x k", "last"),
]
BOOL_OUTPUTS = "both one same chosen not number last odd"
BOOL_INPUTS = {"x": TensorProto.FLOAT, "m": TensorProto.BOOL}
CAST = [node("Cast", "q", "qf", to=TensorProto.FLOAT), node("Mul", "qf k", "last")]
NETWORKS = {
    "bools without an NPU partition": Network(BOOLS, BOOL_OUTPUTS, {}, BOOL_INPUTS),
    "bools beside the NPU": Network(
        [conv("x", "c"), *BOOLS, node("Where", "m c x", "y"), node("Where", "mask x c", "z")],
        f"{BOOL_OUTPUTS} y z c",
        {"c": "c_float"},
        BOOL_INPUTS,
        ("pow2", "fine", "bf16"),
    ),
    "bools from an earlier child": Network(
        [
            conv("x", "a"),
            node("Greater", "a level", "g"),
            node("Softmax", "a", "s", axis=1),
            conv("s", "b"),
            node("Not", "g", "n"),
            node("Where", "g b k", "y"),
        ],
        "y n a b",
        {"a": "a_float", "b": "b_float"},
    ),
    "a result that a later child reads": Network(
        [conv("x", "a"), node("Softmax", "a", "s", axis=1), conv("s", "b"), node("Add", "b s", "y")],
        "y s a b",
        {"a": "a_float", "b": "b_float", "s": "s_output"},
        modes=("pow2", "fine", "bf16"),
    ),
    "results that its own child and later ones read": Network(
        [
            conv("x", "a"),
            node("Softmax", "a", "s", axis=1),
            node("Softmax", "s", "t", axis=2),
            node("ArgMax", "a", "top", axis=1),
            node("Greater", "a level", "big"),
            node("Softmax", "t", "u", axis=3),
            conv("u", "b"),
            node("Softmax", "b", "e", axis=1),
            conv("e", "d"),
            node("Add", "s e", "f"),
            node("Mul", "d f", "y"),
            node("Add", "top top", "twice"),
            node("Where", "big d e", "z"),
            node("GatherElements", "y top", "g", axis=1),
        ],
        "s t y top twice e z big g a b d",
        {"a": "a_float", "b": "b_float", "d": "d_float", **{n: f"{n}_output" for n in ("s", "e", "top", "big")}},
    ),
    "inputs that are outputs": Network(
        [conv("x", "c"), node("Add", "c x", "y"), node("Where", "m c x", "z"), node("Add", "q q", "r"), *CAST],
        "x y z m q r last c",
        {"c": "c_float", **{n: f"{n}_output" for n in ("x", "m", "q")}},
        BOOL_INPUTS | {"q": TensorProto.INT64},
        ("pow2", "fine", "bf16"),
    ),
    "constants beside an output of the NPU": Network(
        [conv("x", "c"), node("Identity", "k", "o"), node("Identity", "mask", "b")], "o c b", {"c": "c_float"}
    ),
    "constants beside outputs of the CPU": Network(
        [conv("x", "c"), node("Identity", "k", "o"), node("Softmax", "c", "s", axis=1)], "o s c", {"c": "c_float"}
    ),
}


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
        drawn["q"] = rng.integers(-9, 9, SHAPE)
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
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.reshape(found[name].shape), rtol=2e-6, atol=1e-7, err_msg=name)
        assert found[name].dtype == (np.uint8 if values.dtype == bool else values.dtype), name


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
    for name, values in built.expected().items():
        np.testing.assert_allclose(found[name], values.reshape(found[name].shape), rtol=2e-6, atol=1e-7, err_msg=name)


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
