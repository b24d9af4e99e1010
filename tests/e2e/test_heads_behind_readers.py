"""Heads in the style of YOLOv5 and YOLOv8 whose boxes (some hundred pixels) and scores (0..1) are joined on the NPU, with every kind of reader behind the
concatenation: the scores keep their values in both arithmetics, and the device gives the integer graph's bits."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_unlike_ranges import Net, options

from npuforge.compile import pipeline
from npuforge.compile.ir.preprocess import HeadSpec
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.columns import DeviceColumn, FloatColumn
from npuforge.scripts.comparison import compare

CLASSES = 3
CHANNELS = 4 + CLASSES


def sliced(n: Net, x: str, first: int, last: int) -> str:
    return n.part(x, first, last, 1)


def yolov5(n: Net) -> str:
    """y = sigmoid(raw); xy = 2*y*stride, wh = (2*y)^2*anchor; the class scores as they are."""
    y = n.node("Sigmoid", n.conv(n.levels[8], 32, CHANNELS))
    double = n.node("Mul", sliced(n, y, 0, 4), n.constant(2.0))
    xy = n.node("Mul", sliced(n, double, 0, 2), n.constant(320.0))
    wh = sliced(n, double, 2, 4)
    wh = n.node("Mul", n.node("Mul", wh, wh), n.constant(np.array([116.0, 90.0]).reshape(1, 2, 1, 1)))
    return n.node("Concat", xy, wh, sliced(n, y, 4, CHANNELS), axis=1)


def yolov8(n: Net) -> str:
    """Distances to left, top, right and bottom become centre offsets and sizes, times the stride; sigmoid of the classes."""
    reach = n.node("Relu", n.conv(n.levels[8], 32, 4, spread=8.0))
    low, high = sliced(n, reach, 0, 2), sliced(n, reach, 2, 4)
    centre = n.node("Mul", n.node("Sub", high, low), n.constant(16.0))
    size = n.node("Mul", n.node("Add", low, high), n.constant(32.0))
    return n.node("Concat", centre, size, n.node("Sigmoid", n.conv(n.levels[8], 32, CLASSES)), axis=1)


def depthwise(n: Net, x: str) -> str:
    weight = np.full((CHANNELS, 1, 3, 3), 1 / 9.0)
    return n.node("Conv", x, n.constant(weight), kernel_shape=[3, 3], pads=[1] * 4, group=CHANNELS)


def permuted(n: Net, x: str) -> str:
    weight = np.roll(np.eye(CHANNELS), 3, axis=0).reshape(CHANNELS, CHANNELS, 1, 1)
    return n.node("Conv", x, n.constant(weight), kernel_shape=[1, 1])


def affine(n: Net, x: str) -> str:
    return n.node("Mul", x, n.constant(np.linspace(0.5, 1.5, CHANNELS).reshape(1, -1, 1, 1)))


def shuffled(n: Net, x: str) -> str:
    return n.node("Concat", *(sliced(n, x, c, c + 1) for c in (4, 0, 5, 1, 6, 2, 3)), axis=1)


def resized(n: Net, x: str) -> str:
    scales = n.constant([1.0, 1.0, 2.0, 2.0])
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return n.node("Resize", x, "", scales, **attributes)


READERS: dict[str, Callable[[Net, str], str]] = {
    "max pool": lambda n, x: n.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4),
    "average pool": lambda n, x: n.node("AveragePool", x, kernel_shape=[2, 2], strides=[1, 1]),
    "depthwise": depthwise,
    "resize": resized,
    "sum": lambda n, x: n.node("Add", x, n.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)),
    "affine": affine,
    "second concatenation": shuffled,
    "permuted": permuted,
}


SCORES = {"second concatenation": [0, 2, 4], "permuted": [0, 1, 2]}  # where a reader puts channels 4 to 6


def cases() -> list[object]:
    """All are run in the full suite; `fine` behind the head of YOLOv5 and one of each other kind always."""
    quick = {("yolov8", "permuted", "fine"), ("yolov5", "depthwise", "pow2")}
    return [
        pytest.param(
            head,
            reader,
            mode,
            id=f"{head.__name__}-{reader}-{mode}",
            marks=[]
            if (head, mode) == (yolov5, "fine") or (head.__name__, reader, mode) in quick
            else [pytest.mark.full],
        )
        for head in (yolov5, yolov8)
        for reader in READERS
        for mode in ("fine", "pow2")
    ]


@pytest.mark.parametrize(("head", "reader", "mode"), cases())
def test_scores_survive_every_reader(
    head: Callable[[Net], str], reader: str, mode: str, photographs: list[Path], tmp_path: Path
) -> None:
    n = Net()
    last = depthwise(n, READERS[reader](n, head(n)))
    model = n.save(tmp_path / "net.onnx", last)
    _, ctx = pipeline.compile_model(options(model, photographs, tmp_path / "build", mode, HeadSpec()))
    assert ctx.qgraph is not None
    assert {v.op for v in ctx.qgraph.graph.nodes if v.device == "CPU"} <= {"Concat", "ChannelGather"}
    assert not [notice for notice in ctx.notices if "steps" in notice]
    build = open_build(tmp_path / "build")
    assert compare(build, photographs[:1], layer_images=1).differing == 0
    columns = FloatColumn(build), DeviceColumn(build, "sim", 1)
    samples = [build.sample(path) for path in photographs[:3]]
    expected, found = (np.concatenate([next(iter(column(s).values())) for s in samples]) for column in columns)
    is_score = np.isin(np.arange(CHANNELS), SCORES.get(reader, [4, 5, 6]))
    for channels in (is_score, ~is_score):
        x, y = expected[:, channels], found[:, channels]
        assert (x.max() > 100) != (channels is is_score)
        assert np.abs(x - y).mean() < (0.01 if mode == "fine" else 0.04) * np.ptp(x)
        # at least what 127 steps for the part alone (pow2: 64) would leave, but for a quarter
        steps = 127 if mode == "fine" else 64
        alone = sum(len(np.unique(np.round(x[:, c] / x.max() * steps))) for c in range(x.shape[1]))
        left = sum(len(np.unique(y[:, c])) for c in range(y.shape[1]))
        assert left >= 0.75 * alone


def reflected(n: Net, x: str) -> str:
    """The NPU pads with zeros only."""
    pads = n.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    return n.node("Pad", x, pads, mode="reflect")


def stacked(n: Net, x: str) -> str:
    """One above the other: no concatenation of channels."""
    return n.node("Concat", x, n.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), axis=2)


def bounded(n: Net, x: str) -> str:
    """Softsign, which the NPU has not: nearly the identity for the scores, of some hundredths, while boxes stay 50 times as large."""
    small = n.constant(np.array([0.01] * 4 + [0.02] * CLASSES).reshape(1, -1, 1, 1))
    return n.node("Softsign", n.node("Mul", x, small))


@pytest.mark.parametrize("island", [reflected, stacked, bounded])
def test_scores_survive_the_cpu(island: Callable[[Net, str], str], photographs: list[Path], tmp_path: Path) -> None:
    """Behind an operator of the CPU that re-enters the NPU every channel of a joined tensor keeps its steps (`fine`)."""
    n = Net()
    joined = island(n, yolov5(n))
    wide = n.node("Conv", joined, n.constant(np.eye(CHANNELS).reshape(CHANNELS, CHANNELS, 1, 1)), kernel_shape=[1, 1])
    last = n.conv(n.node("Concat", wide, wide, axis=1), 2 * CHANNELS, 64)  # enough work for the NPU to be entered again
    model = n.save(tmp_path / "net.onnx", last)
    qgraph, ctx = pipeline.quantize(options(model, photographs, tmp_path / "build", "fine", HeadSpec()))
    assert [p.device for p in qgraph.graph.partitions][:3] == ["NPU", "CPU", "NPU"]
    assert not [notice for notice in ctx.notices if "steps" in notice]
    (entry,) = [t for t in qgraph.graph.partitions[2].inputs if t in qgraph.quant]
    assert ctx.statistics is not None
    seen = ctx.statistics.tensors[entry]
    width = np.maximum(seen.high, 0.0) - np.minimum(seen.low, 0.0)
    steps = width / qgraph.quant[entry].scale
    assert len(steps) == CHANNELS and width[:4].max() > 4 * width[4:].max()
    assert steps[4:].max() > 100 and steps[:4].max() > 100


def test_a_common_scale_by_the_users_alpha_is_noticed(photographs: list[Path], tmp_path: Path) -> None:
    n = Net()
    model = n.save(tmp_path / "net.onnx", depthwise(n, yolov8(n)))
    asked = options(model, photographs, tmp_path / "build", "fine", HeadSpec())
    _, ctx = pipeline.quantize(replace(asked, alpha=0.0))
    (notice,) = [text for text in ctx.notices if "steps" in text]
    assert re.search(r"3 of its channels \(first 4\).* span (1|0\.\d+) and keep 0 steps; leave out --alpha 0,", notice)
    _, ctx = pipeline.quantize(asked)
    assert not [text for text in ctx.notices if "steps" in text]


def test_a_curve_that_serves_boxes_and_scores_is_noticed(photographs: list[Path], tmp_path: Path) -> None:
    """With a pre-activation to some hundred, 16 bits leave 5 or 6 fraction bits: scores to 0.1 keep less than 7 of their values."""
    n = Net()
    head = n.node("Mul", yolov8(n), n.constant(np.array([1.0] * 4 + [0.1] * CLASSES).reshape(1, -1, 1, 1)))
    x = depthwise(n, head)
    model = n.save(tmp_path / "net.onnx", n.node("Mul", x, n.node("Sigmoid", x)))
    _, ctx = pipeline.quantize(options(model, photographs, tmp_path / "build", "fine", HeadSpec()))
    (notice,) = [text for text in ctx.notices if "steps" in text]
    assert re.search(r"3 of its channels \(first 4\).* keep [1-6] steps; a curve's 16 bits", notice)
