"""The report: complete, self-contained, escaped, valid with no data at all; matching of columns; charts."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from npuforge.compile.ir.errors import WriteError
from npuforge.compile.ir.preprocess import HeadSpec
from npuforge.scripts.report import svg
from npuforge.scripts.report.channel_groups import GroupMeter
from npuforge.scripts.report.data import (
    DEVICE,
    FLOAT,
    INTEGER,
    Accuracy,
    Block,
    CpuNode,
    Gate,
    Histogram,
    ImageComparison,
    Layer,
    Loss,
    MemoryPlan,
    Partition,
    Performance,
    Reference,
    ReportData,
)
from npuforge.scripts.report.match import iou_matrix, match
from npuforge.scripts.report.render import _signed, render_html, to_json, write_report

EVIL = "<script>alert('x')</script>&\"/conv"
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Checker(HTMLParser):
    """Collects text and outside references; complains about tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.text = ""
        self.sources: list[str] = []
        self.errors: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        if not self.stack or self.stack.pop() != tag:
            self.errors.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert not checker.errors and not checker.stack
    outside = [s for s in checker.sources if not s.startswith(("data:image/jpeg;base64,", "#"))]
    assert not outside, "the page must hold everything itself"
    assert "url(" not in page and "@import" not in page
    return checker


def empty() -> ReportData:
    return ReportData(
        "demo",
        "demo.onnx",
        "fine",
        "sim",
        {"name": "nf-b1024"},
        "00" * 8,
        {},
        {},
        Reference("CPUExecutionProvider", "live"),
    )


def layer(number: int, alone: float, accumulated: float, **more: object) -> Layer:
    def loss(db: float) -> Loss:
        return Loss(db, 0.99, 0.5, 0.1, 0.001)

    fields: dict[str, object] = {
        "values_compared": 1000,
        "cycles": 500 * number + 1,
        "macs": 10**6,
        "utilisation": 0.5,
        "ddr_bytes": 4096,
    }
    return Layer(
        f"L{number:04d}", f"node{number}", "Conv", [f"Conv_{number}"], loss(alone), loss(accumulated), **(fields | more)
    )  # type: ignore[arg-type]


