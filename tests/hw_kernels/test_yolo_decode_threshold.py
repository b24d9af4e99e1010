"""`score_threshold` of YoloDecode: a plain loop written here, PyTorch's autograd, both C++ levels, the exported node, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.board_runtime import _native
from npuforge.compile.ir.errors import ModelError, NpuforgeError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.ops.yolo_decode.fixed import fixed_decode_map

NAME = "npuforge::YoloDecode"


def node_of(attrs: dict[str, Any], maps: int) -> Node:
    return Node("decode", NAME, [f"x{i}" for i in range(maps)], ["boxes", "scores", "classes"], attrs)


def rows_of(maps: list[np.ndarray], attrs: dict[str, Any]) -> list[tuple[list[float], float, int]]:
    """Every row, value by value."""
    found = []
    sigmoid = lambda v: 1 / (1 + math.exp(-v))  # noqa: E731
    per_map, classes = len(attrs["anchors"]) // (2 * len(maps)), attrs["num_classes"]
    for m, x in enumerate(maps):
        for row in range(x.shape[2]):
            for column in range(x.shape[3]):
                for a in range(per_map):
                    t = [float(x[0, a * (5 + classes) + k, row, column]) for k in range(5 + classes)]
                    w, h = attrs["anchors"][2 * (m * per_map + a) :][:2]
                    cx, cy = (sigmoid(t[0]) + column) * attrs["strides"][m], (sigmoid(t[1]) + row) * attrs["strides"][m]
                    dx, dy = math.exp(t[2]) * w / 2, math.exp(t[3]) * h / 2
                    best = max(range(classes), key=lambda c: t[5 + c])
                    box = [cx - dx, cy - dy, cx + dx, cy + dy]
                    found.append((box, sigmoid(t[4]) * sigmoid(t[5 + best]), best))
    return found


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3),
    anchors=st.integers(1, 3),
    classes=st.integers(1, 4),
    threshold=st.sampled_from([0.0, 1e-6, 0.25, 0.3, 0.9, 1.0]) | st.floats(0, 1, width=32),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_are_those_of_a_plain_loop(
    sizes: list[tuple[int, int]], anchors: int, classes: int, threshold: float, seed: int
) -> None:
    """Reference (float64) and C++ kernel (float32). A score at the threshold itself, to float32's rounding, may fall on either side in C++."""
    random = np.random.default_rng(seed)
    maps = [random.normal(0, 2, (1, anchors * (5 + classes), *s)).astype(np.float32) for s in sizes]
    attrs = {
        "anchors": random.uniform(4, 90, 2 * anchors * len(sizes)).astype(np.float32).tolist(),
        "strides": [8 * 2**i for i in range(len(sizes))],
        "num_classes": classes,
        "score_threshold": threshold,
    }
    every, limit = rows_of(maps, attrs), float(np.float32(threshold))
    kept = [row for row in every if limit == 0 or row[1] > limit]
    op, node = operator.registry()[NAME], node_of(attrs, len(maps))
    found = [op.reference(node, maps)]
    if all(abs(score - limit) > 1e-6 for _, score, _ in every) or limit == 0:
        given_attrs = json.dumps(attrs)
        found.append(_native.run_operator(NAME, given_attrs, "null", maps, [False] * len(maps), 3))
    for boxes, scores, labels in found:
        assert (boxes.shape, scores.shape, labels.shape) == ((1, len(kept), 4), (1, len(kept)), (1, len(kept)))
        np.testing.assert_allclose(boxes[0], np.reshape([r[0] for r in kept], (-1, 4)), rtol=2e-5, atol=2e-3)
        np.testing.assert_allclose(scores[0], [r[1] for r in kept], rtol=1e-5, atol=1e-6)
        assert labels[0].tolist() == [r[2] for r in kept]
    assert op.infer(node, [m.shape for m in maps])[1] == (1, len(every) if limit == 0 else -1)
    assert op.largest(node, [m.shape for m in maps]) == [(1, len(every), 4), (1, len(every)), (1, len(every))]


