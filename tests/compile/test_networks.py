"""Every network of issue 2 goes through import, fold, fuse and partition: same result as ONNX Runtime on the untouched file, one NPU partition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from npuforge.compile.reference import FloatReference, GraphExecutor
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_model
from npuforge.compile.steps.partition import explain, partition
from npuforge.compile.steps.verify import verify

data = pytest.mark.data

# file, shapes, input values up to, MMAC from shared/data/README.md (None: not stated), CPU operators of the head
NETWORKS = [
    ("yolo_fastest_1.1", None, 1.0, 125, set()),
    ("yolox_nano_kazuhito", None, 255.0, 523, {"Sigmoid", "Concat", "Reshape", "Transpose"}),
    ("fastestdet", None, 1.0, 122, {"Sigmoid", "Softmax", "Transpose", "Concat"}),
    ("nanodet_m", None, 2.0, 578, {"Split", "Sigmoid", "Reshape", "Transpose"}),
    ("yunet_n_320_320", None, 255.0, None, {"Sigmoid", "Reshape", "Transpose"}),
    (
        "ultraface_RFB-320",
        None,
        1.0,
        None,
        {"Transpose", "Reshape", "Concat", "Softmax", "Slice", "Mul", "Add", "Sub", "Div", "Exp"},
    ),
    ("blazeface_front_128x128", None, 1.0, None, {"Transpose", "Reshape"}),
    ("ultraface_RFB-320_simplified", None, 1.0, None, {"Transpose", "Reshape", "Concat", "Softmax"}),
    ("yunet_n_dynamic", {"input": (1, 3, 160, 192)}, 255.0, None, {"Sigmoid", "Reshape", "Transpose"}),
    (
        "yolox_nano_handsign_with_nms",  # NMS inside the graph: the number of rows depends on the image
        None,
        255.0,
        None,
        {"Sigmoid", "Concat", "Reshape", "Transpose", "Slice", "Add", "Sub", "Mul", "Div", "Exp", "Sqrt"}
        | {"NonMaxSuppression", "Gather", "GatherND", "ScatterND", "Cast"},
    ),
    ("mtcnn_pnet", {"input_1": (1, 64, 48, 3)}, 1.0, None, {"Softmax", "Transpose"}),
    ("mtcnn_onet", {"input_3": (1, 48, 48, 3)}, 1.0, None, {"Softmax", "Reshape"}),
    ("ppocr_cls", {"x": (1, 3, 48, 192)}, 1.0, None, {"Softmax", "Reshape"}),
    ("ppocrv4_det", {"x": (1, 3, 96, 160)}, 1.0, None, {"Sigmoid"}),
]


@data
@pytest.mark.parametrize(("name", "shapes", "scale", "mmac", "head"), NETWORKS, ids=[n[0] for n in NETWORKS])
def test_network(
    models: Path, name: str, shapes: dict[str, tuple[int, ...]] | None, scale: float, mmac: int | None, head: set[str]
) -> None:
    path = models / f"{name}.onnx"
    graph = import_model(path, shapes)
    verify(graph, "import")
    graph = fold(graph)
    verify(graph, "fold")
    graph = fuse(graph)
    verify(graph, "fuse")
    graph = partition(graph)
    verify(graph, "partition")

    rows = explain(graph)
    assert sum(p.device == "NPU" for p in graph.partitions) == 1
    assert len(graph.partitions) <= 2
    assert not [r.node for r in rows if r.op in ("Conv", "ConvTranspose") and r.device != "NPU"]
    assert all(r.reason for r in rows if r.device == "CPU") and not any(r.reason for r in rows if r.device == "NPU")
    assert {r.op for r in rows if r.device == "CPU"} == head
    if mmac is not None:
        assert round(sum(r.macs for r in rows) / 1e6) in (mmac, mmac - 1)

    # Every source is a node of the file (named, or by its generated name), and no convolution is lost.
    model = onnx.load(path)
    names = {n.name or f"{n.op_type}_{i}" for i, n in enumerate(model.graph.node)}
    assert {s for r in rows for s in r.sources} <= names
    convolutions = sum(n.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") for n in model.graph.node)
    assert sum(r.op in ("Conv", "ConvTranspose") for r in rows) == convolutions

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(3)
    feeds = {
        i.name: (rng.random((shapes or {}).get(i.name) or i.shape) * scale).astype(np.float32)
        for i in session.get_inputs()
    }
    outputs = [o.name for o in session.get_outputs()]
    expected = session.run(outputs, feeds)
    inside = {k: v.transpose(0, 3, 1, 2) if graph.input_layout.get(k) == "NHWC" else v for k, v in feeds.items()}
    found = GraphExecutor(graph, providers=["CPUExecutionProvider"], threads=1).run(inside)
    for output, value in zip(outputs, expected, strict=True):
        assert found[output].shape == value.shape
        assert np.abs(found[output] - value).max() <= 1e-4 * max(float(np.abs(value).max()), 1e-2), output


def test_bundled_network() -> None:
    """Transposed convolution and the custom YoloDecode; the untouched file's custom node is run by the operator's own reference."""
    path = Path(__file__).resolve().parents[2] / "scripts" / "demo_data" / "demo.onnx"
    graph = partition(fuse(fold(import_model(path))))
    verify(graph, "partition")
    rows = explain(graph)
    assert [p.device for p in graph.partitions] == ["NPU", "CPU"] and graph.partitions[1].nodes == ["decode"]
    assert {r.op for r in rows if r.device == "NPU"} <= {"Conv", "ConvTranspose", "Add", "Concat", "MaxPool"}
    assert rows[-1].reason
    image = np.random.default_rng(0).random((1, 3, *graph.tensors["image"].shape[2:])).astype(np.float32)
    expected = FloatReference(path, providers=["CPUExecutionProvider"]).run({"image": image})
    found = GraphExecutor(graph, providers=["CPUExecutionProvider"], threads=1).run({"image": image})
    for output, value in expected.items():
        assert np.abs(found[output] - value).max() <= 1e-4 * max(np.abs(value).max(), 1e-2), output


@data
def test_batch_norm_source_is_kept(models: Path) -> None:
    graph = fuse(fold(import_model(models / "yolo_fastest_1.1.onnx")))
    first = graph.nodes[0]
    model = onnx.load(models / "yolo_fastest_1.1.onnx")
    assert first.sources == [n.name for n in model.graph.node[:3]]  # Conv, BatchNormalization, LeakyRelu
    assert first.activation.kind == "LeakyRelu" and first.activation.alpha == pytest.approx(0.1)


@data
def test_channel_shuffle_is_one_gather_per_branch(models: Path) -> None:
    graph = fuse(fold(import_model(models / "fastestdet.onnx")))
    gathers = [n for n in graph.nodes if n.op == "ChannelGather"]
    assert len(gathers) == 26 and not [n for n in graph.nodes if n.op in ("Reshape", "Gather")]
    even, odd = gathers[0].attrs["indices"], gathers[1].attrs["indices"]
    assert even == list(range(0, 48, 2)) and odd == list(range(1, 48, 2))
    assert any(s.startswith("Gather") for s in gathers[0].sources) and any(
        s.startswith("Reshape") for s in gathers[0].sources
    )


@data
def test_focus_is_space_to_depth(models: Path) -> None:
    graph = fuse(fold(import_model(models / "yolox_nano_kazuhito.onnx")))
    assert [n.op for n in graph.nodes[:3]] == ["SpaceToDepth", "ChannelGather", "Conv"]
    assert graph.nodes[1].attrs["indices"] == [0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11]  # the file stacks columns first


@data
def test_blazeface_zero_channels_and_layout(models: Path) -> None:
    graph = fuse(fold(import_model(models / "blazeface_front_128x128.onnx")))
    assert graph.input_layout == {"input:0": "NHWC"} and graph.tensors["input:0"].shape == (1, 3, 128, 128)
    gathers = [n for n in graph.nodes if n.op == "ChannelGather"]
    assert len(gathers) == 11 and all(-1 in n.attrs["indices"] for n in gathers)
    first = graph.nodes[0]
    assert first.op == "Conv" and first.attrs["pads"] == [1, 1, 2, 2]  # 5x5, stride 2, SAME
