"""The placement page and picture: well-formed, every node once with its device, reason and remedy, sums that agree with the rows."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from npuforge.compile.ir.errors import WriteError
from npuforge.compile.ir.graph import Graph, Node, Partition, TensorInfo
from npuforge.compile.steps.partition import HEAD_REASON, explain
from npuforge.scripts.placement_page import html, svg, totals, write_placement

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def graph() -> Graph:
    """Two convolutions side by side on an image, joined on the CPU."""
    convolution = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    nodes = [
        Node("conv<1>", "Conv", ["x", "w"], ["a"], convolution, device="NPU", sources=["c"]),
        Node("conv2", "Conv", ["x", "w"], ["b"], convolution, device="NPU", sources=["c"]),
        Node("join", "Concat", ["a", "b"], ["y"], {"axis": 2}, device="CPU", reason=HEAD_REASON, sources=["j"]),
    ]
    shapes = {"x": (1, 3, 8, 8), "w": (4, 3, 1, 1), "a": (1, 4, 8, 8), "b": (1, 4, 8, 8), "y": (1, 4, 16, 8)}
    found = Graph("net", nodes, {n: TensorInfo(n, s) for n, s in shapes.items()}, {}, ["x"], ["y"])
    found.partitions = [
        Partition("NPU", ["conv<1>", "conv2"], ["x"], ["a", "b"]),
        Partition("CPU", ["join"], ["a", "b"], ["y"]),
    ]
    return found


def test_picture_shows_every_node_where_nothing_overlaps(graph: Graph) -> None:
    root = ElementTree.fromstring(svg(graph))
    boxes = root.findall(f"{SPACE}g")
    assert len(boxes) == 3 and len(root.findall(f"{SPACE}path")) == 2
    places = {(r.get("x"), r.get("y")) for b in boxes for r in b.findall(f"{SPACE}rect")}
    assert len(places) == 3
    tips = [b.findtext(f"{SPACE}title") or "" for b in boxes]
    assert "conv<1> (Conv) → 1x4x8x8" in tips[0] and "768 MACs" in tips[0] and "because" not in tips[0]
    assert f"because: {HEAD_REASON}" in tips[2] and "to bring it over: nothing" in tips[2]
    fills = [r.get("fill") for b in boxes for r in b.findall(f"{SPACE}rect")]
    assert fills[0] == fills[1] != fills[2]
    assert all(p.get("stroke") == "#c0392b" for p in root.findall(f"{SPACE}path"))  # both cross to the CPU


def test_page_has_the_sums_and_the_reasons(graph: Graph) -> None:
    page = html(graph)
    assert totals(explain(graph)) == {
        "NPU": {"nodes": 2, "macs": 1536, "bytes": 2 * (192 + 256 + 12)},
        "CPU": {"nodes": 1, "macs": 0, "bytes": 4 * (256 + 256 + 512)},
    }
    assert "100.0% of the multiply-accumulates on the NPU; 2 partitions" in page
    assert "1,536" in page and "conv&lt;1&gt;" in page and "conv<1>" not in page
    assert page.count("export the network without its decoding") >= 3  # table of reasons, picture, list of nodes
    assert not re.search(r"https?://(?!www\.w3\.org)", page), "nothing is loaded from elsewhere"


def test_files_are_written_by_their_suffix(graph: Graph, tmp_path: Path) -> None:
    write_placement(graph, tmp_path / "p.svg")
    write_placement(graph, tmp_path / "p.html")
    assert (tmp_path / "p.svg").read_text().startswith("<svg") and "<!doctype html>" in (
        tmp_path / "p.html"
    ).read_text()
    with pytest.raises(WriteError, match="choose another --graph"):
        write_placement(graph, tmp_path / "p.svg" / "x.html")
