"""Hostile files in our `xir`, `vart` and graph runner: whatever is changed, they answer, or raise a typed error of one line. Asked: all that reading has,
every runner, one job of each, the graph runner."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from vart_build import make_build

from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.graph_runner import GraphRunner
from npuforge.compile.ir.errors import NpuforgeError
from npuforge.compile.xir.model import DATA_TYPES, Attr, Attrs, XModel, XOp, XSubgraph, from_message, to_message
from npuforge.compile.xir.reader import read_xmodel

INTEGERS = (0, -1, 1, 2, 3, 7, 100, 1 << 16, (1 << 31) - 1, -(1 << 31))
NAMES = ("", "root", "x", "é", "DPU", "CPU", "USER", "shape", "scale", "zero_point", "fix_point", "mean")
OTHERS = (
    *(Attr("int32", 3), Attr("string", "x"), Attr("double", 0.5), Attr("int32_vec", [1, 2]), Attr("double_vec", [0.5])),
    *(Attr("bool", True), Attr("bytes", b"xy"), Attr("string_vec", ["a"]), Attr("map_string_2_string", {"run": "x"})),
)
TYPES = (
    "identity",
    "transpose",
    "reshape",
    "fix2float",
    "npuforge::Dequantize",
    "npuforge::Cast",
    "onnx::Softmax",
    "softmax",
)


def value(rng: random.Random, attr: Attr) -> Attr:
    """Another value of the same wire type."""
    pools: dict[str, tuple[Any, ...]] = {
        "int32": INTEGERS,
        "string": (*NAMES, "FLOAT32", "XINT8", "INT64"),
        "bool": (False, True),
        "double": (0.0, -1.0, 1e300, float("nan"), float("inf")),
    }
    if attr.kind in pools:
        return Attr(attr.kind, rng.choice(pools[attr.kind]))
    if attr.kind in ("int32_vec", "double_vec", "string_vec") and isinstance(attr.value, list):
        values = list(attr.value)
        if values and rng.random() < 0.4:
            values.pop(rng.randrange(len(values)))
        elif values and rng.random() < 0.6:
            values[rng.randrange(len(values))] = rng.choice(pools[attr.kind.removesuffix("_vec")])
        else:
            values.append(rng.choice(pools[attr.kind.removesuffix("_vec")]))
        return Attr(attr.kind, values)
    return attr


def change_attrs(rng: random.Random, attrs: Attrs) -> None:
    """One less, one of another kind or value, or one more."""
    name = rng.choice(sorted(attrs)) if attrs else rng.choice(NAMES[1:])
    kind = rng.random()
    if kind < 0.2:
        attrs.pop(name, None)
    elif kind < 0.7 and name in attrs:
        attrs[name] = value(rng, attrs[name])
    else:
        attrs[name if kind < 0.9 else rng.choice(NAMES[1:])] = rng.choice(OTHERS)


def change_op(rng: random.Random, model: XModel, op: XOp) -> None:
    """Type, tensor, arguments."""
    kind, tensor = rng.randrange(8), op.tensor
    if kind == 0:
        op.type = rng.choice((*TYPES, rng.choice(model.ops).type))
    elif kind == 1:
        tensor.data_type = rng.choice(DATA_TYPES[:-1])
    elif kind == 2:
        tensor.bit_width = rng.choice((1, 3, 4, 8, 16, 24, 32, 64))
    elif kind == 3:
        tensor.shape = [rng.choice((1, 2, 3, 6, 16)) for _ in range(rng.randrange(6))]
    elif kind == 4:
        tensor.name = rng.choice((*NAMES[1:], f"{tensor.name}'"))
    elif kind == 5 and op.args:
        producers = rng.choice(op.args)[1]
        if producers and rng.random() < 0.5:
            producers.pop()
        else:
            producers.append(rng.choice(model.ops).name)
    elif kind == 6 and op.args and rng.choice(op.args)[1]:
        op.args[0] = (op.args[0][0], [rng.choice(model.ops).name])
    else:
        change_attrs(rng, tensor.attrs)


def change_subgraph(rng: random.Random, model: XModel, subgraph: XSubgraph) -> None:
    """Ops and children elsewhere or not at all."""
    kind = rng.randrange(5)
    if kind == 0:
        rng.shuffle(subgraph.ops)
    elif kind == 1 and subgraph.ops:
        subgraph.ops.pop(rng.randrange(len(subgraph.ops)))
    elif kind == 2:
        subgraph.ops.append(rng.choice(model.ops).name)
    elif kind == 3 and subgraph.children:
        subgraph.children.pop(rng.randrange(len(subgraph.children)))
    elif subgraph.children:
        rng.shuffle(subgraph.children)


def change(rng: random.Random, model: XModel) -> None:
    """One change of the file."""
    assert model.root is not None
    # half of the changes hit what is beside the NPU's own program, which only the vendor's tools read
    outer = {
        name
        for child in model.root.children
        if child.get("device") != "DPU"
        for leaf in child.leaves()
        for name in leaf.ops
    }
    op = (
        rng.choice([o for o in model.ops if o.name in outer] or model.ops)
        if rng.random() < 0.7
        else rng.choice(model.ops)
    )
    subgraph = rng.choice(list(model.root.walk()) if rng.random() < 0.4 else model.root.children or [model.root])
    kind = rng.random()
    if kind < 0.3:
        change_attrs(rng, op.attrs)
    elif kind < 0.7:
        change_op(rng, model, op)
    elif kind < 0.85:
        change_attrs(rng, subgraph.attrs)
    elif kind < 0.95:
        change_subgraph(rng, model, subgraph)
    else:
        model.ops.remove(op)


def one_job(runner: Any) -> None:
    """Zeros in, whatever comes out."""
    if isinstance(runner, vart.RunnerExt):
        job = runner.execute_async(runner.get_inputs(), runner.get_outputs())
        runner.wait(job)
        runner.message(job)
    for tensor in (*runner.get_input_tensors(), *runner.get_output_tensors()):
        if tensor.has_attr("fix_point"):
            vart.get_input_scale(tensor)
            vart.get_output_scale(tensor)


def ask(path: Path) -> str:
    """All that an application may ask about a file. The first typed error ends a question, not the rest."""
    try:
        graph = xir.Graph.deserialize(path)
    except NpuforgeError as error:
        assert str(error) and "\n" not in str(error)
        return "refused"
    questions: list[Any] = [lambda: [str(op) + repr(op.get_output_tensor()) for op in graph.get_ops()]]
    questions += [lambda t=t: (t.get_element_num(), t.get_data_size(), str(t)) for t in graph.get_tensors()]
    root = graph.get_root_subgraph()
    for subgraph in (root, *root.toposort_child_subgraph()):
        questions += [subgraph.get_input_tensors, subgraph.get_output_tensors, subgraph.__str__, subgraph.get_ops]
        if not subgraph.has_attr("device") or subgraph.get_attr("device") != "USER":
            questions.append(lambda s=subgraph: one_job(vart.RunnerExt.create_runner(s, "run")))
        for leaf in subgraph.toposort_child_subgraph() if subgraph is not root else ():
            questions += [leaf.get_input_tensors, leaf.get_output_tensors]
    questions.append(lambda: one_job(GraphRunner.create_graph_runner(graph)))
    answers = set()
    for question in questions:
        try:
            question()
            answers.add("answered")
        except NpuforgeError as error:
            assert str(error) and "\n" not in str(error)
            answers.add("error")
    return "answered" if answers == {"answered"} else "errors"


@pytest.fixture(scope="module", params=["pow2", "fine", "bf16"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> XModel:
    return read_xmodel(make_build(tmp_path_factory.mktemp(request.param), request.param).model)


def check(model: XModel, rounds: int, seed: int, path: Path) -> None:
    found = dict.fromkeys(("refused", "errors", "answered"), 0)
    for number in range(rounds):
        rng = random.Random((seed << 32) + number)
        changed = from_message(to_message(model))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            change(rng, changed)
        path.write_bytes(to_message(changed).SerializeToString())
        try:
            found[ask(path)] += 1
        except Exception:
            print(f"seed {seed}, number {number}")
            raise
    print(rounds, "files:", found)
    assert all(found.values())  # the changes reach the reader's rules and the runners'


def test_the_file_itself_answers(model: XModel, tmp_path: Path) -> None:
    path = tmp_path / "net.xmodel"
    path.write_bytes(to_message(model).SerializeToString())
    assert ask(path) == "answered"


def test_changed_files(model: XModel, tmp_path: Path) -> None:
    check(model, 60, 0, tmp_path / "net.xmodel")


@pytest.mark.full
def test_three_thousand_changed_files(model: XModel, tmp_path: Path) -> None:
    check(model, 3000, 1, tmp_path / "net.xmodel")
