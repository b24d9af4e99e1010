"""Own operators against independent sources: Shapely for rotated overlap, scipy.sparse for CSR, ONNX Runtime's and a written-out RoI Align, numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from contract import Subject, run_cpu, wide
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.formulas import FORMULAS, SILU_POLYNOMIAL
from npuforge.hw_kernels.ops.batch_normalization.op import fold, unfold
from npuforge.hw_kernels.ops.csr_matmul.op import random_csr
from npuforge.hw_kernels.ops.rotated_conv.op import rotation_matrices
from npuforge.quant.executor import ReferenceExecutor

QUICK = settings(max_examples=60, deadline=None)


def node(op: str, inputs: int, outputs: int = 1, **attrs: Any) -> Node:
    return Node("node", op, [f"x{i}" for i in range(inputs)], [f"y{i}" for i in range(outputs)], attrs)


def both(n: Node, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reference and C++ kernel."""
    narrow = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in inputs]
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in narrow]
    return operator.get(n).reference(n, wide)[0], run_cpu(n, narrow)[0]


# ---- rotated boxes
def shapely_overlap(a: np.ndarray, b: np.ndarray) -> float:
    import shapely
    from shapely.affinity import rotate
    from shapely.geometry import box

    def polygon(v: np.ndarray) -> Any:
        x, y, w, h, angle = (float(i) for i in v)
        return rotate(box(x - w / 2, y - h / 2, x + w / 2, y + h / 2), angle, origin=(x, y), use_radians=True)

    p, q = polygon(a), polygon(b)
    # on a grid: without one GEOS gives nothing for some boxes whose edges lie on one another
    shared = shapely.intersection(p, q, grid_size=1e-9).area
    either = p.area + q.area - shared
    return shared / either if either else 0.0


BOX = st.tuples(st.floats(-20, 20), st.floats(-20, 20), st.floats(0.05, 30), st.floats(0.05, 30), st.floats(-7, 7))


SQUARE_IN_IT = (-9.203073593890368, -5.516740183352836, 15.9765625, 15.9765625, 5.720729909539088)