def test_a_score_equal_to_the_threshold_is_not_kept() -> None:
    """All logits 0: every score is exactly a quarter, in float64 as in float32. And NaN is above nothing."""
    attrs = {"anchors": [10.0, 13.0], "strides": [8], "num_classes": 1}
    op, x = operator.registry()[NAME], np.zeros((1, 6, 2, 2), np.float32)
    for threshold, rows in ((0.25, 0), (float(np.nextafter(np.float32(0.25), np.float32(0))), 4)):
        given_attrs = attrs | {"score_threshold": threshold}
        assert op.reference(node_of(given_attrs, 1), [x])[1].shape == (1, rows)
        assert _native.run_operator(NAME, json.dumps(given_attrs), "null", [x], [False], 3)[0].shape == (1, rows, 4)
    x[0, 4, 0, 0] = np.nan
    given_attrs = attrs | {"score_threshold": 0.1}
    assert op.reference(node_of(given_attrs, 1), [x])[1].shape == (1, 3)
    assert _native.run_operator(NAME, json.dumps(given_attrs), "null", [x], [False], 3)[2].shape == (1, 3)


@pytest.mark.parametrize("position", [5, 6, 7])
def test_a_class_of_nan_is_passed_over_unless_it_comes_first(position: int) -> None:
    attrs = {"anchors": [10.0, 13.0], "strides": [8], "num_classes": 3}
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8, 1, 1)
    x[0, position] = np.nan
    label = {5: 0, 6: 2, 7: 1}[position]
    results = [operator.registry()[NAME].reference(node_of(attrs, 1), [x])]
    results.append(_native.run_operator(NAME, json.dumps(attrs), "null", [x], [False], 3))
    for _, scores, labels in results:
        assert labels[0, 0] == label and np.isnan(scores[0, 0]) == (position == 5)


@pytest.mark.parametrize("threshold", [-0.1, 1.5, math.nan, math.inf, "0.5", True, [0.5], None])
def test_what_is_no_probability_is_refused(threshold: Any) -> None:
    attrs = {"anchors": [10.0, 13.0], "strides": [8], "num_classes": 1, "score_threshold": threshold}
    op, x = operator.registry()[NAME], np.zeros((1, 6, 2, 2), np.float32)
    words = r"node decode: YoloDecode has score_threshold .*; expected a number from 0 to 1, .*\(0, or no attribute, keeps every row\)"
    with pytest.raises(ModelError, match=words):
        op.infer(node_of(attrs, 1), [x.shape])
    with pytest.raises(ModelError, match=words):
        op.reference(node_of(attrs, 1), [x])
    if isinstance(threshold, float) and math.isfinite(threshold):
        with pytest.raises(NpuforgeError, match="score_threshold must be a number from 0 to 1"):
            _native.run_operator(NAME, json.dumps(attrs), "null", [x], [False], 3)


@settings(max_examples=40, deadline=None)
@given(st.integers(-1, 2**14), st.integers(0, 2**32 - 1))
def test_integers_keep_the_rows_above_the_threshold(threshold: int, seed: int) -> None:
    """Rows whose real score is further from the threshold than the kernel's score error (1.5 units of 2^-14) are decided as the plain loop decides."""
    random = np.random.default_rng(seed)
    classes, anchors = 3, [(160, 208), (640, 480)]
    head = random.integers(-1500, 1500, (3, 4, 32)).astype(np.int16)
    attrs = {"anchors": [v / 16 for a in anchors for v in a], "strides": [16], "num_classes": classes}
    every = rows_of([head[None, :, :, :16].transpose(0, 3, 1, 2) / 256], attrs)
    boxes, scores, labels = fixed_decode_map(head, anchors, 16, classes, threshold)
    sure = [r for r in every if r[1] * 2**14 > threshold + 1.5]
    unsure = [r for r in every if abs(r[1] * 2**14 - threshold) <= 1.5]
    assert len(sure) <= len(scores) <= len(sure) + len(unsure) and (scores > threshold).all()
    if not unsure:
        assert labels.tolist() == [r[2] for r in sure]
        assert np.abs(scores - np.array([r[1] for r in sure]) * 2**14).max(initial=0) <= 1.5
        size = np.array([[r[0][2] - r[0][0], r[0][3] - r[0][1]] * 2 for r in sure]).reshape(-1, 4)
        real = np.array([r[0] for r in sure]).reshape(-1, 4)
        assert (np.abs(boxes - real * 16) <= 1.5 + 16 * size * 2**-14).all()


# ---- PyTorch
ATTRS = {
    "anchors": [10.0, 14.0, 23.0, 27.0, 37.0, 58.0, 81.0, 82.0],
    "strides": [16, 32],
    "num_classes": 2,
    "score_threshold": 0.25,
}
SHAPES = [(1, 14, 3, 2), (1, 14, 2, 2)]


