"""IR trees survive a round trip through one file; damaged files are refused with a typed error."""

from pathlib import Path

import numpy as np
import pytest

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.compile.ir.quantization import ConvParams, OutputStage, QGraph, Tail, TensorQuant
from npuforge.compile.ir.serialize import load, save


def _qgraph() -> QGraph:
    node = Node(
        "conv",
        "Conv",
        ["x", "w", "b"],
        ["y"],
        {"kernel_shape": [3, 3], "pads": (1, 1, 1, 1)},
        Activation("Clip", low=0, high=6),
    )
    graph = Graph(
        "net", [node], {"x": TensorInfo("x", (1, 3, 8, 8))}, {"w": np.ones((4, 3, 3, 3), np.float32)}, ["x"], ["y"]
    )
    stage = OutputStage(
        "table",
        np.array([3], np.int8),
        np.array([-4], np.int8),
        table=np.arange(257, dtype=np.int16),
        tail_high=Tail(True),
    )
    params = ConvParams(np.ones((4, 3, 3, 3), np.int8), np.array([1, 2, 3, 4], np.int32), np.zeros(3, np.int8), stage)
    return QGraph(graph, "fine", {"x": TensorQuant(np.array([0.5]), np.array([3], np.int32))}, {"conv": params})


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "q.npz"
    save(_qgraph(), path)
    back = load(path)
    assert isinstance(back, QGraph)
    assert back.graph.nodes[0].activation.high == 6 and back.graph.nodes[0].activation.low == 0
    assert back.graph.nodes[0].attrs == {"kernel_shape": [3, 3], "pads": (1, 1, 1, 1)}
    params = back.params["conv"]
    assert isinstance(params, ConvParams) and params.stage.tail_high.is_input
    assert params.stage.table is not None and params.stage.table.dtype == np.int16 and params.stage.table[256] == 256
    assert back.graph.nodes[0].activation.alpha == 0.0
    assert [p.name for p in tmp_path.iterdir()] == ["q.npz"]


def test_infinite_clip_bounds_survive(tmp_path: Path) -> None:
    save(Activation("Clip", low=0.0), tmp_path / "a.npz")
    assert load(tmp_path / "a.npz").high == float("inf")


@pytest.mark.parametrize("content", [b"", b"<html></html>", b"PK\x03\x04broken"])
def test_damaged_file_is_a_typed_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"bad\.npz"):
        load(path)


def test_truncated_file_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "q.npz"
    save(_qgraph(), path)
    data = path.read_bytes()
    for cut in (1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(FormatError):
            load(path)
