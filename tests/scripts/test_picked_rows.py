"""Outputs whose rows the network picks itself: rows are paired before they are compared; what has no partner is counted and can be gated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from command_line import CommandLine, make_model, node, save_model

from npuforge.board_runtime.session import Session
from npuforge.compile.ir.graph import Graph, TensorInfo
from npuforge.compile.ir.preprocess import HeadSpec
from npuforge.scripts.picked_rows import match_rows, picked_outputs
from npuforge.scripts.report.data import matched_share

ROWS = np.array([[0, 0, 10, 10, 0.9], [50, 50, 60, 60, 0.8], [100, 100, 110, 110, 0.7]])


def test_rows_in_another_order_are_each_others() -> None:
    first, second = match_rows(ROWS[None], ROWS[None, ::-1] + 1e-3, axis=1)
    np.testing.assert_array_equal(np.stack([first, second]), [[0, 1, 2], [2, 1, 0]])


def test_rows_far_apart_are_not() -> None:
    """Columns reach over 100, 100, 100, 100 and 0.2: 9 pixels are within a tenth, 11 are not, nor is a score 0.03 away."""
    for change, count in (([9, 0, 0, 0, 0], 3), ([11, 0, 0, 0, 0], 2), ([0, 0, 0, 0, 0.03], 2)):
        moved = ROWS.copy()
        moved[1] += change
        assert len(match_rows(ROWS, moved, axis=0)[0]) == count


def test_fewer_more_and_no_rows() -> None:
    assert [v.tolist() for v in match_rows(ROWS, ROWS[1:2], axis=0)] == [[1], [0]]
    assert len(match_rows(ROWS, ROWS[:0], axis=0)[0]) == len(match_rows(ROWS[:0], ROWS, axis=0)[0]) == 0
    assert len(match_rows(ROWS, ROWS[:, :4], axis=0)[0]) == 0  # other columns
    assert len(match_rows(ROWS, np.full_like(ROWS, np.nan), axis=0)[0]) == 0


def test_whole_numbers_pair_where_equal() -> None:
    a, b = np.array([[1, 2], [1, 2], [3, 4]]), np.array([[3, 4], [1, 2], [5, 6], [1, 3]])
    assert [v.tolist() for v in match_rows(a, b, axis=0)] == [[0, 2], [1, 0]]


def test_share_of_rows_with_a_partner() -> None:
    assert matched_share(3, 4, 5) == pytest.approx(6 / 9)
    assert matched_share(0, 0, 0) is None


def test_which_outputs_are_picked() -> None:
    shapes = {"rows": (-1, 6), "map": (1, 8, 4, 4), "best": (1, 300, 6)}
    graph = Graph("g", [], {n: TensorInfo(n, s) for n, s in shapes.items()}, {}, [], list(shapes), 18)
    assert picked_outputs(graph, HeadSpec()) == {"rows": False}
    assert picked_outputs(graph, HeadSpec("detections", {"outputs": {"rows": "best"}})) == {"rows": False, "best": True}


LIMIT = 8


def nms_network(columns: bool) -> onnx.ModelProto:
    """Image 32 x 32 → boxes of the cells around their middles and scores → NMS → the picked triples and boxes; `columns`: rows of seven as YOLOv7 has them."""
    rng = np.random.default_rng(5)
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(1, 64, 2) * 4.0 + 2
    constants = {
        "w": (rng.normal(size=(3, 3, 4, 4)) * 0.25).astype(np.float32),
        "flat": np.array([1, 3, 64]),
        "boxes": np.concatenate([grid - 3, grid + 3], axis=2).astype(np.float32),
        "limit": np.array([LIMIT]),
        "overlap": np.array([0.3], np.float32),
        "threshold": np.array([0.6], np.float32),
        "one": np.array([1]),
        "two": np.array([2]),
        "zero": np.array([0]),
        "shape": np.array([-1, 4]),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], "stem", kernel_shape=[4, 4], strides=[4, 4]),
        node("Reshape", ["c", "flat"], ["f"], "cells"),
        node("Sigmoid", ["f"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "limit", "overlap", "threshold"], ["picked"]),
        node("Gather", ["picked", "two"], ["index"], "which", axis=1),
        node("Gather", ["boxes", "index"], ["raw"], "corners", axis=1),
        node("Reshape", ["raw", "shape"], ["kept"]),
        node("Cast", ["picked"], ["real"], to=1),
        node("Gather", ["real", "zero"], ["batch"], "first", axis=1),
        node("Gather", ["real", "one"], ["class"], "second", axis=1),
        node("GatherND", ["scores", "picked"], ["score1"]),
        node("Unsqueeze", ["score1", "one"], ["score"]),
        node("Concat", ["batch", "kept", "class", "score"], ["rows"], axis=1),
    ]
    outputs = {"rows": 1} if columns else {"picked": 7, "kept": 1}
    model = make_model(nodes, constants, (1, 3, 32, 32))
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(n, t, None) for n, t in outputs.items())
    return model


@pytest.fixture
def build(command: CommandLine, request: pytest.FixtureRequest) -> str:
    save_model(nms_network(request.param), Path("nms.onnx"))
    Path("nms.yaml").write_text("head: {kind: auto}\nstd: 255\n")
    result = command("compile", "nms.onnx", "--calib", "images", "--preprocess", "nms.yaml", "-o", "nms")
    assert result.code == 0, result.err
    return "nms"


def columns_of(command: CommandLine) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Float (ONNX Runtime) and device outputs of both images."""
    from npuforge.scripts.build_folder import open_build

    opened = open_build(Path("nms"))
    live, session = onnxruntime.InferenceSession("nms.onnx"), Session(Path("nms"), device="sim", threads=1)
    names = [o.name for o in live.get_outputs()]
    samples = [opened.sample(path, {}) for path in sorted(Path("images").glob("*.png"))]
    return [
        (dict(zip(names, live.run(None, {"x": s.inputs["x"]}), strict=True)), session.run(s.inputs)) for s in samples
    ]


