"""`export --to onnxruntime`: the files, and, where ONNX Runtime's headers are, the library in ONNX Runtime against the operators' float64 meaning.

pytest tests/hw_kernels/test_onnxruntime_library.py --onnxruntime-include DIR
"""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from contract import Subject, subjects, wide
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.context import Options
from npuforge.compile.ir.errors import ModelError, NpuforgeError, UnsupportedError, UsageError
from npuforge.compile.onnxruntime import export as exporter
from npuforge.compile.onnxruntime.export import LIBRARY, SOURCE, export, find_headers, signatures_of
from npuforge.hw_kernels import arch
from npuforge.hw_kernels.levels import declared

OWN = subjects(lambda op: declared(op, "ORT"))
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1), helper.make_opsetid("com.example", 1)]


def element(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class Branches:
    """One network with every subject as a branch of its own; `feeds` and the float64 meaning of every branch's outputs."""

    def __init__(self, chosen: list[Subject]) -> None:
        self.feeds: dict[str, np.ndarray] = {}
        self.expected: dict[str, np.ndarray] = {}
        nodes, inputs, constants, outputs = [], [], [], []
        for k, subject in enumerate(chosen):
            graph, values = subject.graph(), subject.inputs()
            node = graph.nodes[0]
            results = subject.op.reference(node, wide(values))
            for name, value in zip(node.inputs, values, strict=True):
                if name in graph.constants or 0 in np.shape(value):  # an input of a network has no dimension of 0
                    constants.append(numpy_helper.from_array(np.asarray(value), f"{k}_{name}"))
                    continue
                self.feeds[f"{k}_{name}"] = value
                inputs.append(helper.make_tensor_value_info(f"{k}_{name}", element(value.dtype), value.shape))
            for name, value in zip(node.outputs, results, strict=True):
                self.expected[f"{k}_{name}"] = value
                outputs.append(helper.make_tensor_value_info(f"{k}_{name}", element(graph.tensors[name].dtype), None))
            names = ([f"{k}_{t}" for t in node.inputs], [f"{k}_{t}" for t in node.outputs])
            domain, kind = node.op.split("::")
            nodes.append(helper.make_node(kind, *names, f"{subject}", domain=domain, **node.attrs))
        graph_proto = helper.make_graph(nodes, "branches", inputs, outputs, constants)
        self.model = helper.make_model(graph_proto, opset_imports=OPSETS, ir_version=9)


def options(folder: Path, model: onnx.ModelProto) -> Options:
    onnx.save(model, folder / "net.onnx")
    return Options(folder / "net.onnx", arch.load("nf-b1024"), folder / "out")


def one_node(kind: str, count: int = 1, dtype: int = TensorProto.FLOAT, **attrs: Any) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(n, dtype, [1, 3, 4, 5]) for n in "xy"]
    nodes = [helper.make_node(kind, ["x"] * count, ["y"], "node", domain="npuforge", **attrs)]
    return helper.make_model(
        helper.make_graph(nodes, "net", values[:1], values[1:]), opset_imports=OPSETS, ir_version=9
    )


@pytest.fixture(scope="module")
def network() -> Branches:
    return Branches(OWN)


