"""Boxes to some hundred pixels and scores to 1 in one tensor: both survive int8, and the report would show it if they did not.

Heads end as the authors of YOLOv5 and YOLOv8 export them (decoded in the graph, joined by a Concat); a further network joins such ranges in front of a
convolution, where the Concat runs on integers.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile import pipeline
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess
from npuforge.compile.steps import calibrate
from npuforge.hw_kernels import arch
from npuforge.quant.mixed_ranges import mixed_ranges
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.comparison import compare
from npuforge.scripts.report.channel_groups import GroupMeter, range_groups
from npuforge.scripts.report.render import render_html

SIDE, CLASSES = 64, 4


class Net:
    """An image of 64 x 64 and a small backbone; nodes are added one by one."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(5)
        x, channels = "image", 3
        self.levels: dict[int, str] = {}
        for stride, out in ((2, 16), (4, 16), (8, 32), (16, 32)):
            x = self.node("Relu", self.conv(x, channels, out, 3, 2))
            self.levels[stride], channels = x, out

    def constant(self, value: object, dtype: type = np.float32) -> str:
        name = f"const{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, dtype=dtype), name))
        return name

    def node(self, op: str, *inputs: str, name: str = "", **attributes: object) -> str:
        output = name or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def conv(self, x: str, channels: int, out: int, kernel: int = 1, stride: int = 1, spread: float = 2.0) -> str:
        weight = self.rng.standard_normal((out, channels, kernel, kernel)) * spread / np.sqrt(channels * kernel**2)
        bias = self.rng.standard_normal(out) * 0.5
        pads = [kernel // 2] * 4
        shape = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": pads}
        return self.node("Conv", x, self.constant(weight), self.constant(bias), **shape)

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.constant(shape, np.int64))

    def part(self, x: str, first: int, last: int, axis: int) -> str:
        return self.node("Slice", x, *(self.constant([v], np.int64) for v in (first, last, axis)))

    def save(self, path: Path, output: str) -> Path:
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])
        shown = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        body = helper.make_graph(self.nodes, "net", [image], [shown], self.weights)
        onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
        return path


def grid(side: int) -> np.ndarray:
    y, x = np.mgrid[:side, :side]
    return np.stack([x, y], axis=-1)


def yolov5(path: Path) -> Path:
    """y = σ(raw); xy = (2y − ½ + cell)·stride, wh = (2y)²·anchor; Concat of xy, wh, the rest; Concat of the levels."""
    n, rows = Net(), []
    for stride, anchors in ((8, [[100, 130], [160, 300], [330, 230]]), (16, [[300, 610], [620, 450], [590, 640]])):
        side = SIDE // stride
        raw = n.reshape(n.conv(n.levels[stride], 32, 3 * (5 + CLASSES)), 1, 3, 5 + CLASSES, side, side)
        y = n.node("Sigmoid", n.node("Transpose", raw, perm=[0, 1, 3, 4, 2]))
        xy, wh, rest = n.part(y, 0, 2, 4), n.part(y, 2, 4, 4), n.part(y, 4, 5 + CLASSES, 4)
        xy = n.node("Add", n.node("Mul", xy, n.constant(2.0)), n.constant(grid(side)[None, None] - 0.5))
        xy = n.node("Mul", xy, n.constant(float(stride)))
        wh = n.node("Pow", n.node("Mul", wh, n.constant(2.0)), n.constant(2.0))
        wh = n.node("Mul", wh, n.constant(np.array(anchors).reshape(1, 3, 1, 1, 2)))
        rows.append(n.reshape(n.node("Concat", xy, wh, rest, axis=4), 1, 3 * side * side, 5 + CLASSES))
    return n.save(path, n.node("Concat", *rows, axis=1, name="output0"))