@pytest.mark.parametrize("build", [False], indirect=True)
def test_tensors_of_picked_rows_are_compared_row_by_partner(command: CommandLine, build: str) -> None:
    result = command("compare", build, "images", "--report", "r.html", "--min-cosine", "0.9", "--json")
    found = json.loads(result.out)["picked_rows"]
    both = columns_of(command)
    for name in ("picked", "kept"):
        assert found[name]["reference"] == sum(len(a[name]) for a, _ in both) > 0
        assert found[name]["device"] == sum(len(b[name]) for _, b in both) > 0
        assert found[name]["unlike_images"] == sum(len(a[name]) != len(b[name]) for a, b in both)
    equal = sum(
        sum((Counter(map(tuple, a["picked"].tolist())) & Counter(map(tuple, b["picked"].tolist()))).values())
        for a, b in both
    )
    assert found["picked"]["matched"] == equal > 0
    assert result.code == 0, result.err
    assert "picks the rows of output" in Path("r.html").read_text()


@pytest.mark.parametrize("build", [True], indirect=True)
def test_rows_of_a_head_are_compared_as_detections(command: CommandLine, build: str) -> None:
    result = command("compare", build, "images", "--json", "--min-matched", "1.0", "--min-cosine", "0.9")
    report = json.loads(result.out)
    counts = report["detection_counts"]
    assert report["picked_rows"]["rows"]["by_head"] is True
    share = 2 * counts["found"] / (2 * counts["found"] + counts["lost"] + counts["added"])
    gate = next(g for g in report["gates"] if g["name"] == "--min-matched")
    assert gate["found"] == pytest.approx(share) and gate["passed"] == (share >= 1)
    assert result.code == (0 if share >= 1 else 3), result.err
    lower = command("compare", build, "images", "--min-matched", f"{max(share - 0.01, 0)}")
    assert lower.code == 0, lower.err
    assert "compared as detections" in lower.out


def test_a_gate_on_nothing_does_not_pass(command: CommandLine) -> None:
    """No detections in either column: `not measured`."""
    manifest = Path("build/manifest.json")
    data = json.loads(manifest.read_text())
    data["preprocess"]["head"]["score_threshold"] = 1.0
    manifest.write_text(json.dumps(data))
    result = command("compare", "build", "images", "--min-matched", "0.5")
    assert result.code == 3 and "--min-matched 0.5: not measured (no detections): EXCEEDED" in result.out