def in_torch(torch: Any, maps: list[Any]) -> tuple[Any, Any]:
    """Boxes and scores of the kept rows, from torch's own operators."""
    boxes, scores = [], []
    anchors = torch.tensor(ATTRS["anchors"], dtype=torch.float64).reshape(2, 2, 2)
    for x, pairs, stride in zip(maps, anchors, ATTRS["strides"], strict=True):
        _, _, h, w = x.shape
        t = x.reshape(2, 7, h, w).permute(2, 3, 0, 1)
        grid = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1)[:, :, None]
        centre, half = (t[..., :2].sigmoid() + grid) * stride, t[..., 2:4].exp() * pairs / 2
        boxes.append(torch.cat([centre - half, centre + half], -1).reshape(-1, 4))
        scores.append((t[..., 4].sigmoid() * t[..., 5:].sigmoid().amax(-1)).reshape(-1))
    kept = torch.cat(scores) > ATTRS["score_threshold"]
    return torch.cat(boxes)[kept][None], torch.cat(scores)[kept][None]


def test_gradient_and_second_gradient_are_autograds() -> None:
    torch = pytest.importorskip("torch")
    from npuforge.hw_kernels.bindings.torch_ops import run

    torch.manual_seed(3)
    maps = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in SHAPES]
    boxes, scores, classes = run(NAME, *maps, outputs=3, **ATTRS)
    right = in_torch(torch, maps)
    assert 0 < scores.shape[1] < 20 and classes.shape == scores.shape
    torch.testing.assert_close((boxes, scores), right, rtol=1e-12, atol=1e-10)
    weights = [torch.randn_like(v) for v in right]
    slopes = []
    for values in ((boxes, scores), right):
        total = sum((w * v**2).sum() for w, v in zip(weights, values, strict=True))
        first = torch.autograd.grad(total, maps, create_graph=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in first), maps)
        slopes.append((first, second))
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-9, atol=1e-7)
    dropped = torch.cat(
        [(g == 0).all(-1).reshape(-1) for g in [x.reshape(2, 7, -1).permute(2, 0, 1) for x in slopes[0][0]]]
    )
    assert int((~dropped).sum()) == scores.shape[1]  # only kept rows receive
    assert torch.autograd.gradcheck(lambda *x: run(NAME, *x, outputs=3, **ATTRS)[:2], maps)
    assert torch.autograd.gradgradcheck(lambda *x: run(NAME, *x, outputs=3, **ATTRS)[:2], maps)


def test_no_row_is_a_result_with_a_gradient_of_zero() -> None:
    torch = pytest.importorskip("torch")
    from npuforge.hw_kernels.bindings.torch_modules import Operator

    maps = [torch.randn(s, requires_grad=True) for s in SHAPES]
    module = Operator(NAME, 3, **(ATTRS | {"score_threshold": 1.0}))
    boxes, scores, classes = module(*maps)
    assert (boxes.shape, scores.shape, classes.shape) == ((1, 0, 4), (1, 0), (1, 0))
    for gradient in torch.autograd.grad(boxes.sum() + scores.sum(), maps):
        assert not gradient.any()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    for found, wanted in zip(compiled(*maps), module(*maps), strict=True):
        torch.testing.assert_close(found, wanted)


def test_exported_node_has_the_threshold_and_open_sizes(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    import onnx

    from npuforge.compile.steps.import_onnx import import_onnx
    from npuforge.hw_kernels.bindings.torch_modules import Operator

    class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Conv2d(3, 14, 1), torch.nn.Conv2d(3, 14, 2, 2)
            self.decode = Operator(NAME, 3, **ATTRS)

        def forward(self, x: Any) -> Any:
            return self.decode(self.first(x), self.second(x))

    torch.manual_seed(1)
    network, x = Two().eval(), torch.randn(1, 3, 4, 6)
    path = tmp_path / "net.onnx"
    torch.onnx.export(network, (x,), str(path), dynamo=True)
    graph = import_onnx(onnx.load(path)).graph
    node = next(n for n in graph.nodes if n.op == NAME)
    assert node.attrs["score_threshold"] == 0.25
    assert [graph.tensors[t].shape for t in node.outputs] == [(1, -1, 4), (1, -1), (1, -1)]
    wanted = network(x)
    found = operator.registry()[NAME].reference(
        node, [v.detach().numpy().astype(np.float64) for v in (network.first(x), network.second(x))]
    )
    for value, right in zip(found, wanted, strict=True):
        assert 0 < value.shape[1] < 60
        np.testing.assert_allclose(value, right.detach().numpy(), rtol=1e-5, atol=1e-4)