@QUICK
@given(BOX, BOX)
@example((*SQUARE_IN_IT[:3], 19.2010682112536, SQUARE_IN_IT[4]), SQUARE_IN_IT)
def test_rotated_overlap_is_shapelys(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    pytest.importorskip("shapely", reason="shapely is not installed: pip install npuforge[dev]")
    boxes = np.array([a], np.float32), np.array([b], np.float32)
    reference, kernel = both(node("npuforge::RotatedIou", 2), *boxes)
    expected = shapely_overlap(boxes[0][0], boxes[1][0])
    assert abs(reference.item() - expected) <= 1e-6
    assert abs(kernel.item() - expected) <= 1e-6


SQUARE = [0.0, 0.0, 2.0, 2.0, 0.0]
DEGENERATE = [
    ("equal", SQUARE, SQUARE, 1.0),
    ("equal, a quarter turn on", SQUARE, [0, 0, 2, 2, math.pi / 2], 1.0),
    ("equal, half a turn on", [1, 2, 3, 1, 0.4], [1, 2, 3, 1, 0.4 + math.pi], 1.0),
    ("touching along an edge", SQUARE, [2, 0, 2, 2, 0], 0.0),
    ("touching in a corner", SQUARE, [2, 2, 2, 2, 0], 0.0),
    ("a corner on an edge", SQUARE, [1 + math.sqrt(2), 0, 2, 2, math.pi / 4], 0.0),
    ("contained", SQUARE, [0.2, 0.1, 0.5, 0.5, 0.7], 0.0625),
    ("contained, sharing an edge", SQUARE, [0, 0.5, 2, 1, 0], 0.5),
    ("contained, sharing a corner", SQUARE, [0.5, 0.5, 1, 1, 0], 0.25),
    ("no width", SQUARE, [0, 0, 0, 2, 0.3], 0.0),
    ("no area at all", [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], 0.0),
    ("a cross", [0, 0, 4, 1, 0], [0, 0, 1, 4, 0], 1 / 7),
    ("an octagon", SQUARE, [0, 0, 2, 2, math.pi / 4], 0.7071067811865476),  # 8(sqrt 2 - 1) over 8 - that
    ("apart", SQUARE, [50, 0, 2, 2, 0.1], 0.0),
    ("far from the origin", [1e5, 1e5, 64, 64, 0.0], [1e5 + 32, 1e5, 64, 64, 0.0], 1 / 3),
]


@pytest.mark.parametrize(("name", "a", "b", "expected"), DEGENERATE, ids=[d[0] for d in DEGENERATE])
def test_degenerate_boxes(name: str, a: list[float], b: list[float], expected: float) -> None:
    for first, second in ((a, b), (b, a)):
        for found in both(node("npuforge::RotatedIou", 2), np.array([first], float), np.array([second], float)):
            assert abs(found.item() - expected) <= 2e-6


def test_rotated_nms_keeps_what_the_rule_says() -> None:
    """By the definition: a box stays if no better kept box of its class overlaps it by more than the threshold, Shapely being the judge."""
    pytest.importorskip("shapely", reason="shapely is not installed: pip install npuforge[dev]")
    random = np.random.default_rng(5)
    boxes = np.concatenate(
        [random.uniform(0, 12, (40, 2)), random.uniform(2, 6, (40, 2)), random.uniform(-2, 2, (40, 1))], 1
    )
    boxes, scores = boxes.astype(np.float32), np.round(random.uniform(0, 1, (3, 40)), 1).astype(np.float32)
    expected = []
    for label in range(3):
        kept: list[int] = []
        for i in sorted(range(40), key=lambda i: (-scores[label, i], i)):
            if scores[label, i] > 0.15 and all(shapely_overlap(boxes[i], boxes[j]) <= 0.25 for j in kept):
                kept.append(i)
        expected += [[label, i] for i in kept]
    n = node("npuforge::RotatedNms", 2, iou_threshold=0.25, score_threshold=0.15)
    for found in both(n, boxes, scores):
        assert found.dtype == np.int64 and found.tolist() == expected


# ---- angles
@QUICK
@given(st.floats(-30, 30), st.floats(0.01, 1e4))
def test_angles_come_back_periodically(angle: float, length: float) -> None:
    code = both(node("npuforge::AngleEncode", 1, axis=-1), np.array([[angle]]))[0]
    decoded = operator.registry()["npuforge::AngleDecode"].reference(
        node("npuforge::AngleDecode", 1, axis=-1), [code * length]
    )[0]
    assert -math.pi / 2 <= decoded.item() < math.pi / 2
    turns = (decoded.item() - float(np.float32(angle))) / math.pi
    assert abs(turns - round(turns)) < 1e-6


def test_angles_at_the_seam() -> None:
    decode = node("npuforge::AngleDecode", 1, axis=-1)
    sines = np.array([[0.0, -1.0], [-1e-7, -1.0], [1e-7, -1.0], [0.0, 0.0], [-0.0, -1.0], [1.0, 0.0]])
    for found in both(decode, sines):
        assert (found >= -np.pi / 2 - 1e-6).all() and (found < np.pi / 2).all()
        np.testing.assert_allclose(
            found.ravel(), [-np.pi / 2, -np.pi / 2, np.pi / 2, 0.0, -np.pi / 2, np.pi / 4], atol=1e-6
        )


# ---- sparse
@QUICK
@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 6), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_csr_is_scipys(rows: int, inner: int, columns: int, density: float, seed: int) -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="scipy is not installed: pip install npuforge[dev]")
    random = np.random.default_rng(seed)
    values, indices, pointers = random_csr(random, rows, inner, density)
    values, x = values.astype(np.float32), random.normal(size=(inner, columns)).astype(np.float32)
    expected = sparse.csr_matrix((values.astype(np.float64), indices, pointers), (rows, inner)) @ x.astype(np.float64)
    reference, kernel = both(node("npuforge::CsrMatMul", 4), x, values, indices, pointers)
    np.testing.assert_allclose(reference, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kernel, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("columns", "pointers"),
    [([0, 9], [0, 1, 2]), ([0, -1], [0, 1, 2]), ([0, 1], [0, 3, 2]), ([0, 1], [1, 1, 2]), ([0, 1], [0, 1, 1])],
)
def test_bad_sparse_matrices_are_refused(columns: list[int], pointers: list[int]) -> None:
    n, x, values = node("npuforge::CsrMatMul", 4), np.ones((2, 3), np.float32), np.ones(2, np.float32)
    arrays = [x, values, np.array(columns), np.array(pointers)]
    with pytest.raises(ModelError, match="node node: the sparse matrix is not consistent"):
        operator.get(n).reference(n, arrays)
    from npuforge.compile.ir.errors import NpuforgeError

    with pytest.raises(NpuforgeError, match="node 'node'"):
        run_cpu(n, arrays)


