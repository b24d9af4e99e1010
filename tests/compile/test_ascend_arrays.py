"""`--target ascend`: operators with an array program. The program's meaning and the generated TBE source, run on a stand-in for TBE in numpy and on Apache TVM,
against the operators' own float64 references; nothing here was run on CANN itself. TVM (`pip install apache-tvm`) is not among the kit's requirements: without it
those tests are skipped.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tbe_stand_in import as_tensor, install, numpy_modules, run_tvm, tvm_modules

from npuforge.compile.ascend import aicpu, flow, tbe_arrays
from npuforge.compile.ascend.array_prototype import prototype
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import InstructionError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import arch
from npuforge.hw_kernels.dsl import array as k
from npuforge.hw_kernels.levels import folder, is_standard
from npuforge.hw_kernels.operator import case_graph, case_inputs, registry
from npuforge.hw_kernels.rotated import overlap

SUBJECTS = [
    (name, number)
    for name, op in sorted(registry().items())
    if isinstance(op.dsl, k.ArrayKernel)
    for number in range(len(op.cases))
]
REFUSED = "expected inputs of known size with at least one element"


def subject(name: str, number: int) -> tuple[Node, list[Any], list[np.ndarray]]:
    """Node, float32 or int64 inputs, float64 reference."""
    case = registry()[name].cases[number]
    node, inputs = case_graph(name, case, 7).nodes[0], case_inputs(case, 7)
    inputs = [np.ascontiguousarray(x, np.float32 if x.dtype.kind == "f" else np.int64) for x in inputs]
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    return node, registry()[name].completed(inputs), registry()[name].reference(node, wide)


def operator_of(name: str, node: Node, inputs: list[Any]) -> tbe_arrays.ArrayOperator:
    own = registry()[name]
    assert isinstance(own.dsl, k.ArrayKernel)
    domain, kind = name.split("::")
    proto = helper.make_node(kind, [f"x{i}" for i in range(len(inputs))], node.outputs, domain=domain, **node.attrs)
    types = [x.dtype.name for x in inputs]
    outputs = (own.output_types(node, types) * 3)[: len(node.outputs)]
    made = tbe_arrays.ArrayOperator(domain, kind, own.dsl, types, outputs, aicpu.attribute_kinds([proto]))
    made.add([x.shape for x in inputs], node.attrs)
    return made


def sized(results: list[np.ndarray], trace: Any) -> list[np.ndarray]:
    """Outputs as CANN would hand them on: those that the data size cut to what the shape tensor says."""
    if not any(r.count >= 0 for r in trace.results):
        return results
    *outputs, words = results
    assert words.dtype == np.int32
    for i, row in enumerate(np.asarray(words).reshape(-1, tbe_arrays.SHAPE_WORDS)):
        rank, dims = int(row[0]), row[1:]
        assert rank == outputs[i].ndim and not dims[rank:].any()
        outputs[i] = np.asarray(outputs[i])[tuple(slice(0, int(d)) for d in dims[:rank])]
    return outputs


def compare(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> None:
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        assert np.shape(f) == np.shape(e)
        if np.asarray(f).dtype == np.int64:
            np.testing.assert_array_equal(f, e)
        else:
            np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "number"), SUBJECTS)
@pytest.mark.parametrize("backend", ["numpy", "tvm"])
def test_every_case_against_the_reference(
    name: str, number: int, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, inputs, expected = subject(name, number)
    program = registry()[name].dsl
    try:
        trace = program.trace([x.shape for x in inputs], node.attrs)
    except InstructionError as refusal:
        assert REFUSED in str(refusal)
        return
    operator, built = operator_of(name, node, inputs), []  # type: ignore[var-annotated]
    install(monkeypatch, tvm_modules(built) if backend == "tvm" else numpy_modules(built))
    space: dict[str, Any] = {}
    exec(compile(tbe_arrays.source(operator), operator.file, "exec"), space)
    values = [node.attrs[n] for n in sorted(operator.attributes)]
    outputs = [{"shape": np.shape(e)} for e in expected]
    if backend == "numpy":
        with np.errstate(all="ignore"):
            found = space[f"{operator.file}_compute"](*map(as_tensor, inputs), *outputs, *values)
    else:
        described = [{"shape": x.shape, "dtype": x.dtype.name} for x in inputs]
        space[operator.file](*described, *outputs, *values)
        found = run_tvm(built[0][1]["tensor_list"], inputs)
    compare(sized(list(found), trace), expected, 2e-5)


def test_every_custom_operator_has_a_program() -> None:
    """TBE source for each custom operator."""
    own = {n: op for n, op in registry().items() if not is_standard(op) and folder(op) is not None}
    without = {n for n, op in own.items() if flow.program_of(op) is None}
    assert len(own) > 15 and without == set()


def angle(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=32)


@given(st.lists(st.tuples(angle(-1000, 1000), angle(-1000, 1000)), min_size=1, max_size=20))
@settings(deadline=None, max_examples=200)
def test_sine_cosine_and_arc_tangent(pairs: list[tuple[float, float]]) -> None:
    x, y = np.array(pairs).T
    trace = k.array_kernel(lambda a, b: (k.vsin(a), k.vcos(a), k.vatan2(a, b))).trace([x.shape, y.shape])
    for dtype, tolerance in ((np.float64, 1e-11), (np.float32, 6e-7)):
        given_x, given_y = x.astype(dtype).astype(np.float64), y.astype(dtype).astype(np.float64)
        found = trace.meaning([x, y], dtype)
        right = (np.sin(given_x), np.cos(given_x), np.arctan2(given_x + 0.0, given_y + 0.0))
        for f, r in zip(found, right, strict=True):
            np.testing.assert_allclose(f, r, atol=tolerance)


side = st.one_of(st.just(0.0), angle(-9, -0.0625), angle(0.0625, 40))
boxes = st.lists(
    st.tuples(angle(-20, 20), angle(-20, 20), side, side, angle(-7, 7)), min_size=1, max_size=4
)  # fmt: skip


@given(boxes, boxes, st.sampled_from([0.0, np.pi / 4, np.pi / 2, np.pi]))
@settings(deadline=None, max_examples=200)
def test_overlaps_of_boxes_however_they_lie(first: list[Any], second: list[Any], turn: float) -> None:
    """Also of each box with itself, turned: edges that coincide, corners on edges."""
    a = np.array(first)
    b = np.concatenate([np.array(second), a + np.array([0, 0, 0, 0, turn])])
    found = registry()["npuforge::RotatedIou"].dsl.trace([a.shape, b.shape]).meaning([a, b])[0]
    right = np.array([[overlap(p, q) for q in b] for p in a])
    np.testing.assert_allclose(found, right, rtol=1e-7, atol=1.1e-6)  # what is less than a millionth is none


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_rows_that_the_data_choose(kept: list[bool]) -> None:
    rows = np.arange(2.0 * len(kept)).reshape(-1, 2)
    program = k.array_kernel(lambda x, chosen: k.result(*(lambda r, n: (r, "float32", n))(*k.chosen_rows(x, chosen))))
    found = program.trace([rows.shape, (len(kept),)]).meaning([rows, np.array(kept, np.float64)])[0]
    np.testing.assert_array_equal(found, rows[kept])


def test_what_a_kernel_cannot_refuse_is_nan() -> None:
    csr = registry()["npuforge::CsrMatMul"].dsl.trace([(3, 2), (2,), (2,), (3,)])
    (y,) = csr.meaning([np.ones((3, 2)), np.ones(2), np.array([0, 3]), np.array([0, 1, 2])])
    assert np.isfinite(y[0]).all() and np.isnan(y[1]).all()


@pytest.mark.parametrize("backend", ["numpy", "tvm"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_regions_that_are_none_are_nan(ratio: int, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that is not there, an entry that is no number or infinite."""
    right = [0.0, 2.0, 2.0, 2.0, 2.0, 0.0]
    wrong = [(0, 1.0), (0, -1.0), (0, 0.5), (0, np.nan), (1, np.nan), (3, np.inf), (4, -np.inf), (5, np.nan)]
    regions = np.array([right] * (1 + len(wrong)), np.float32)
    for row, (column, value) in enumerate(wrong, 1):
        regions[row, column] = value
    name, x = "npuforge::RotatedRoiAlign", np.ones((1, 1, 4, 4), np.float32)
    node = Node("n", name, ["x", "regions"], ["y"], {"sampling_ratio": ratio})
    operator, built = operator_of(name, node, [x, regions]), []  # type: ignore[var-annotated]
    install(monkeypatch, tvm_modules(built) if backend == "tvm" else numpy_modules(built))
    space: dict[str, Any] = {}
    exec(compile(tbe_arrays.source(operator), operator.file, "exec"), space)
    output = {"shape": (len(regions), 1, 1, 1)}
    if backend == "numpy":
        with np.errstate(all="ignore"):
            (y,) = space["rotated_roi_align_compute"](as_tensor(x), as_tensor(regions), output, ratio)
    else:
        described = [{"shape": v.shape, "dtype": "float32"} for v in (x, regions)]
        space["rotated_roi_align"](*described, output, ratio)
        (y,) = run_tvm(built[0][1]["tensor_list"], [x, regions])
    assert np.isnan(y[1:]).all() and y[0] == 1.0


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x: x + x, r"test_ascend_arrays.py:\d+: operator: Python's operators are no instructions"),
        (lambda x: k.vadd(x, 3.0), r"vadd: expected an array, found float 3.0"),
        (lambda x: k.vmuls(x, x), r"vmuls: expected a number"),
        (lambda x: k.vadd(x, k.reshape(x, (3, 2))), r"vadd: expected sizes that are equal or 1, found \[2, 3\] and \[3, 2\]"),
        (lambda x: k.vadd(x, k.reshape(x, (6,))), r"vadd: expected arrays with one number of dimensions"),
        (lambda x: k.reshape(x, (4, -1)), r"reshape: expected 6 elements of \[2, 3\]"),
        (lambda x: k.part(x, 1, 2, 5), r"part: expected entries of 3 along axis 1, found 2 to 5"),
        (lambda x: k.reduce_sum(x, 2), r"reduce_sum: expected an axis of 2, found 2"),
        (lambda x: k.concat([x, k.reshape(x, (3, 2))], 0), r"concat: expected shapes equal but for axis 0"),
        (lambda x: k.broadcast(x, (4, 3)), r"broadcast: expected an array that fits \[4, 3\], found \[2, 3\]"),
        (lambda x: k.vcmpsel(x, 0.0, "above", 1.0, 0.0), r"vcmpsel: expected lt, le, gt, ge, eq, ne, found 'above'"),
        (lambda x: k.transpose(x, (0, 2)), r"transpose: expected an order of 2 axes"),
        (lambda x: k.repeat(2, lambda s: [k.reshape(s, (6,))], x), r"repeat: expected states of \[\[2, 3\]\], found \[\[6\]\]"),
        (lambda x: k.broadcast(0.0, (1 << 15, 1 << 14)), r"broadcast: arrays have up to 2\*\*28 elements"),
        (lambda x: k.index(1 << 25), r"index: rows are counted to 2\*\*24"),
        (lambda x: k.gather(k.broadcast(0.0, (1 << 25, 1)), x), r"gather: rows are counted to 2\*\*24"),
        (lambda x: k.matmul(x, x), r"matmul: expected \[B, M, K\] and \[B, K, N\], found \[2, 3\] and \[2, 3\]"),
        (lambda x: np.exp(x), r"numpy.exp: an array has no values while the program is traced"),
        (lambda x: None, r"a program returns arrays, found NoneType"),
        (lambda x: x.shape[5], r"IndexError: tuple index out of range"),
    ],
)  # fmt: skip
def test_mistakes_name_their_line(program: Any, message: str) -> None:
    with pytest.raises(InstructionError, match=message):
        k.array_kernel(program).trace([(2, 3)])


