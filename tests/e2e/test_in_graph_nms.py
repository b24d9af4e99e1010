"""A network with NonMaxSuppression inside: compiles whole, the `.xmodel` declares upper bounds of the open shapes, the runtime gives the rows that survive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from vart_build import check_on_the_vendors_vart

from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.open_rows import filling, used_part
from npuforge.board_runtime.session import Session
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.pipeline import compile_model
from npuforge.compile.reference import NodesExecutor
from npuforge.compile.xir.bounds import bounded, output_bounds
from npuforge.compile.xir.builder import plain_tensor
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels.arch import load
from npuforge.quant.executor import IntegerExecutor
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.columns import DeviceColumn

CLASSES, CELLS, LIMIT = 2, 64, 5


def network(threshold: float) -> onnx.ModelProto:
    """x → convolution → boxes [1, 64, 4] and scores [1, 2, 64] → NMS → rows (batch, class, box) and their boxes [N, 4]."""
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(4 + CLASSES, 3, 4, 4)).astype(np.float32) * 0.2
    constants = {
        "w": weight,
        "b": np.array([1, 1, 4, 4, 0, 0], np.float32),
        "flat": np.array([1, 4 + CLASSES, CELLS]),
        "parts": np.array([4, CLASSES]),
        "grid": np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(1, CELLS, 2).astype(np.float32)
        @ np.eye(2, 4, dtype=np.float32),
        "limit": np.array([LIMIT]),
        "overlap": np.array([0.4], np.float32),
        "threshold": np.array([threshold], np.float32),
        "two": np.array(2),
    }
    nodes = [
        ("Conv", ["x", "w", "b"], ["c"], {"kernel_shape": [4, 4], "strides": [4, 4]}),
        ("Reshape", ["c", "flat"], ["f"], {}),
        ("Split", ["f", "parts"], ["raw", "logits"], {"axis": 1}),
        ("Sigmoid", ["logits"], ["scores"], {}),
        ("Transpose", ["raw"], ["rows"], {"perm": [0, 2, 1]}),
        ("Add", ["rows", "grid"], ["boxes"], {}),
        (
            "NonMaxSuppression",
            ["boxes", "scores", "limit", "overlap", "threshold"],
            ["picked"],
            {"center_point_box": 1},
        ),
        ("Gather", ["picked", "two"], ["index"], {"axis": 1}),
        ("Gather", ["boxes", "index"], ["kept"], {"axis": 1}),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, i, o, name=f"{op}_{o[0]}", **a) for op, i, o, a in nodes],
        "with_nms",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 32, 32))],
        [
            helper.make_tensor_value_info("picked", TensorProto.INT64, None),
            helper.make_tensor_value_info("kept", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def network_of_two_children() -> onnx.ModelProto:
    """NonZero finds places in the first CPU child; the second, behind another convolution, reads them as rows and as columns."""
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"kernel_shape": [1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("Softmax", ["r"], ["s"], {"axis": 1}),
        ("Sub", ["s", "level"], ["above"], {}),
        ("Relu", ["above"], ["kept"], {}),
        ("NonZero", ["kept"], ["places"], {}),
        ("Transpose", ["places"], ["rows"], {"perm": [1, 0]}),
        ("Cast", ["places"], ["columns"], {"to": TensorProto.FLOAT}),
        ("Conv", ["s", "w"], ["d"], {"kernel_shape": [1, 1]}),
        ("Relu", ["d"], ["e"], {}),
        ("GatherND", ["e", "rows"], ["values"], {}),
        ("ReduceMax", ["e"], ["most"], {"keepdims": 0}),
        ("Mul", ["columns", "most"], ["scaled"], {}),
    ]
    random = np.random.default_rng(3)
    constants = {"w": random.normal(size=(16, 16, 1, 1)).astype(np.float32), "level": np.array(0.3, np.float32)}
    graph = helper.make_graph(
        [helper.make_node(op, i, o, name=f"{op}_{o[0]}", **a) for op, i, o, a in nodes],
        "two_children",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 6, 7))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("values", "scaled")],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("threshold", [0.45, 2.0], ids=["some boxes", "no box"])
def test_compiles_and_runs(tmp_path: Path, threshold: float) -> None:
    import cv2

    path = tmp_path / "net.onnx"
    onnx.save(network(threshold), path)
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    assert cv2.imwrite(str(tmp_path / "a.png"), image)
    _, ctx = compile_model(Options(path, load("nf-b1024"), tmp_path / "build", calibration=[tmp_path / "a.png"]))
    qgraph = ctx.qgraph
    assert qgraph is not None and qgraph.graph.tensors["picked"].shape == (-1, 3)
    ops = {op.tensor.name: op for op in read_xmodel(tmp_path / "build" / "model.xmodel").ops}
    picked = ops["picked"]  # what leaves a child begins with the batch
    assert picked.tensor.shape == [1, CLASSES * LIMIT, 3] and picked.get("npuforge_open_shape") == [1, -1, 3]
    assert ops["kept"].tensor.shape == [1, CLASSES * LIMIT, 4]
    assert "npuforge_open_shape" not in ops["boxes"].attrs
    session = Session(tmp_path / "build", device="sim", threads=1)
    found = session.run({"x": image[np.newaxis]})
    expected = IntegerExecutor(qgraph, NodesExecutor(qgraph.graph)).run_outputs(image[np.newaxis])
    assert (len(expected["picked"]) == 0) == (threshold > 1)
    np.testing.assert_array_equal(found["picked"], expected["picked"])
    np.testing.assert_allclose(found["kept"], expected["kept"], rtol=1e-5, atol=1e-5)


def through_vart(build: Path, feed: np.ndarray, runners: dict[str, vart.Runner] | None = None) -> dict[str, np.ndarray]:
    """Outputs of the children one after the other on our vart, in arrays as the file declares them, which held something before. `runners`: by child, those of
    earlier calls."""
    runners = {} if runners is None else runners
    values = {"x": feed}
    for child in xir.Graph.deserialize(build / "model.xmodel").get_root_subgraph().toposort_child_subgraph():
        if child.get_attr("device") == "USER":
            continue
        name = child.get_name()
        runner = runners[name] = runners.get(name) or vart.Runner.create_runner(child, "run")
        made = {t.name: np.full(t.dims, 77, t.dtype.removeprefix("x")) for t in runner.get_output_tensors()}
        job = runner.execute_async([values[t.name] for t in runner.get_input_tensors()], list(made.values()))
        assert job[1] == 0 and runner.wait(job) == 0, runner.message(job)
        values |= made
    return values


@pytest.mark.parametrize("threshold", [0.75, 2.0], ids=["some boxes", "no box"])
def test_rows_and_no_rows_on_vart(tmp_path: Path, threshold: float) -> None:
    """An application tells what is there from what is left over: the rows are the session's, -1 the rest."""
    onnx.save(network(threshold), tmp_path / "net.onnx")
    x = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x)
    options = Options(tmp_path / "net.onnx", load("nf-b1024"), tmp_path / "build", calibration=[tmp_path / "a.npz"])
    _, ctx = compile_model(options)
    assert ctx.qgraph is not None
    expected = Session(tmp_path / "build").run({"x": x})
    integers = IntegerExecutor(ctx.qgraph)
    found = through_vart(tmp_path / "build", np.ascontiguousarray(integers.quantise_input("x", x)))
    count = len(expected["picked"])
    assert (count == 0) == (threshold > 1) and count < CLASSES * LIMIT
    assert found["picked"].shape == (1, CLASSES * LIMIT, 3) and found["kept"].shape == (1, CLASSES * LIMIT, 4)
    np.testing.assert_array_equal(found["picked"][0, :count], expected["picked"])
    np.testing.assert_array_equal(found["kept"][:, :count], expected["kept"])
    assert (found["picked"][0, count:] == -1).all() and (found["kept"][:, count:] == -1).all()
    for name, shape in (("picked", (1, -1, 3)), ("kept", (1, -1, 4))):
        np.testing.assert_array_equal(used_part(found[name], shape).reshape(expected[name].shape), expected[name])


