"""NanoDet heads joined to one tensor of rows: recognised, and decoded as the authors' formulas have it (float64, written from RangiLyu/nanodet)."""

import re

import numpy as np
import pytest
import yaml
from head_nets import Net

from npuforge.board_runtime.heads import Head, Settings
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.preprocess_io import parse_preprocess
from npuforge.compile.steps.preprocessing import complete
from npuforge.compile.steps.recognise_head import recognise

CLASSES = 3


def joined(n: Net, strides: tuple[int, ...], bins: int, kernel: int, shared: bool) -> Graph:
    """As the authors' `_forward_onnx` traces: depthwise and 1 x 1 convolutions, Split or two convolutions, Sigmoid, Concat, flatten, Concat, permute."""
    maps = []
    for stride in strides:
        feature = n.after(n.after(n.map(stride, 8), 8, 8, kernel, group=8), 8, 8, 1)
        if shared:
            both = n.after(feature, 8, CLASSES + 4 * bins, 1)
            classes = n.node("Split", both, n.constant([CLASSES, 4 * bins]), outputs=2, axis=1)
            distances = n.nodes[-1].output[1]
        else:
            classes, distances = n.after(feature, 8, CLASSES, 1), n.after(feature, 8, 4 * bins, 1)
        row = n.node("Concat", n.node("Sigmoid", classes), distances, axis=1)
        maps.append(n.flat(row, CLASSES + 4 * bins))
    return n.graph(n.node("Transpose", n.node("Concat", *maps, axis=2), perm=[0, 2, 1], name="output"))


def boxes(rows: np.ndarray, side: int, strides: tuple[int, ...], bins: int, offset: float) -> np.ndarray:
    """Every box of every cell: Integral and distance2bbox of the authors."""
    p = np.exp(rows[:, CLASSES:].astype(np.float64).reshape(-1, 4, bins))
    reach = (p / p.sum(axis=2, keepdims=True)) @ np.arange(bins)
    points = [
        [(x + offset) * s, (y + offset) * s, s]
        for s in strides
        for y in range(-(-side // s))
        for x in range(-(-side // s))
    ]
    x, y, stride = np.array(points).T
    left, top, right, bottom = (reach * stride[:, None]).T
    return np.stack([x - left, y - top, x + right, y + bottom], axis=1)


@pytest.mark.parametrize("shared", [True, False], ids=["one convolution", "two convolutions"])
@pytest.mark.parametrize(
    ("strides", "bins", "kernel", "offset"),
    [
        ((8, 16, 32), 8, 3, 0.5),  # nanodet-m: GFLHead.get_single_level_center_point
        ((8, 16, 32), 11, 3, 0.5),  # nanodet-g, RepVGG-A0: reg_max 10
        ((8, 16, 32), 8, 5, 0.0),  # NanoDetPlusHead with its class's own strides
        ((8, 16, 32, 64), 8, 5, 0.0),  # nanodet-plus-m: get_single_level_center_priors
        ((8, 16, 32, 64), 8, 3, 0.5),
    ],
)
def test_joined_distributions(strides: tuple[int, ...], bins: int, kernel: int, offset: float, shared: bool) -> None:
    net = Net()
    graph = joined(net, strides, bins, kernel, shared)
    head = recognise(graph).head
    assert head is not None and head.kind == "nanodet_plus" and head.options["cell_offset"] == offset
    rows = np.random.default_rng(3).standard_normal((1, *graph.tensors["output"].shape[1:])).astype(np.float32)
    rows[..., :CLASSES] = 1 / (1 + np.exp(-rows[..., :CLASSES]))
    decoder = Head(Preprocess(net.side, net.side, head=head), Settings(score_threshold=0.75))
    found = decoder.candidates({"output": rows})
    cell, label = np.nonzero(rows[0, :, :CLASSES] > 0.75)
    expected = np.column_stack([boxes(rows[0], net.side, strides, bins, offset)[cell], rows[0, cell, label], label])
    assert len(expected) > 20
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize(("kernel", "found", "other"), [(3, "0.5", 0.0), (5, "0", 0.5)])
def test_the_notice_declares_the_other_origin(kernel: int, found: str, other: float) -> None:
    """A PicoDet joined by hand cannot be told from NanoDet-Plus: the notice's YAML is what it needs, and reads back."""
    graph = joined(Net(), (8, 16, 32), 8, kernel, True)
    _, notices = complete(graph, None)
    line = next(n for n in notices if "recognised: nanodet_plus" in n)
    assert f"(cell + {found})·stride" in line
    text = re.search(r"declare (head: \{.*\})", line)
    assert text is not None
    record = parse_preprocess(yaml.safe_load(text[1]), "notice")
    assert record.head.options["cell_offset"] == other and record.head.options["bins"] == 8
    outputs = {"output": np.zeros(graph.tensors["output"].shape, np.float32)}
    Head(Preprocess(128, 128, head=record.head)).detect(outputs)


def test_the_hint_for_rows_without_a_sigmoid_reads_back() -> None:
    n = Net()
    maps = [n.flat(n.map(s, CLASSES + 32), CLASSES + 32) for s in (8, 16, 32)]
    found = recognise(n.graph(n.node("Transpose", n.node("Concat", *maps, axis=2), perm=[0, 2, 1], name="out/rows")))
    assert found.head is None
    yolox, nanodet = (yaml.safe_load(t) for t in re.findall(r"head: \{.*?\}\}\}", found.hint))
    for declared, kind in ((yolox, "yolox"), (nanodet, "nanodet_plus")):
        head = parse_preprocess(declared, "hint").head
        assert head.kind == kind and head.options["outputs"] == {"predictions": "out/rows"}
        Head(Preprocess(128, 128, head=head)).detect({"out/rows": np.zeros((1, 336, CLASSES + 32), np.float32)})
    assert nanodet["head"]["options"]["cell_offset"] == 0.5 and "cell_offset: 0.0" in found.hint