# ---- the whole target
def network(folder: Path, threshold: float, ratio: int, samples: tuple[int, ...] = (2, 6)) -> Options:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("LeakyReluMask", ["x"], ["l", "m"], "leaky", domain="npuforge", alpha=0.2),
        helper.make_node("Add", ["l", "m"], ["sum"], "sum"),
        helper.make_node(
            "YoloDecode", ["sum"], ["boxes", "scores", "classes"], "decode", domain="npuforge",
            anchors=[4.0, 5.0], strides=[8], num_classes=2, score_threshold=threshold,
        ),
        helper.make_node(
            "RotatedRoiAlign", ["l", "rois"], ["crops"], "crop", domain="npuforge",
            output_height=2, output_width=2, sampling_ratio=ratio,
        ),
    ]  # fmt: skip
    inputs = [value("x", TensorProto.FLOAT, [1, 7, 4, 5]), value("rois", TensorProto.FLOAT, list(samples))]
    outputs = [value(n, TensorProto.FLOAT, None) for n in ("boxes", "scores", "classes", "crops")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "net.onnx")
    return Options(folder / "net.onnx", arch.load("nf-b1024"), folder / "out")


def test_files_and_the_nodes_that_a_program_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    build = flow.compile_for_ascend(network(tmp_path, 0.25, 2, (4_000_000, 6)), "Ascend310P3")
    made = tmp_path / "out"
    assert set(build.operators) == {f"npuforge::{n}" for n in ("LeakyReluMask", "YoloDecode", "RotatedRoiAlign")}
    assert list(build.on_ai_cpu) == ["npuforge::RotatedRoiAlign"]
    assert "node 'crop'" in build.on_ai_cpu["npuforge::RotatedRoiAlign"]
    assert "arrays have up to 2**28 elements" in build.on_ai_cpu["npuforge::RotatedRoiAlign"]
    files = {p.name for p in made.iterdir()}
    assert {
        f"{op}{end}" for op in ("yolo_decode", "leaky_relu_mask") for end in (".py", ".ini", "_plugin.cc", "_proto.cc")
    } <= files
    assert {aicpu.HEADER, aicpu.PROTO, aicpu.KERNELS} <= files
    assert not (made / "rotated_roi_align.py").exists()
    lines = (made / "yolo_decode.ini").read_text().splitlines()
    assert "output2.outputShapeDependOnCompute=true" in lines and "attr_anchors.type=listFloat" in lines
    assert "input0.dtype=float" in lines and "opFile.value=yolo_decode" in lines
    assert "ImplyType::TVM" in (made / "yolo_decode_plugin.cc").read_text()
    assert "ImplyType::AI_CPU" in (made / "rotated_roi_align_plugin.cc").read_text()
    kernels = (made / aicpu.KERNELS).read_text()
    assert "RotatedRoiAlignCpuKernel" in kernels and "YoloDecodeCpuKernel" not in kernels