# ---- RoI Align
def onnx_roi_align(x: np.ndarray, rois: np.ndarray, images: np.ndarray, **attrs: Any) -> np.ndarray:
    proto = helper.make_node(
        "RoiAlign", ["x", "rois", "images"], ["y"], coordinate_transformation_mode="half_pixel", **attrs
    )
    graph = helper.make_graph(
        [proto],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
            helper.make_tensor_value_info("rois", TensorProto.FLOAT, rois.shape),
            helper.make_tensor_value_info("images", TensorProto.INT64, images.shape),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x, "rois": rois, "images": images})[0])


@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_roi_align_without_rotation_is_onnx_runtimes(ratio: int, scale: float) -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(2, 3, 11, 13)).astype(np.float32)
    low = random.uniform(-2, 9, (20, 2)) / scale
    high = low + random.uniform(0.3, 8, (20, 2)) / scale
    corners = np.concatenate([low, high], 1).astype(np.float32)
    images = random.integers(0, 2, 20)
    expected = onnx_roi_align(
        x, corners, images, output_height=3, output_width=2, spatial_scale=scale, sampling_ratio=ratio
    )
    centre, size = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
    rois = np.concatenate([images[:, None], centre, size, np.zeros((20, 1))], 1)
    n = node("npuforge::RotatedRoiAlign", 2, output_height=3, output_width=2, spatial_scale=scale, sampling_ratio=ratio)
    for found in both(n, x, rois):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_rotated_roi_align_by_definition() -> None:
    """Of a linear map x + 2y bilinear samples are exact, and a bin's mean is the map at the bin's centre."""
    grid_y, grid_x = np.mgrid[:40, :40]
    x = (grid_x + 2.0 * grid_y)[None, None]
    cx, cy, w, h, angle = 20.0, 18.0, 12.0, 6.0, 0.6
    n = node("npuforge::RotatedRoiAlign", 2, output_height=2, output_width=3, sampling_ratio=4)
    expected = np.empty((2, 3))
    for i, j in np.ndindex(2, 3):
        u, v = ((j + 0.5) / 3 - 0.5) * w, ((i + 0.5) / 2 - 0.5) * h
        px, py = (
            cx + u * math.cos(angle) - v * math.sin(angle) - 0.5,
            cy + u * math.sin(angle) + v * math.cos(angle) - 0.5,
        )
        expected[i, j] = px + 2 * py
    for found in both(n, x, np.array([[0, cx, cy, w, h, angle]])):
        np.testing.assert_allclose(found[0, 0], expected, rtol=1e-5)


# ---- rotated convolution
def test_quarter_turns_are_permutations() -> None:
    for kernel in (1, 2, 3, 5):
        weight = np.random.default_rng(1).normal(size=(kernel, kernel))
        for j, matrix in enumerate(rotation_matrices(kernel, 4)):
            np.testing.assert_allclose(
                (matrix @ weight.ravel()).reshape(kernel, kernel), np.rot90(weight, j), atol=1e-12
            )