@pytest.mark.parametrize("children", [1, 2])
def test_check_on_the_vendors_vart(children: int, tmp_path: Path) -> None:
    """Of one and of two CPU children."""
    model = network(0.75) if children == 1 else network_of_two_children()
    onnx.save(model, tmp_path / "net.onnx")
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=shape).astype(np.float32))
    options = Options(tmp_path / "net.onnx", load("nf-b1024"), tmp_path / "build", calibration=[tmp_path / "a.npz"])
    compile_model(options)
    lines = check_on_the_vendors_vart(tmp_path / "build")
    assert [line.split(":")[0] for line in lines] == [v.name for v in model.graph.output]
    assert all("as expected" in line for line in lines)


def test_an_open_axis_that_is_not_the_first(tmp_path: Path) -> None:
    """NonZero gives [rank, count]: every row of it begins where the array has it."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "c", kernel_shape=[1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "r"),
        helper.make_node("NonZero", ["r"], ["places"], "places"),
    ]
    graph = helper.make_graph(
        nodes,
        "places",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, 3, 4))],
        [helper.make_tensor_value_info("places", TensorProto.INT64, None)],
        [numpy_helper.from_array(np.array([[[[1.0]], [[0.5]]]], np.float32), "w")],
    )
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "net.onnx")
    x = np.random.default_rng(1).normal(size=(1, 2, 3, 4)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x)
    options = Options(tmp_path / "net.onnx", load("nf-b1024"), tmp_path / "build", calibration=[tmp_path / "a.npz"])
    _, ctx = compile_model(options)
    assert ctx.qgraph is not None
    feed = np.ascontiguousarray(IntegerExecutor(ctx.qgraph).quantise_input("x", x))
    expected = Session(tmp_path / "build").run({"x": x})["places"]
    found = through_vart(tmp_path / "build", feed)["places"]
    assert found.shape == (1, 4, 12) and 0 < expected.shape[1] < 12 and expected.any()
    np.testing.assert_array_equal(found[0, :, : expected.shape[1]], expected)
    assert (found[0, :, expected.shape[1] :] == -1).all()


def test_rows_that_a_later_child_reads(tmp_path: Path) -> None:
    """It reads those that are there, run after run, whatever was there in the one before."""
    onnx.save(network_of_two_children(), tmp_path / "net.onnx")
    images = [np.random.default_rng(n).normal(0, 2.0 - n, (1, 16, 6, 7)).astype(np.float32) for n in range(3)]
    for n, x in enumerate(images):
        np.savez(tmp_path / f"{n}.npz", x=x)
    samples = [tmp_path / f"{n}.npz" for n in range(3)]
    options = Options(tmp_path / "net.onnx", load("nf-b1024"), tmp_path / "build", calibration=samples)
    _, ctx = compile_model(options)
    assert ctx.qgraph is not None
    partitions = [p.device for p in ctx.qgraph.graph.partitions]
    assert partitions == ["NPU", "CPU", "NPU", "CPU"]
    integers, session, counts = IntegerExecutor(ctx.qgraph), Session(tmp_path / "build"), set()
    runners: dict[str, vart.Runner] = {}
    for x in (images[1], images[0], images[2], images[0]):
        expected = session.run({"x": x})
        found = through_vart(tmp_path / "build", np.ascontiguousarray(integers.quantise_input("x", x)), runners)
        count = len(expected["values"])
        counts.add(count)
        for name, shape in (("values", (1, -1)), ("scaled", (1, 4, -1))):
            np.testing.assert_array_equal(used_part(found[name], shape)[0], expected[name])
            assert found[name].shape[-1] == 16 * 6 * 7
    assert len(counts) == 3 and 0 in counts


BEHIND_ROWS: dict[str, list[tuple[str, list[str], dict[str, object]]]] = {
    **{op: [(op, ["f"], {})] for op in ("Neg", "Relu", "LeakyRelu", "Sigmoid", "Abs", "Exp", "Softplus", "HardSwish")},
    **{
        f"{op} {name}": [(op, ["f", name], {})]
        for op in ("Add", "Sub", "Mul", "Div", "Pow")
        for name in ("two", "column")
    },
    **{f"{op} two": [(op, ["f", "two"], {})] for op in ("Max", "Min", "PRelu")},
    "Clip": [("Clip", ["f", "two"], {})],
    "Softmax": [("Softmax", ["f"], {"axis": 0})],
    "Concat": [("Concat", ["f", "f"], {"axis": 1})],
    "Transpose": [("Transpose", ["f"], {"perm": [1, 0]})],
    "ReduceMax": [("ReduceMax", ["f"], {"axes": [0]})],
    "Mul and Add": [("Mul", ["f", "column"], {}), ("Add", ["p0", "two"], {}), ("Relu", ["p1"], {})],
    "Unsqueeze": [("Unsqueeze", ["f", "axes"], {}), ("Mul", ["p0", "two"], {}), ("Neg", ["p1"], {})],
}


@pytest.mark.parametrize("name", BEHIND_ROWS)
def test_operators_behind_rows(name: str, tmp_path: Path) -> None:
    """On [2, rows] in float32, whose axis 1 is open: compiles, and the session gives what ONNX Runtime does."""
    nodes = [helper.make_node("NonZero", ["x"], ["n"], "n"), helper.make_node("Cast", ["n"], ["f"], "f", to=1)]
    steps = BEHIND_ROWS[name]
    for number, (op, inputs, attrs) in enumerate(steps):
        output = "y" if number == len(steps) - 1 else f"p{number}"
        nodes.append(helper.make_node(op, inputs, [output], f"node{number}", **attrs))
    constants = {"two": np.float32(2), "column": np.float32([[3], [0.5]]), "axes": np.array([0])}
    graph = helper.make_graph(
        nodes,
        "behind_rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    x = np.random.default_rng(4).integers(0, 2, (3, 4)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x)
    compile_model(
        Options(tmp_path / "net.onnx", load("nf-b1024"), tmp_path / "build", calibration=[tmp_path / "a.npz"])
    )
    expected = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"]).run(
        ["y"], {"x": x}
    )
    np.testing.assert_allclose(Session(tmp_path / "build").run({"x": x})["y"], expected[0], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("op", "limits", "wrong"),
    [
        ("Slice", ([-2], [2], [0]), True),  # of six rows none, of three one
        ("Slice", ([3], [-4], [0], [-1]), True),
        ("Slice", ([1], [4], [0]), False),
        ("Slice", ([0], [-1], [0]), False),
        ("Slice", ([-1], [-9], [0], [-1]), False),
        ("Slice", ([-2], [2], [1]), False),
        ("Split", ([2, 3],), True),
        ("Split", ([2, 4],), False),
    ],
)
def test_rows_cut_from_their_end(op: str, limits: tuple[list[int], ...], wrong: bool) -> None:
    """Where fewer rows leave more than the most there can be, or only some numbers of rows can be cut, the bound is none."""
    constants = {f"c{i}": np.array(values) for i, values in enumerate(limits)}
    parts = 2 if op == "Split" else 1
    node = Node("cut", op, ["x", *constants], [f"y{i}" for i in range(parts)], {"axis": 0} if op == "Split" else {})
    given = {"x": (-1, 4), **{f"y{i}": (-1, 4) for i in range(parts)}}
    tensors = {name: TensorInfo(name, shape, "float32") for name, shape in given.items()}
    tensors |= {name: TensorInfo(name, value.shape, "int64") for name, value in constants.items()}
    bounds = tensors | {"x": TensorInfo("x", (6, 4), "float32")}
    graph = Graph("cut", [node], tensors, constants, ["x"], [f"y{i}" for i in range(parts)], 13)
    if wrong:
        with pytest.raises(UnsupportedError, match=r"cuts rows whose number the data decide, up to \[6, 4\]"):
            output_bounds(node, graph, bounds)
    else:
        assert all(0 < rows <= 6 for rows, _ in output_bounds(node, graph, bounds))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=4), st.integers(0, 9)
)
def test_the_used_part(axes: list[tuple[int, int, bool]], seed: int) -> None:
    """(size, room beyond it, whether it is open) of every axis."""
    held = tuple(size if is_open else size + 1 for size, _, is_open in axes)
    room = tuple(size + more if is_open else size + 1 for size, more, is_open in axes)
    values = np.random.default_rng(seed).integers(0, 5, held)
    array = np.full(room, -1)
    array[tuple(slice(size) for size in held)] = values
    found = used_part(array, [-1 if is_open else size + 1 for size, _, is_open in axes])
    if values.size:
        np.testing.assert_array_equal(found, values)
    else:
        assert found.size == 0


def test_the_filling() -> None:
    """-1; of bool tensors, which are uint8 with an attribute, 255, so that rows that are False throughout are rows; of other uint8 tensors 0."""
    tensors = [plain_tensor("t", [3], dtype) for dtype in ("float32", "int64", "int8", "bool", "uint8")]
    assert [filling(tensor) for tensor in tensors] == [-1, -1, -1, 255, 0]
    np.testing.assert_array_equal(used_part(np.array([1, 0, 255], np.uint8), [-1], 255), [1, 0])


def test_the_sample_has_rows(tmp_path: Path) -> None:
    """Nothing is to be seen on the first image; where none shows anything a notice says so, and so does the check."""
    onnx.save(network(0.6), tmp_path / "net.onnx")
    samples = [tmp_path / f"{name}.npz" for name in ("black", "full")]
    record = Preprocess(32, 32, mean=[0.0] * 3, std=[100.0] * 3, input="x")
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 32, 32)).astype(np.float32) / 100
    for path, factor in zip(samples, (0, 1), strict=True):
        np.savez(path, x=factor * image)
    for number, given_samples in enumerate((samples, samples[:1])):
        folder = tmp_path / f"build{number}"
        options = Options(tmp_path / "net.onnx", load("nf-b1024"), folder, preprocess=record, calibration=given_samples)
        _, ctx = compile_model(options)
        build = open_build(folder)
        checked = {c.name: c for c in build.check_sample(DeviceColumn(build, "sim"))}
        assert build.manifest["sample"]["origin"] == ("full.npz", "black.npz")[number]
        assert all(c.right for c in checked.values())
        text = str(checked["picked"])
        assert ("all" in text and "values equal" in text) if number == 0 else "nothing was compared" in text
        assert any("gives no rows" in notice for notice in ctx.notices) == (number == 1)


def test_a_shape_without_a_bound_is_refused() -> None:
    """Range up to a computed number."""
    node = Node("count", "Range", ["a", "b", "c"], ["r"], sources=["count"])
    tensors = {t: TensorInfo(t, (), "int64") for t in "abc"} | {"r": TensorInfo("r", (-1,), "int64")}
    with pytest.raises(UnsupportedError, match=r"'count' \(Range\).*'r' depends on the data without an upper bound"):
        bounded(Graph("g", [node], tensors, {}, ["a", "b", "c"], ["r"], 18))