def yolov8(path: Path) -> Path:
    """Distances by softmax and a 1 x 1 convolution over 16 bins, corners to centre and size, times the strides; Concat with σ(classes)."""
    n, boxes, scores, points, strides = Net(), [], [], [], []
    for stride in (8, 16):
        side = SIDE // stride
        boxes.append(n.reshape(n.conv(n.levels[stride], 32, 64), 1, 64, side * side))
        scores.append(n.reshape(n.conv(n.levels[stride], 32, CLASSES), 1, CLASSES, side * side))
        points.append(grid(side).reshape(-1, 2).T + 0.5)
        strides.append(np.full((1, side * side), 8.0 * stride))  # boxes reach beyond 640
    cells = sum(p.shape[1] for p in points)
    bins = n.node("Transpose", n.reshape(n.node("Concat", *boxes, axis=2), 1, 4, 16, cells), perm=[0, 2, 1, 3])
    weight = n.constant(np.arange(16).reshape(1, 16, 1, 1))
    soft = n.node("Softmax", bins, axis=1)
    reach = n.reshape(n.node("Conv", soft, weight, kernel_shape=[1, 1]), 1, 4, cells)
    point = n.constant(np.concatenate(points, axis=1)[None])
    low, high = n.node("Sub", point, n.part(reach, 0, 2, 1)), n.node("Add", point, n.part(reach, 2, 4, 1))
    centre = n.node("Div", n.node("Add", low, high), n.constant(2.0))
    box = n.node("Concat", centre, n.node("Sub", high, low), axis=1)
    box = n.node("Mul", box, n.constant(np.concatenate(strides, axis=1)[None]))
    joined = n.node("Concat", box, n.node("Sigmoid", n.node("Concat", *scores, axis=2)), axis=1, name="output0")
    return n.save(path, joined)


def joined_in_front_of_a_convolution(path: Path) -> Path:
    n = Net()
    wide = n.node("Relu", n.conv(n.levels[8], 32, 16, spread=300.0))
    small = n.node("Sigmoid", n.conv(n.levels[8], 32, 16))
    joined = n.node("Concat", wide, small, axis=1, name="joined")
    weight = np.concatenate([np.eye(16) / 600, np.eye(16)], axis=1).reshape(16, 32, 1, 1)
    return n.save(path, n.node("Conv", joined, n.constant(weight), kernel_shape=[1, 1], name="last"))


def options(model: Path, images: list[Path], output: Path, mode: str, head: HeadSpec) -> Options:
    record = Preprocess(SIDE, SIDE, std=[255.0] * 3, head=head)
    return Options(
        model=model, arch=arch.load("nf-b1024"), output=output, calibration=images, mode=mode, preprocess=record
    )


@pytest.mark.parametrize("mode", ["fine", "pow2"])
@pytest.mark.parametrize("network", [yolov5, yolov8], ids=lambda f: f.__name__)
def test_scores_survive_beside_boxes(
    network: Callable[[Path], Path], mode: str, photographs: list[Path], tmp_path: Path
) -> None:
    model = network(tmp_path / "net.onnx")
    head = HeadSpec("yolo_rows", {"objectness": network is yolov5})
    pipeline.compile_model(options(model, photographs, tmp_path / "build", mode, head))
    result = compare(open_build(tmp_path / "build"), photographs[:3], layer_images=1)
    assert result.differing == 0
    groups = {g.name: g for g in result.data.channel_groups}
    assert list(groups) == (["box", "objectness", "classes"] if network is yolov5 else ["box", "classes"])
    box, classes = groups["box"], groups["classes"]
    assert box.high > 400 and classes.low >= 0 and classes.high <= 1
    assert classes.mean_abs_error < (0.02 if mode == "fine" else 0.05)
    assert classes.distinct_device > 60
    assert box.mean_abs_error < 0.02 * (box.high - box.low)
    assert not any(g.flattened for g in groups.values())
    assert all("calibration images" in n for n in result.data.notices)  # there are six
    page = render_html(result.data)
    assert "Outputs by channel group" in page and all(f'<td class="t">{name}</td>' in page for name in groups)