@pytest.fixture(scope="module")
def library(network: Branches, onnxruntime_include: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of that network, built."""
    folder = tmp_path_factory.mktemp("onnxruntime")
    made = export(options(folder, network.model), onnxruntime_include)
    assert made.compiled
    return folder / "out"


def session(folder: Path, model: onnx.ModelProto | None = None, threads: int = 1) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.register_custom_ops_library(str(folder / LIBRARY))
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 4
    source = str(folder / "model.onnx") if model is None else model.SerializeToString()
    return onnxruntime.InferenceSession(source, settings, providers=["CPUExecutionProvider"])


def check(network: Branches, found: list[np.ndarray]) -> None:
    assert len(found) == len(network.expected) > 40
    for y, (name, expected) in zip(found, network.expected.items(), strict=True):
        assert y.shape == expected.shape and y.dtype.kind == expected.dtype.kind, name
        np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5, err_msg=name)


def test_every_own_operator_in_onnx_runtime(network: Branches, library: Path) -> None:
    check(network, session(library).run(list(network.expected), network.feeds))


def test_one_session_in_many_threads(network: Branches, library: Path) -> None:
    running = session(library)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: running.run(list(network.expected), network.feeds), range(40)):
            check(network, found)


def test_other_shapes_than_exported(library: Path) -> None:
    """Shapes come from the call, not from the export."""
    model = one_node("Silu")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.Clear()
    running = session(library, model)
    for shape in ((2,), (3, 1, 2), ()):
        x = np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(running.run(None, {"x": x})[0], x / (1 + np.exp(-x.astype(np.float64))), rtol=1e-5)


def test_refusals_name_the_node(library: Path) -> None:
    """At creation, and where the data of a call are wrong; the session goes on after it."""
    with pytest.raises(Exception, match=r"node 'node' \(npuforge::UnalignNhwc16\)"):
        session(library, one_node("UnalignNhwc16"))
    boxes, scores = np.zeros((4, 5), np.float32), np.zeros((2, 3), np.float32)
    nodes = [helper.make_node("RotatedNms", ["boxes", "scores"], ["y"], "nms", domain="npuforge")]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, None]) for n in ("boxes", "scores")]
    output = [helper.make_tensor_value_info("y", TensorProto.INT64, [None, 2])]
    model = helper.make_model(helper.make_graph(nodes, "net", inputs, output), opset_imports=OPSETS, ir_version=9)
    running = session(library, model)
    with pytest.raises(Exception, match=r"node 'nms' .*boxes 4x5 and scores 2x3 expected as Nx5 and CxN"):
        running.run(None, {"boxes": boxes, "scores": scores})
    found = running.run(None, {"boxes": boxes, "scores": np.zeros((2, 4), np.float32)})
    assert found[0].shape == (0, 2)


def test_hundred_sessions(network: Branches, library: Path) -> None:
    model = one_node("Silu")
    for _ in range(100):
        assert session(library, model).run(None, {"x": np.zeros((1, 3, 4, 5), np.float32)})[0].sum() == 0


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake on the path")
def test_cmake_builds_the_same(library: Path, onnxruntime_include: Path, tmp_path: Path) -> None:
    model = one_node("Silu")
    export(options(tmp_path, model))
    command = [
        "cmake",
        "-S",
        str(tmp_path / "out"),
        "-B",
        str(tmp_path / "b"),
        f"-DONNXRUNTIME_INCLUDE_DIR={onnxruntime_include}",
    ]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(tmp_path / "b")], check=True, capture_output=True)
    shutil.copy(tmp_path / "b" / LIBRARY, tmp_path / "out" / LIBRARY)
    x = np.linspace(-3, 3, 60, dtype=np.float32).reshape(1, 3, 4, 5)
    assert (session(tmp_path / "out").run(None, {"x": x})[0] == session(library, model).run(None, {"x": x})[0]).all()


# ---- everywhere


def test_files_without_headers(network: Branches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "find_headers", lambda given: None)
    given, notices = options(tmp_path, network.model), []
    given.notice = notices.append
    made = export(given)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"model.onnx", SOURCE, "CMakeLists.txt", "export.json"}
    assert not made.compiled and not made.without_kernel
    assert set(made.operators) == {s.name for s in OWN if declared(s.op, "CPU")}
    assert {name for name in made.lowered.values()} == {s.name for s in OWN if not declared(s.op, "CPU")}
    assert any("was not built" in n and "--onnxruntime-include" in n for n in notices)
    text = (tmp_path / "out" / SOURCE).read_text()
    assert not re.findall(r'^#include "', text, re.M) and text.count("#include <onnxruntime_c_api.h>") == 1
    domains = {n.domain + "::" + n.op_type for n in onnx.load(tmp_path / "out" / "model.onnx").graph.node if n.domain}
    assert domains == set(made.operators)


def test_lowered_nodes_compute_the_same(tmp_path: Path) -> None:
    """What has no kernel is standard operators in model.onnx: ONNX Runtime needs no library for it."""
    chosen = [s for s in OWN if not declared(s.op, "CPU")]
    network = Branches(chosen)
    made = export(options(tmp_path, network.model))
    assert not made.operators and len(made.lowered) == len(chosen) >= 8
    running = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"), providers=["CPUExecutionProvider"])
    for y, expected in zip(running.run(list(network.expected), network.feeds), network.expected.values(), strict=True):
        np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)


def test_signature_of_several_nodes() -> None:
    nodes = [
        helper.make_node("LeakyReluMask", ["x"], ["a"], "one", domain="npuforge", alpha=0.5),
        helper.make_node("LeakyReluMask", ["a"], ["b", "m"], "two", domain="npuforge"),
        helper.make_node("CsrMatMul", ["b", "v", "c", "p"], ["y"], "three", domain="npuforge"),
    ]
    types = {"x": TensorProto.FLOAT, "v": TensorProto.FLOAT, "c": TensorProto.INT64, "p": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(n, t, [2]) for n, t in types.items()]
    signatures, without = signatures_of(
        helper.make_model(helper.make_graph(nodes, "net", inputs, []), opset_imports=OPSETS)
    )
    assert not without
    mask, csr = signatures
    assert (mask.inputs, mask.outputs, mask.attributes) == (["float32"], ["float32", "float32"], ["alpha"])
    assert (csr.inputs, csr.required, csr.outputs) == (["float32", "float32", "int64", "int64"], 4, ["float32"])


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--onnxruntime-include .*: onnxruntime_c_api.h expected in it, found none"):
        find_headers(tmp_path)
    with pytest.raises(UnsupportedError, match=r"node 'node' .*: input 0 expected as float32, .* found float64"):
        export(options(tmp_path, one_node("Silu", dtype=TensorProto.DOUBLE)))
    tensor = {"table": numpy_helper.from_array(np.zeros(2, np.float32))}
    with pytest.raises(ModelError, match=r"node 'node' .*: operator npuforge::Silu has no attribute table"):
        export(options(tmp_path, one_node("Silu", **tensor)))
    with pytest.raises(UnsupportedError, match=r"node 'node' .*: attribute 'table' expected as a number"):
        signatures_of(one_node("Silu", **tensor))
    assert not (tmp_path / "out").exists()


def test_an_operator_that_nobody_registered(tmp_path: Path) -> None:
    notices: list[str] = []
    given = options(tmp_path, one_node("Frobnicate"))
    given.notice = notices.append
    made = export(given)
    assert made.without_kernel == {"node": "npuforge::Frobnicate"} and not made.operators
    assert "node 'node' (npuforge::Frobnicate) has no C++ kernel, so the library lacks it" in notices


def test_compiler_error_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime_c_api.h").write_text("#error these are not the headers\n")
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler on the path")
    with pytest.raises(NpuforgeError, match=r"ended with 1: .*these are not the headers"):
        export(options(tmp_path, one_node("Silu")), tmp_path)
    assert (tmp_path / "out" / "npuforge_ops.cpp").is_file() and not (tmp_path / "out" / "libnpuforge_ops.so").exists()