def full() -> ReportData:
    data = empty()
    rows = np.array([[10, 10, 60, 60, 0.9, 0], [100, 20, 180, 90, 0.6, 1]], dtype=np.float32)
    moved = rows.copy()
    moved[:, :4] += 5
    moved[:, 4] -= 0.05
    image = np.full((120, 200, 3), 90, dtype=np.uint8)
    data.images = [
        ImageComparison(
            "a.jpg", image, {FLOAT: rows, INTEGER: moved, DEVICE: moved.copy()}, np.array([[8.0, 8, 62, 62, 0]])
        )
    ]
    data.class_names = ["Mutter", "螺母"]
    data.layers = [
        layer(1, 40.0, 38.0),
        layer(2, 12.5, 12.0, histogram=Histogram([0.0, 1.0, 2.0], [5, 3], [4, 4])),
        layer(3, 200.0, 11.0),
    ]
    data.layers.append(Layer("L0004", EVIL, "Resize", [EVIL]))
    data.partitions = [
        Partition("NPU", 4, ["images"], ["x"], 2000, 4 * 10**6),
        Partition("CPU", 1, ["x"], ["y"], nodes=[CpuNode("Sigmoid_9", "Sigmoid", "no convolution downstream")]),
    ]
    data.performance = Performance(2000, 4 * 10**6 // 10, 2048, 300.0, 1 << 20, {"conv": 1500})
    data.memory = [MemoryPlan("DDR pool", 640, 512, [Block("x", 0, 2, 512, 0), Block("y", 2, 3, 128, 512)], 1 << 20)]
    data.accuracy = {
        FLOAT: Accuracy(0.284, 0.43, 0.3, {"Mutter": 0.5}),
        INTEGER: Accuracy(0.279, 0.42, 0.29, {"Mutter": 0.4}),
    }
    data.gates = [Gate("--max-map-drop", 1.0, 0.5, True), Gate("--min-cosine", 0.99, None, False)]
    data.notices = [EVIL]
    return data


def test_page_with_everything() -> None:
    page = render_html(full())
    text = " ".join(check(page).text.split())
    for expected in (
        "28.40",
        "27.90",
        "-0.50",
        "not run",
        "no convolution downstream",
        "1 of 2 exceeded",
        "not measured",
        "identical to the last bit",
    ):
        assert expected in text, expected
    assert "0 values differ" in text and "of 3 k int8 values of all NPU layers" in text
    assert "1.250 × the live-range lower bound (512 B)" in text
    assert "6.67" not in text and "6.7 µs" in text  # 2000 cycles at 300 MHz
    assert "exact" in text  # an SQNR without error
    assert page.count("data:image/jpeg") == 3


def test_oriented_boxes_are_matched_and_named() -> None:
    """A long bar that the device turned by 90° has the upright box of a square in both columns, yet nothing in common to match."""
    data = full()
    bar = np.array([[40, 55, 80, 55, 80, 65, 40, 65]], np.float32)
    across = np.array([[55, 40, 65, 40, 65, 80, 55, 80]], np.float32)
    rows = [np.concatenate([[[40, 40, 80, 80, 0.9, 0]], corners], 1).astype(np.float32) for corners in (bar, across)]
    truth = np.concatenate([[[40, 40, 80, 80, 0]], bar], 1)
    image = np.full((120, 200, 3), 90, np.uint8)
    data.images = [ImageComparison("a.jpg", image, {FLOAT: rows[0], INTEGER: rows[1], DEVICE: rows[1]}, truth)]
    data.oriented = data.oriented_truth = True
    text = " ".join(check(render_html(data)).text.split())
    assert "mAP of oriented boxes, percent" in text and "0 matched, 1 lost, 1 new" in text
    assert to_json(data)["images"][0]["matching"]["float_to_integer"]["lost"] == [0]


def test_angles_half_a_turn_apart_are_one_angle() -> None:
    meter = GroupMeter(HeadSpec("yolo_rows", options={"objectness": False, "angle": True}))
    float_rows, device_rows = np.zeros((2, 1, 6, 9), np.float32)
    float_rows[0, 5], device_rows[0, 5] = 1.5, -1.5  # 3 radians, 0.1416 short of half a turn
    device_rows[0, 5, 0] = 1.3
    meter.add("predictions", float_rows, device_rows)
    angle = next(g for g in meter.result() if g.name == "angle")
    assert angle.max_abs_error == pytest.approx(0.2, abs=1e-6)
    assert angle.mean_abs_error == pytest.approx((0.2 + 8 * (np.pi - 3)) / 9, abs=1e-6)


def test_scores_that_differ_behind_equal_integers_are_explained() -> None:
    """Only where every int8 value agrees and detections nevertheless differ: float arithmetic behind the NPU."""
    sentence = "agree in every int8 value"
    data = full()
    assert sentence not in render_html(data)  # detections are identical
    data.images[0].detections[DEVICE][0, 4] += 1e-6
    assert sentence in render_html(data)
    data.layers[0].values_differing = 1
    assert sentence not in render_html(data)  # a fault is not explained away


def test_outputs_of_class_numbers_are_counted() -> None:
    data = full()
    data.index_outputs = {"classes": (3, 1200)}
    text = " ".join(check(render_html(data)).text.split())
    assert "classes holds class numbers: 3 of 1 200 differ between float and device" in text
    assert to_json(data)["index_outputs"] == {"classes": [3, 1200]}


def test_worst_layer_comes_first() -> None:
    text = check(render_html(full())).text
    table = text[text.index("Worst first") :]
    assert table.index("L0002") < table.index("L0001") < table.index("L0003") < table.index("L0004")


def test_names_from_the_model_are_escaped() -> None:
    page = render_html(full())
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_page_without_any_data() -> None:
    text = check(render_html(empty())).text
    for expected in (
        "device not run",
        "No truth was given",
        "No partitions",
        "No memory plan",
        "No program was generated",
        "No detections",
    ):
        assert expected in text, expected


def test_a_differing_device_is_shown_as_a_fault() -> None:
    data = full()
    data.layers[0].values_differing = 1
    text = " ".join(check(render_html(data)).text.split())
    assert "1 value differs" in text and "a fault, please report" in text


def test_json_holds_the_same_figures() -> None:
    data = full()
    assert data.layers[0].alone is not None
    data.layers[0].alone.max_abs_error = float("nan")
    text = json.dumps(to_json(data), allow_nan=False)
    back = json.loads(text)
    assert back["layers"][0]["alone"]["max_abs_error"] is None
    assert back["layers"][1]["alone"]["sqnr_db"] == 12.5 and back["worst_layers"] == ["L0002", "L0001", "L0003"]
    assert back["device_equality"] == {"values_compared": 3000, "values_differing": 0}
    assert back["accuracy"]["integer"]["map"] == 0.279
    assert back["performance"]["utilisation"] == pytest.approx(4e5 / (2000 * 2048))
    matching = back["images"][0]["matching"]["float_to_integer"]
    assert [p["reference"] for p in matching["pairs"]] == [0, 1] and matching["largest_score_change"] == pytest.approx(
        0.05, abs=1e-6
    )
    assert back["images"][0]["detections"]["float"][0] == [10, 10, 60, 60, 0.9, 0]


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    write_report(full(), tmp_path / "new" / "r.html")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["r.html", "r.json"]
    json.loads((tmp_path / "new" / "r.json").read_text())
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="the report cannot be written"):
        write_report(full(), tmp_path / "file" / "r.html")


