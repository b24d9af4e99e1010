"""A compiled folder as the report's data: figures, reasons and memory plans arrive where the page shows them."""

import json
from pathlib import Path
from typing import Any

import pytest

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.graph import Graph, Node, Partition
from npuforge.compile.ir.quantization import QGraph
from npuforge.quant.analysis import LayerLoss, Metrics
from npuforge.scripts.report.data import Reference
from npuforge.scripts.report.from_build import report_of_build, set_losses, versions
from npuforge.scripts.report.render import render_html


def row(number: int, cycles: int, macs: int) -> dict[str, Any]:
    return {
        "id": f"L{number:04d}",
        "name": f"conv{number}",
        "op": "Conv",
        "sources": [f"Conv_{number}", f"Relu_{number}"],
        "macs": macs,
        "cycles": cycles,
        "utilisation": 0.5,
        "ddr_bytes": 640,
    }


@pytest.fixture
def build(tmp_path: Path) -> Path:
    layers = [row(0, 300, 100_000), row(1, 100, 0), row(2, 600, 412_000)]
    summary = {
        "model": {"file": "net.onnx", "path": "/x/net.onnx", "sha256": "ab" * 32},
        "mode": "fine",
        "calibrator": "minmax",
        "calibration_images": ["a.jpg", "b.jpg"],
        "notes": {"conv2": "alpha=0.5"},
        "performance": {
            "cycles": 1001,  # one more than the layers: the END instruction
            "partitions": [1001],
            "macs": 512_000,
            "utilisation": 0.25,
            "ddr_bytes": 1920,
            "busy": {"conv": 900},
            "layers": layers,
        },
        "memory": {
            "size": 128,
            "lower_bound": 128,
            "buffers": [{"name": "x", "lower": 0, "upper": 2, "size": 128, "offset": 0}],
        },
        "sram": [
            [
                {"name": "a", "lower": 0, "upper": 5, "size": 64, "offset": 0},
                {"name": "b", "lower": 5, "upper": 9, "size": 96, "offset": 64},
            ]
        ],
        "notices": ["something was assumed"],
    }
    manifest = {
        "name": "net",
        "mode": "fine",
        "arch": {"name": "nf-b1024", "clock_mhz": 200, "sram_bytes": 4096},
        "fingerprint": "01" * 8,
        "preprocess": {"width": 8, "class_names": ["cat"]},
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


def qgraph() -> QGraph:
    nodes = [Node(f"conv{i}", "Conv", [], [f"t{i}"]) for i in range(3)]
    nodes.append(Node("concat", "Concat", [], ["c"]))
    nodes.append(Node("sigmoid", "Sigmoid", [], ["s"], device="CPU", reason="no convolution follows"))
    graph = Graph("net", nodes, {}, {}, ["x"], ["s"])
    graph.partitions = [
        Partition("NPU", ["conv0", "conv1", "concat", "conv2"], ["x"], ["t2"]),
        Partition("CPU", ["sigmoid"], ["t2"], ["s"]),
    ]
    return QGraph(graph, "fine")


def loss(node: str, sqnr: float) -> LayerLoss:
    return LayerLoss(node, "Conv", "t", [node], Metrics(sqnr, 0.9, 1, 0.1, 0.01), Metrics(sqnr - 1, 0.8, 2, 0.2, 0.02))


def test_a_build_becomes_report_data(build: Path) -> None:
    data = report_of_build(build, qgraph(), "sim", Reference("CPUExecutionProvider", "live"))
    assert (data.title, data.model, data.device, data.calibration) == ("net", "net.onnx", "sim", "minmax, 2 images")
    assert data.class_names == ["cat"] and data.notices == ["something was assumed"]
    assert [y.id for y in data.layers] == ["L0000", "L0001", "L0002"]
    assert data.layers[1].utilisation is None and data.layers[2].note == "alpha=0.5"
    npu, cpu = data.partitions
    assert (npu.device, npu.node_count, npu.cycles, npu.macs) == ("NPU", 4, 1001, 512_000)
    assert [(n.name, n.reason) for n in cpu.nodes] == [("sigmoid", "no convolution follows")]
    assert data.performance is not None
    assert data.performance.array_macs == 2046 and data.performance.utilisation == pytest.approx(0.25, rel=1e-3)
    assert data.performance.milliseconds == pytest.approx(0.005005)
    pool, sram = data.memory
    assert (pool.peak, pool.lower_bound) == (128, 128)
    assert (sram.peak, sram.lower_bound, sram.capacity) == (160, 96, 4096)  # a ends when b begins
    assert data.reference.model_sha256 == "ab" * 32
    assert "no convolution follows" in render_html(data)


def test_a_recorded_reference_keeps_its_own_hash(build: Path) -> None:
    reference = Reference("CUDAExecutionProvider", "ref.npz", "cd" * 32)
    assert report_of_build(build, qgraph(), "sim", reference).reference.model_sha256 == "cd" * 32


def test_losses_land_on_their_layers_in_network_order(build: Path) -> None:
    data = report_of_build(build, qgraph(), "sim", Reference("CPUExecutionProvider", "live"))
    set_losses(data, [loss("conv0", 40), loss("conv1", 35), loss("concat", 34), loss("conv2", 20)])
    assert [y.name for y in data.layers] == ["conv0", "conv1", "concat", "conv2"]
    assert data.layers[2].id == "–" and data.layers[2].cycles == 0
    assert [y.alone.sqnr_db for y in data.layers if y.alone] == [40, 35, 34, 20]
    assert data.layers[3].accumulated is not None and data.layers[3].accumulated.sqnr_db == 19
    assert data.worst_first()[0].name == "conv2"


def test_versions_name_what_takes_part() -> None:
    found = versions()
    assert found["python"].startswith("3.") and found["numpy"] != "not installed"


def test_a_folder_that_is_no_build(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"manifest\.json: expected a file that `npuforge compile` wrote"):
        report_of_build(tmp_path, qgraph(), "sim", Reference("", ""))