def test_one_scale_for_both_would_be_seen_though_the_cosine_is_high() -> None:
    """What other tools do with yolov5n: the joined tensor under one int8 scale."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.uniform(0, 640, (1, 500, 4)), rng.beta(0.2, 3, (1, 500, 81))], axis=2)
    scale = 640 / 255
    flat = np.round(rows / scale) * scale
    assert (rows * flat).sum() / np.sqrt((rows**2).sum() * (flat**2).sum()) > 0.9996
    for head in (HeadSpec("yolo_rows"), HeadSpec()):  # known, and unknown: found by its ranges
        meter = GroupMeter(head)
        meter.add("output0", rows, flat)
        groups = meter.result()
        assert not groups[0].flattened and groups[0].distinct_device > 200
        assert all(g.flattened and g.distinct_device == 1 for g in groups[1:]) and groups[-1].channels >= 80
    meter = GroupMeter(HeadSpec("yolo_rows"))
    meter.add("output0", rows, rows.round(3))
    assert not any(g.flattened for g in meter.result())


def test_channels_group_by_their_ranges() -> None:
    names = [name for name, _ in range_groups(np.array([600.0, 500, 640, 640, 1, 0.9, 0.7]))]
    assert names == ["channels 0–3", "channels 4–6"]
    assert [name for name, _ in range_groups(np.array([1.0, 100.0] * 20))] == ["channels 0–39"]
    assert [name for name, _ in range_groups(np.zeros(3))] == ["channels 0–2"]


def test_an_integer_concat_keeps_a_scale_per_part(photographs: list[Path], tmp_path: Path) -> None:
    model = joined_in_front_of_a_convolution(tmp_path / "net.onnx")
    qgraph, ctx = pipeline.quantize(options(model, photographs, tmp_path / "build", "fine", HeadSpec()))
    assert next(n for n in qgraph.graph.nodes if "joined" in n.outputs).device == "NPU"
    assert ctx.statistics is not None and ctx.statistics.tensors["joined"].high[:16].max() > 200
    scale = qgraph.quant["joined"].scale
    assert scale[16:].max() <= 1.05 / 255 < scale[:16].max() / 50  # 256 steps for what lies in 0..1
    assert mixed_ranges(qgraph, ctx.statistics) == []


def test_one_fix_point_for_both_is_refused(
    photographs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the ranges not kept apart, pow2 would not go on."""
    model = joined_in_front_of_a_convolution(tmp_path / "net.onnx")
    monkeypatch.setattr(calibrate, "separate_unlike", lambda *_: [])
    with pytest.raises(QuantisationError, match=r"joins ranges of \d+.* under one scale, .* [01] steps; --mode fine"):
        pipeline.quantize(options(model, photographs, tmp_path / "build", "pow2", HeadSpec()))


def test_a_convolution_behind_an_integer_concat_reads_unlike_parts_on_their_own(
    photographs: list[Path], tmp_path: Path
) -> None:
    """pow2: the sum of two convolutions instead of one fix point for 0..600 and 0..1; every bit as the integer graph says."""
    model = joined_in_front_of_a_convolution(tmp_path / "net.onnx")
    _, ctx = pipeline.compile_model(options(model, photographs, tmp_path / "build", "pow2", HeadSpec()))
    assert any("joins unlike ranges" in n for n in ctx.notices) and ctx.qgraph is not None
    graph = ctx.qgraph.graph
    assert [n.op for n in graph.nodes][-3:] == ["Conv", "Conv", "Add"] and "Concat" not in [n.op for n in graph.nodes]
    assert [p.device for p in graph.partitions] == ["NPU"]
    result = compare(open_build(tmp_path / "build"), photographs[:3], layer_images=1)
    assert result.differing == 0
    (group,) = result.data.channel_groups
    step = 2.0**-4  # 0..4.2 in int8
    assert group.distinct_device > 0.75 * group.high / step and group.mean_abs_error < 0.5 * step
    assert result.outputs.cosine > 0.999
