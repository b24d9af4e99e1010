"""A small compiled network for applications on VART, and where the vendor's side of them is. Shared by the tests of the VART interface."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps import generate, write_bin
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.xir.writer import write_xmodel
from npuforge.hw_kernels import arch as arches
from npuforge.quant.bf16 import quantize_bf16
from npuforge.quant.calibrate import calibrate
from npuforge.quant.quantize import quantize

BUILD = Path(__file__).resolve().parents[2] / ".native-build" / "cmake"
APPLICATION = Path(__file__).with_name("vart_application.py")
COUNT = 7
OUTPUTS = ("first", "classes", "joined", "mean", "tail")


def network() -> onnx.ModelProto:
    """Two convolutions, two outputs of the NPU; one goes through CPU operators, some of which XIR has a word for, the other through one and back."""
    rng = np.random.default_rng(3)
    values = {
        "w1": rng.normal(size=(9, 3, 3, 3)) / 5,
        "b1": rng.normal(size=9) / 3,
        "w2": rng.normal(size=(6, 9, 1, 1)) / 3,
        "b2": rng.normal(size=6) / 3,
        "w3": rng.normal(size=(5, 9, 3, 3)),
        "b3": rng.normal(size=5) / 3,
        "two": np.float32(2),
    }
    integers = {"rows": [1, 120, 6], "sizes": [2, 2, 2], "from": [1], "to": [100], "axes": [1], "steps": [3]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["c1"], ["first"], "l1", alpha=0.1),
        helper.make_node("Conv", ["first", "w2", "b2"], ["scores"], "c2", kernel_shape=[1, 1]),
        helper.make_node("Softmax", ["scores"], ["classes"], "s", axis=1),
        helper.make_node("Transpose", ["classes"], ["t"], "t", perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["t", "rows"], ["r"], "r"),
        helper.make_node("Split", ["r", "sizes"], ["s0", "s1", "s2"], "p", axis=2),
        helper.make_node("Sigmoid", ["s0"], ["a"], "a"),
        helper.make_node("Exp", ["s1"], ["e"], "e"),
        helper.make_node("Mul", ["e", "two"], ["m"], "m"),
        helper.make_node("Softmax", ["s2"], ["q"], "q", axis=-1),
        helper.make_node("Concat", ["a", "m", "q"], ["j"], "j", axis=-1),
        helper.make_node("Slice", ["j", "from", "to", "axes", "steps"], ["joined"], "i"),
        helper.make_node("Softmax", ["first"], ["between"], "b", axis=1),
        helper.make_node("Conv", ["between", "w3", "b3"], ["tail"], "c3", kernel_shape=[3, 3]),
        helper.make_node("ReduceMean", ["joined"], ["mean"], "n", axes=[-1], keepdims=0),
    ]
    shape = (1, 3, 12, 10)
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in OUTPUTS]
    initializers = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in values.items()]
    initializers += [numpy_helper.from_array(np.asarray(v, np.int64), k) for k, v in integers.items()]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "two_heads", [image], outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


@dataclass
class Build:
    """A compiled network, its files, the images."""

    qgraph: QGraph
    folder: Path
    images: np.ndarray  # [COUNT, H, W, C]

    @property
    def model(self) -> Path:
        return self.folder / "model.xmodel"

    def run(self, *command: str | Path, libraries: Path | None = None) -> dict[str, np.ndarray]:
        """The application's results."""
        results = self.folder / f"results{len(list(self.folder.iterdir()))}.npz"
        environment = dict(os.environ)
        if libraries is not None:
            paths = [os.environ.get("LD_LIBRARY_PATH", ""), str(libraries)]
            environment["LD_LIBRARY_PATH"] = ":".join(p for p in paths if p)
        arguments = [*command, APPLICATION, self.model, self.folder / "images.npy", "3", results]
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        with np.load(results) as stored:
            return dict(stored)


def make_build(folder: Path, mode: str) -> Build:
    """Compiles the network into a folder."""
    rng = np.random.default_rng(0)
    images = rng.normal(0, 1, (COUNT, 12, 10, 3)).astype(np.float32)
    feeds = [{"x": image[np.newaxis].transpose(0, 3, 1, 2)} for image in images[:3]]
    qgraph = write_build(folder, mode, network(), feeds)
    np.save(folder / "images.npy", images)
    return Build(qgraph, folder, images)


def write_build(folder: Path, mode: str, model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> QGraph:
    """model.bin and model.xmodel of a network. `feeds`: to calibrate with, N, C, H, W."""
    graph = partition(fuse(fold(import_onnx(model).graph)))
    if mode == "bf16":
        qgraph = quantize_bf16(graph)
    else:
        statistics = calibrate(graph, feeds, lambda wanted: GraphExecutor(graph, wanted, threads=1).run)
        qgraph = quantize(graph, statistics, mode)
    arch = arches.load("nf-b1024-bf16" if mode == "bf16" else "nf-b1024")
    image = write_bin.to_bytes(generate.generate(qgraph, arch))
    (folder / "model.bin").write_bytes(image)
    write_xmodel(qgraph, image, folder / "model.xmodel")
    return qgraph


def vendor_folder() -> Path:
    """The folder with the plug-in that was built against the vendor's libraries, which are importable; else the test is skipped."""
    if not (BUILD / "libnpuforge-runner.so").exists():
        pytest.skip(f"{BUILD} has no libnpuforge-runner.so: the vendor's vart was not there when npuforge was built")
    probe = subprocess.run([sys.executable, "-c", "import xir, vart"], capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"the vendor's modules cannot be imported: {probe.stderr.strip().splitlines()[-1]}")
    return BUILD


def check_on_the_vendors_vart(build: Path) -> list[str]:
    """What `npuforge run BUILD --check --device dpu` prints on the vendor's modules; it must end well. Skipped where they are not installed."""
    paths = [os.environ.get("LD_LIBRARY_PATH", ""), str(vendor_folder())]
    program = "from npuforge.scripts.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "run", build, "--check", "--device", "dpu"],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": ":".join(p for p in paths if p)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