def test_a_rotated_filter_sees_the_rotated_map() -> None:
    """Equivariance: turning the map by a quarter turns every response and moves it one orientation on."""
    random = np.random.default_rng(2)
    x, weight = random.normal(size=(1, 2, 7, 7)), random.normal(size=(3, 2, 3, 3))
    n = node("npuforge::RotatedConv", 2, kernel_shape=[3, 3], pads=[1, 1, 1, 1], rotations=4)
    y = operator.get(n).reference(n, [x, weight])[0].reshape(4, 3, 7, 7)
    turned = operator.get(n).reference(n, [np.rot90(x, 1, (2, 3)).copy(), weight])[0].reshape(4, 3, 7, 7)
    for j in range(4):
        np.testing.assert_allclose(turned[(j + 1) % 4], np.rot90(y[j], 1, (1, 2)), atol=1e-12)


@pytest.mark.parametrize("number", range(3))
def test_rotated_convolution_with_weights_computed_at_run_time(number: int) -> None:
    """Lowered to operators in front of the convolution; the right value is the operator's own meaning."""
    subject = Subject("npuforge::RotatedConv", number)
    n, inputs = subject.graph().nodes[0], subject.inputs()
    names = [f"x{i}" for i in range(len(inputs))]
    values = [helper.make_tensor_value_info(t, TensorProto.FLOAT, x.shape) for t, x in zip(names, inputs, strict=True)]
    proto = helper.make_node("RotatedConv", names, ["y"], domain="npuforge", **n.attrs)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("npuforge", 1)]
    model = helper.make_model(helper.make_graph([proto], "g", values, [result]), opset_imports=opsets, ir_version=9)
    graph = import_onnx(model).graph
    found = ReferenceExecutor(graph).run(dict(zip(graph.inputs, inputs, strict=True)))["y"]
    np.testing.assert_allclose(found, subject.op.reference(n, wide(inputs))[0], rtol=1e-5, atol=1e-5)


# ---- batch normalisation, SiLU
def test_folding_both_ways() -> None:
    random = np.random.default_rng(4)
    x, weight, bias = random.normal(size=(2, 3, 6, 6)), random.normal(size=(4, 3, 3, 3)), random.normal(size=4)
    parameters = [random.normal(size=4), random.normal(size=4), random.normal(size=4), random.uniform(0.1, 2, 4)]
    conv, norm = node("Conv", 3, kernel_shape=[3, 3]), node("BatchNormalization", 5, epsilon=1e-3)
    separate = operator.get(norm).reference(norm, operator.get(conv).reference(conv, [x, weight, bias]) + parameters)[0]
    folded = fold(weight, bias, parameters, 1e-3)
    np.testing.assert_allclose(operator.get(conv).reference(conv, [x, *folded])[0], separate, rtol=1e-10, atol=1e-10)
    for found, value in zip(unfold(*folded, parameters, 1e-3), (weight, bias), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-10)
    parameters[0][2] = 0.0
    with pytest.raises(ValueError, match="scale of channel 2 is 0"):
        unfold(weight, bias, parameters)


def test_silu_polynomial_is_the_best_of_its_degree() -> None:
    """Chebyshev's criterion: the error of x/2 + c0 + c2 x^2 + c4 x^4 takes its largest size, 0.1944, with alternating signs in 4 points of [0, 8]."""
    x = np.linspace(0, 8, 400001)
    c0, c2, c4 = SILU_POLYNOMIAL
    error = x / (1 + np.exp(-x)) - (x / 2 + c0 + c2 * x**2 + c4 * x**4)
    largest = np.abs(error).max()
    assert 0.1944 < largest < 0.1945
    signs = [int(np.sign(e)) for e in error[np.abs(error) > largest * (1 - 1e-6)]]
    assert [s for i, s in enumerate(signs) if i == 0 or s != signs[i - 1]] in ([1, -1, 1, -1], [-1, 1, -1, 1])
    for edge, tail in ((-8.5, 0.0), (8.5, 8.5)):
        assert FORMULAS["SiluPolynomial"].value(np, np.array(edge), {}) == tail