@pytest.mark.parametrize("ratio", [0, 2])
def test_all_nodes_have_source_where_sizes_are_given(ratio: int, tmp_path: Path) -> None:
    build = flow.compile_for_ascend(network(tmp_path, 0.0, ratio), "Ascend310P3")
    assert build.on_ai_cpu == {} and (tmp_path / "out" / "rotated_roi_align.py").exists()
    assert not (tmp_path / "out" / aicpu.KERNELS).exists()


SHAPES = """
#include <cstdio>
int main() {
    ge::Operator op;
    op.tensors["x0"].SetShape(ge::Shape({25, 5}));
    op.tensors["x1"].SetShape(ge::Shape({2, 25}));
    op.floats["iou_threshold"] = {0.3f};
    op.floats["score_threshold"] = {0.2f};
    op.tensors["y0"];
    const auto function = ge::shape_functions().at("RotatedNms");
    if (function(op) != ge::GRAPH_SUCCESS) return 1;
    const auto desc = op.tensors["y0"];
    for (const auto d : desc.GetShape().GetDims()) std::printf("%d ", static_cast<int>(d));
    for (const auto& r : desc.range) std::printf("%d..%d ", static_cast<int>(r.first), static_cast<int>(r.second));
    op.tensors["x1"].SetShape(ge::Shape({3, 25}));
    return desc.GetDataType() == ge::DT_INT64 && function(op) == ge::GRAPH_FAILED ? 0 : 2;
}
"""