# --- matching ----------------------------------------------------------------------------------------------------------------------------
def rows(*values: tuple[float, ...]) -> np.ndarray:
    return np.array(values, dtype=np.float32).reshape(-1, 6)


def test_closest_pairs_win_and_classes_are_kept_apart() -> None:
    a = rows((0, 0, 10, 10, 0.9, 0), (1, 0, 11, 10, 0.8, 0), (50, 50, 60, 60, 0.7, 1))
    b = rows((1, 0, 11, 10, 0.85, 0), (50, 50, 60, 60, 0.7, 2))
    result = match(a, b)
    assert [(p.reference, p.other) for p in result.pairs] == [(1, 0)]
    assert result.pairs[0].iou == pytest.approx(1.0) and result.pairs[0].score_change == pytest.approx(0.05)
    assert result.lost == [0, 2] and result.gained == [1]


def test_matching_nothing() -> None:
    assert match(rows(), rows()).mean_iou is None
    assert match(rows((0, 0, 1, 1, 0.5, 0)), rows()).lost == [0]
    assert match(rows(), rows((0, 0, 1, 1, 0.5, 0))).gained == [0]
    assert match(rows((0, 0, 0, 0, 0.5, 0)), rows((0, 0, 0, 0, 0.5, 0)), min_iou=0.0).pairs == []  # no area, no overlap


def test_iou() -> None:
    found = iou_matrix(
        rows((0, 0, 10, 10, 1, 0)), rows((0, 0, 10, 5, 1, 0), (5, 5, 15, 15, 1, 0), (20, 0, 30, 10, 1, 0))
    )
    np.testing.assert_allclose(found, [[0.5, 25 / 175, 0]])


# --- charts ------------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0, 0.93, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (-3, 4, [-4, -2, 0, 2, 4])],
)
def test_ticks_are_round_and_cover_the_range(low: float, high: float, expected: list[float]) -> None:
    assert svg.nice_ticks(low, high) == pytest.approx(expected)


def test_ticks_of_an_empty_range() -> None:
    assert len(svg.nice_ticks(3.0, 3.0)) >= 2


def test_charts_are_well_formed_and_in_proportion() -> None:
    chart = ET.fromstring(str(svg.column_chart([100.0, 50.0], [1.0, None], ["a", EVIL], "cycles", "layer")))
    columns = [r for r in chart.iter("rect")]
    heights = [float(c.attrib["height"]) for c in columns]
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.01)
    assert columns[1].find("title").text == EVIL  # type: ignore[union-attr]
    line = ET.fromstring(
        str(svg.line_chart([svg.Series("s", "alone", [1.0, None, 3.0, 4.0], ["", "", "", ""])], "y", "x"))
    )
    assert len(list(line.iter("circle"))) == 3 and len(list(line.iter("polyline"))) == 2  # a gap splits the line


def test_memory_picture_places_blocks_by_time_and_address() -> None:
    plan = MemoryPlan("pool", 300, 300, [Block("low", 0, 10, 100, 0), Block("high", 5, 10, 200, 100)])
    picture = ET.fromstring(str(svg.memory_picture(plan)))
    low, high = (r for r in picture.iter("rect"))
    assert float(low.attrib["width"]) == pytest.approx(2 * float(high.attrib["width"]), rel=0.01)
    assert float(high.attrib["height"]) == pytest.approx(2 * float(low.attrib["height"]), rel=0.01)
    assert float(high.attrib["y"]) + float(high.attrib["height"]) == pytest.approx(float(low.attrib["y"]), abs=0.05)
    assert re.search("low: 100 B at 0x0", svg.memory_picture(plan))


def test_empty_charts() -> None:
    for chart in (
        svg.column_chart([], [], [], "y", "x"),
        svg.line_chart([], "y", "x"),
        svg.memory_picture(MemoryPlan("p", 0, 0, [])),
    ):
        ET.fromstring(str(chart))


@pytest.mark.parametrize(
    ("change", "text"),
    [(0.0, "0.000"), (-0.0, "0.000"), (1e-5, "<0.001"), (-4e-4, "<0.001"), (6e-4, "+0.001"), (-0.05, "-0.050")],
)
def test_no_signed_zeros(change: float, text: str) -> None:
    assert _signed(change, 3) == text


def test_gaps_of_the_precision_lines_are_explained_where_there_are_any() -> None:
    data = full()
    assert data.layers[3].alone is None and "A gap in the lines" in check(render_html(data)).text
    data.layers.pop()
    assert "A gap in the lines" not in check(render_html(data)).text


def test_small_times_are_microseconds() -> None:
    data = full()
    assert data.performance is not None
    data.performance.cycles = 600  # at 300 MHz
    assert "2.0 µs" in check(render_html(data)).text
    data.performance.cycles = 30_000
    assert "0.10 ms" in check(render_html(data)).text
