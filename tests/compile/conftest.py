"""Shared by the tests of import, fold, fuse and partition: small ONNX models built by hand, and the comparison with ONNX Runtime on the untouched model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.graph import Graph
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.verify import verify

sys.path.insert(0, str(Path(__file__).parent))  # for the helper modules of the back end's tests

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

Nodes = Sequence[tuple[Any, ...]]


def _build(
    nodes: Nodes,
    shape: Sequence[int | str] = (1, 4, 8, 8),
    constants: dict[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 13,
    inputs: dict[str, Sequence[int | str]] | None = None,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """nodes: (type, inputs, outputs, attributes[, name[, domain]]); input `x` of `shape` unless `inputs` says otherwise."""
    protos = []
    for position, (op, node_in, node_out, attrs, *rest) in enumerate(nodes):
        name = rest[0] if rest else f"{op.lower()}{position}"
        domain = rest[1] if len(rest) > 1 else ""
        protos.append(helper.make_node(op, node_in, node_out, name=name, domain=domain, **attrs))
    given = inputs or {"x": shape}
    model = helper.make_model(
        helper.make_graph(
            protos,
            "test",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in given.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)],
        ir_version=8,
    )
    model = onnx.shape_inference.infer_shapes(model)
    if all(v.type.tensor_type.HasField("shape") for v in model.graph.output):
        onnx.checker.check_model(model)
    return model


def random_feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Normally distributed inputs."""
    rng = np.random.default_rng(seed)
    return {
        v.name: rng.normal(size=[d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32)
        for v in model.graph.input
    }


def _compile(model: onnx.ModelProto) -> Graph:
    """Import, fold and fuse, verified after each."""
    graph = import_onnx(model).graph
    verify(graph, "import")
    graph = fold(graph)
    verify(graph, "fold")
    graph = fuse(graph)
    verify(graph, "fuse")
    return graph


def _same(model: onnx.ModelProto, tolerance: float = 1e-5, place: bool = False) -> Graph:
    """The fused graph, after asserting that it computes what ONNX Runtime computes for the untouched model."""
    graph = _compile(model)
    if place:
        graph = partition(graph)
        verify(graph, "partition")
    feeds = random_feeds(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = [v.name for v in model.graph.output]
    expected = dict(zip(wanted, session.run(wanted, feeds), strict=True))
    inside = {k: v.transpose(0, 3, 1, 2) if graph.input_layout.get(k) == "NHWC" else v for k, v in feeds.items()}
    found = GraphExecutor(graph, providers=["CPUExecutionProvider"], threads=1).run(inside)
    for name, value in expected.items():
        assert found[name].shape == value.shape
        error = float(np.abs(found[name] - value).max() / max(float(np.abs(value).max()), 1e-6))
        assert error <= tolerance, f"{name}: relative error {error}"
    return graph


@pytest.fixture
def build() -> Callable[..., onnx.ModelProto]:
    """Builds a small ONNX model."""
    return _build


@pytest.fixture
def compiled() -> Callable[[onnx.ModelProto], Graph]:
    """Import, fold, fuse."""
    return _compile


@pytest.fixture
def same() -> Callable[..., Graph]:
    """Import, fold, fuse; equal to ONNX Runtime."""
    return _same


@pytest.fixture
def weights() -> Callable[..., np.ndarray]:
    """Random float32 arrays by shape."""
    rng = np.random.default_rng(7)
    return lambda *shape: rng.normal(0.0, 0.5, shape).astype(np.float32)


@pytest.fixture
def models() -> Path:
    """Folder of the real models."""
    if not (DATA / "models").is_dir():
        pytest.skip(f"{DATA / 'models'} is absent (third-party models are kept beside the repository)")
    return DATA / "models"