def test_shape_function(tmp_path: Path) -> None:
    """Of an output whose size the data tell: an unknown dimension and its range."""
    node, inputs, _ = subject("npuforge::RotatedNms", 0)
    text = prototype(operator_of("npuforge::RotatedNms", node, inputs))
    (tmp_path / "p.cpp").write_text(text + SHAPES)
    stand_ins = Path(__file__).parent / "cann_stand_in"
    words = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{stand_ins}", "p.cpp", "-o", "p"]
    subprocess.run(words, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "p"], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "-1 2 0..50 2..2 "


def test_infinite_attributes_are_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score_threshold of -inf keeps every box."""
    _, inputs, _ = subject("npuforge::RotatedNms", 0)
    node = Node("n", "npuforge::RotatedNms", ["x0", "x1"], ["y"], {"score_threshold": float("-inf")})
    operator = operator_of("npuforge::RotatedNms", node, inputs)
    install(monkeypatch, numpy_modules([]))
    space: dict[str, Any] = {}
    exec(compile(tbe_arrays.source(operator), operator.file, "exec"), space)
    found = space["rotated_nms_compute"](*map(as_tensor, inputs), {"shape": ()}, float("-inf"))
    wide = [x.astype(np.float64) for x in inputs]
    expected = registry()[node.op].reference(node, wide)
    compare(sized(found, next(iter(operator.variants.values()))), expected, 0.0)
    assert "near(attr_score_threshold, -HUGE_VAL)" in prototype(operator)


UNALIGN = """
#include <cstdio>
int main() {
    for (const int channels : {3, 7}) {
        ge::Operator op;
        op.tensors["x0"].SetShape(ge::Shape({2, 4, 5, 16}));
        op.ints["channels"] = {channels};
        op.tensors["y0"];
        if (ge::shape_functions().at("UnalignNhwc16")(op) != ge::GRAPH_SUCCESS) return 1;
        for (const auto d : op.tensors["y0"].GetShape().GetDims()) std::printf("%d ", static_cast<int>(d));
    }
    return 0;
}
"""


def test_shapes_by_attribute(tmp_path: Path) -> None:
    """Two nodes with inputs of one shape, told apart by what their attributes say."""
    inputs = [np.zeros((2, 4, 5, 16), np.float32)]
    operator = operator_of(
        "npuforge::UnalignNhwc16", Node("n", "npuforge::UnalignNhwc16", ["x"], ["y"], {"channels": 3}), inputs
    )
    operator.add([inputs[0].shape], {"channels": 7})
    (tmp_path / "p.cpp").write_text(prototype(operator) + UNALIGN)
    stand_ins = Path(__file__).parent / "cann_stand_in"
    words = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{stand_ins}", "p.cpp", "-o", "p"]
    subprocess.run(words, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "p"], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "2 3 4 5 2 7 4 5 "


@pytest.mark.parametrize("number", range(len(SUBJECTS)))
def test_every_shape_function_compiles(number: int, tmp_path: Path) -> None:
    """And knows the case's shapes: those of the reference, or more where the data tell."""
    name, case = SUBJECTS[number]
    node, inputs, expected = subject(name, case)
    try:
        operator = operator_of(name, node, inputs)
    except InstructionError:
        return
    results = [
        operator.variants[v].operations[r.value].shape for v in operator.variants for r in operator.variants[v].results
    ]
    sized_by_data = [r.count >= 0 for trace in operator.variants.values() for r in trace.results]
    for shape, found, by_data in zip(results, expected, sized_by_data, strict=True):
        assert len(shape) == found.ndim
        assert all(n >= m if by_data else n == m for n, m in zip(shape, found.shape, strict=True))
    (tmp_path / "p.cpp").write_text(prototype(operator))
    words = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run([*words, f"-I{Path(__file__).parent / 'cann_stand_in'}", "p.cpp"], cwd=tmp_path, check=True)


def test_other_shapes_or_attributes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    node, inputs, _ = subject("npuforge::UnalignNhwc16", 0)
    operator = operator_of("npuforge::UnalignNhwc16", node, inputs)
    install(monkeypatch, numpy_modules([]))
    space: dict[str, Any] = {}
    exec(compile(tbe_arrays.source(operator), operator.file, "exec"), space)
    for x, channels in ((inputs[0][:1], 3), (inputs[0], 4)):
        with pytest.raises(RuntimeError, match="UnalignNhwc16: generated for other shapes or attributes"):
            space["unalign_nhwc16_compute"](as_tensor(x), None, channels)
