"""What a concatenation of unlike ranges joins is kept apart: the rewritten graph computes what the first did (float64), is still a placed graph, and no
concatenation on the NPU joins unlike ranges any more."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps import separate_ranges
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.remedies import remedy
from npuforge.compile.steps.separate_ranges import break_chains, separate_unlike
from npuforge.compile.steps.verify import verify
from npuforge.hw_kernels import operator
from npuforge.quant.calibrate import calibrate
from npuforge.quant.mixed_ranges import UNLIKE, like_groups
from npuforge.quant.statistics import Statistics

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
SIDE = 8


def float64(graph: Graph, x: np.ndarray) -> dict[str, np.ndarray]:
    """Every tensor by the operators' float64 meaning."""
    values: dict[str, np.ndarray] = {k: np.asarray(v, np.float64) for k, v in graph.constants.items()}
    values[graph.inputs[0]] = x.astype(np.float64)
    for node in graph.nodes:
        results = operator.get(node).reference(node, [values[t] for t in node.inputs if t])
        values |= dict(zip(node.outputs, results, strict=True))
    return values


class Net:
    """Nodes one by one; `x` has 4 channels."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.channels = {"x": 4}
        self.rng = np.random.default_rng(seed)

    def constant(self, value: Any, dtype: type = np.float32) -> str:
        name = f"const{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, op: str, inputs: list[str], channels: int, **attrs: Any) -> str:
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{op.lower()}{len(self.nodes)}", **attrs))
        self.channels[output] = channels
        return output

    def conv(self, x: str, outputs: int, group: int = 1, size: float = 1.0, kernel: int = 1) -> str:
        inputs = self.channels[x] // group
        weight = size * self.rng.normal(0, 1 / np.sqrt(inputs * kernel**2), (outputs, inputs, kernel, kernel))
        bias = size * self.rng.normal(0, 0.3, outputs)
        shape = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "group": group}
        return self.node("Conv", [x, self.constant(weight), self.constant(bias)], outputs, **shape)

    def part(self, channels: int, size: float) -> str:
        """Values of about this size."""
        return self.conv("x", channels, size=size)

    def concat(self, parts: list[str]) -> str:
        return self.node("Concat", parts, sum(self.channels[p] for p in parts), axis=1)

    def graph(self, outputs: list[str]) -> Graph:
        shown = [helper.make_tensor_value_info(t, TensorProto.FLOAT, None) for t in outputs]
        entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, SIDE, SIDE])
        body = helper.make_graph(self.nodes, "net", [entry], shown, self.constants)
        model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        return partition(fuse(fold(import_onnx(model).graph)))


def gather(n: Net, t: str) -> str:
    order = n.rng.permutation(n.channels[t])[: max(1, n.channels[t] - 1)]
    return n.node("Gather", [t, n.constant(order, np.int64)], len(order), axis=1)


def affine(n: Net, t: str) -> str:
    factor = n.constant(n.rng.uniform(0.5, 2.0, (1, n.channels[t], 1, 1)))
    offset = n.constant(n.rng.normal(0, 0.1, (1, n.channels[t], 1, 1)))
    return n.node("Add", [n.node("Mul", [t, factor], n.channels[t]), offset], n.channels[t])


def prelu(n: Net, t: str) -> str:
    slope = n.constant(n.rng.uniform(0, 1, (n.channels[t], 1, 1)))
    return n.node("PRelu", [t, slope], n.channels[t])


READERS: dict[str, Callable[[Net, str], str]] = {
    "max pool": lambda n, t: n.node("MaxPool", [t], n.channels[t], kernel_shape=[3, 3], pads=[1] * 4),
    "average pool": lambda n, t: n.node("AveragePool", [t], n.channels[t], kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
    "resize": lambda n, t: n.node("Resize", [t, "", n.constant([1.0, 1, 2, 2])], n.channels[t], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    "depthwise": lambda n, t: n.conv(t, n.channels[t], group=n.channels[t], kernel=3),
    "two per channel": lambda n, t: n.conv(t, 2 * n.channels[t], group=n.channels[t]),
    "relu": lambda n, t: n.node("Relu", [t], n.channels[t]),
    "prelu": prelu,
    "sigmoid": lambda n, t: n.node("Sigmoid", [t], n.channels[t]),
    "affine": affine,
    "gather": gather,
    "itself": lambda n, t: n.node("Add", [t, n.node("MaxPool", [t], n.channels[t], kernel_shape=[3, 3], pads=[1] * 4)], n.channels[t]),
    "another": lambda n, t: n.node("Mul", [t, grown(n, n.part(n.channels[t], 1.0), t)], n.channels[t]),
    "one channel": lambda n, t: n.node("Mul", [t, grown(n, n.part(1, 1.0), t)], n.channels[t]),
    "space to depth": lambda n, t: n.node("SpaceToDepth", [t], 4 * n.channels[t], blocksize=2),
    "nested": lambda n, t: n.concat([t, grown(n, n.part(3, 0.1), t)]),
    "convolution": lambda n, t: n.conv(t, 5, kernel=3),
    "curved": lambda n, t: n.node("Sigmoid", [n.conv(t, 5)], 5),
}  # fmt: skip


def grown(n: Net, t: str, like: str) -> str:
    """`t` on a map of the size that `like` has."""
    sizes = n.node("Shape", [like], 0)
    part = n.node("Slice", [sizes, n.constant([2], np.int64), n.constant([4], np.int64)], 0)
    whole = n.node("Concat", [n.constant([1, n.channels[t]], np.int64), part], 0, axis=0)
    attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return n.node("Resize", [t, "", "", whole], n.channels[t], **attrs)


def measured(graph: Graph, seed: int = 1) -> Statistics:
    rng = np.random.default_rng(seed)
    images = [rng.normal(size=(1, 4, SIDE, SIDE)).astype(np.float32) for _ in range(2)]
    return calibrate(graph, images, lambda wanted: GraphExecutor(graph, wanted, ["CPUExecutionProvider"], 1).run)


def check(graph: Graph) -> tuple[Graph, list[str]]:
    """Separates, and asserts what must hold behind it."""
    before = copy.deepcopy(graph)
    notices = separate_unlike(graph, measured(graph))
    verify(graph, "calibrate")
    statistics = measured(graph)
    if break_chains(graph, statistics):
        verify(graph, "calibrate")
        statistics = measured(graph)
    for node in graph.nodes:
        if node.op == "Concat" and node.device == "NPU":
            sizes = [float(np.abs([statistics.tensors[t].low, statistics.tensors[t].high]).max()) for t in node.inputs]
            assert max(sizes) <= UNLIKE * min(s for s in sizes if s > 0) * 1.0001, node.name
    x = np.random.default_rng(2).normal(size=(1, 4, SIDE, SIDE))
    expected, found = float64(before, x), float64(graph, x)
    for name in before.outputs:
        assert found[name].shape == expected[name].shape
        size = np.abs(expected[name]).max()
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-9 * size)
    return graph, notices


def test_parts_are_grouped_by_their_ranges() -> None:
    """The factor is 4: a fix point leaves the widest at least 64 steps, and 16 are what the report wants."""
    assert UNLIKE == 4.0
    assert like_groups([600.0, 1.0, 150.0, 0.9, 0.0]) == [[0, 2], [1, 3, 4]]
    assert like_groups([600.0, 149.9]) == [[0], [1]] and like_groups([1.0, 0.9]) == [[0, 1]]
    assert like_groups([0.0, 0.0]) == [[0, 1]]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("end", ["output", "convolution"])
def test_every_reader_runs_part_by_part(reader: str, end: str) -> None:
    """Boxes of about 300 and scores of about 1; nothing goes to the CPU but the concatenation of the output."""
    n = Net(3)
    read = READERS[reader](n, n.concat([n.part(4, 300.0), n.part(1, 1.0), n.part(2, 1.0)]))
    outputs = [n.conv(read, 6)] if end == "convolution" else [read, n.conv(read, 6)]
    graph, notices = check(n.graph(outputs))
    assert "joins unlike ranges" in notices[0]
    on_cpu = [node for node in graph.nodes if node.device != "NPU"]
    assert all(node.op in ("Concat", "ChannelGather") for node in on_cpu)
    assert all("--mode fine" in remedy(node, graph) for node in on_cpu)
    if end == "convolution":
        assert not on_cpu and [p.device for p in graph.partitions] == ["NPU"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    parts=st.lists(st.tuples(st.integers(1, 5), st.integers(-6, 10)), min_size=2, max_size=4),
    readers=st.lists(st.sampled_from(sorted(READERS)), min_size=1, max_size=3),
    shown=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_parts_through_any_readers(
    parts: list[tuple[int, int]], readers: list[str], shown: bool, seed: int
) -> None:
    n = Net(seed)
    tensor = n.concat([n.part(channels, 2.0**size) for channels, size in parts])
    passed = []
    for reader in readers:
        if reader == "space to depth" and n.channels[tensor] > 60:
            continue
        tensor = READERS[reader](n, tensor)
        passed.append(tensor)
    check(n.graph([n.conv(tensor, 3), *(passed if shown else [])]))


def test_the_activation_stands_behind_the_sum() -> None:
    n = Net()
    joined = n.concat([n.part(2, 600.0), n.part(2, 1.0)])
    last = n.node("Relu", [n.conv(joined, 5, kernel=3)], 5)
    graph, _ = check(n.graph([last]))
    assert [node.op for node in graph.nodes] == ["Conv", "Conv", "Conv", "Conv", "Add"]
    assert [node.activation.kind for node in graph.nodes] == ["none"] * 4 + ["Relu"]


def test_a_curve_that_hardware_lacks_behind_a_sum_follows_as_a_node() -> None:
    n = Net()
    joined = n.concat([n.part(2, 600.0), n.part(2, 1.0)])
    graph = n.graph([n.conv(n.node("Sigmoid", [n.conv(joined, 5)], 5), 2)])

    def no_curve_behind_a_sum(node: Node, _: Graph) -> str:
        return "no curve" if node.op == "Add" and node.activation.kind != "none" else ""

    before = copy.deepcopy(graph)
    separate_unlike(graph, measured(graph), no_curve_behind_a_sum)
    assert [(v.op, v.activation.kind) for v in graph.nodes][-3:-1] == [
        ("Add", "none"),
        ("Affine", "Sigmoid"),
    ]
    x = np.random.default_rng(2).normal(size=(1, 4, SIDE, SIDE))
    name = graph.outputs[0]
    np.testing.assert_allclose(float64(graph, x)[name], float64(before, x)[name], rtol=1e-9)


def test_a_grouped_convolution_that_reads_two_parts_becomes_a_sum() -> None:
    n = Net()
    joined = n.concat([n.part(1, 600.0), n.part(2, 1.0), n.part(1, 600.0), n.part(2, 1.0)])
    graph, _ = check(n.graph([n.conv(joined, 4, group=2, kernel=3)]))
    assert graph.nodes[-1].op == "Add" and {v.device for v in graph.nodes} == {"NPU"}


def test_outputs_that_read_one_part_stay_apart() -> None:
    """A permutation and a mixture as one dense convolution: boxes, scores, and a row of both."""
    n = Net()
    joined = n.concat([n.part(2, 600.0), n.part(3, 1.0)])
    weight = np.zeros((6, 5, 1, 1))
    for output, channel in enumerate((3, 0, 4, 1, 2)):
        weight[output, channel] = 1.0
    weight[5] = 0.5
    mixed = n.node("Conv", [joined, n.constant(weight)], 6, kernel_shape=[1, 1])
    pooled = READERS["max pool"](n, mixed)
    graph, _ = check(n.graph([n.conv(pooled, 2), mixed]))
    sources = {v.name: v.inputs for v in graph.nodes if v.op == "MaxPool"}
    assert len(sources) == 2, "scores apart; boxes and the mixture, whose ranges are alike, together"


def test_what_no_rule_separates_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hardware refuses the parts of a pool: the pool runs in float, and what it gives enters in parts again."""
    n = Net()
    joined = n.concat([n.part(4, 600.0), n.part(3, 1.0)])
    pooled = READERS["max pool"](n, joined)
    graph = n.graph([n.conv(pooled, 5)])
    before, pool = copy.deepcopy(graph), next(v.name for v in graph.nodes if v.op == "MaxPool")

    def no_pools(node: Node, _: Graph) -> str:
        return "no pools" if node.op == "MaxPool" else ""

    notices = separate_unlike(graph, measured(graph), no_pools)
    verify(graph, "calibrate")
    assert graph.node(pool).device == "CPU" and "--mode fine" in remedy(graph.node(pool), graph)
    assert any(pool in text and "runs on the CPU" in text for text in notices)
    assert [p.device for p in graph.partitions] == ["NPU", "CPU", "NPU"]
    assert len(graph.partitions[2].inputs) > 1, "boxes and scores enter apart"
    x = np.random.default_rng(2).normal(size=(1, 4, SIDE, SIDE))
    name = graph.outputs[0]
    np.testing.assert_allclose(float64(graph, x)[name], float64(before, x)[name], rtol=1e-9)
    monkeypatch.setattr(separate_ranges, "cpu_operators", frozenset)
    with pytest.raises(QuantisationError, match=rf"'{pool}' \(MaxPool\).*joins ranges to .*--mode fine"):
        separate_unlike(before, measured(before), no_pools)


def test_a_concatenation_on_the_cpu_enters_in_parts() -> None:
    """Joined along another axis of another rank, as decoders do."""
    n = Net()
    wide = n.node("Reshape", [n.part(4, 300.0), n.constant([1, 4, -1], np.int64)], 4)
    small = n.node("Reshape", [n.part(3, 1.0), n.constant([1, 3, -1], np.int64)], 3)
    rows = n.node("Concat", [wide, small], 7, axis=1)
    graph, notices = check(n.graph([n.conv(n.node("Reshape", [rows, n.constant([1, 7, SIDE, SIDE], np.int64)], 7), 5)]))
    assert "joined from unlike ranges" in notices[0]
    entries = graph.partitions[-1].inputs
    assert graph.partitions[-1].device == "NPU" and len(entries) > 1


def test_a_copy_breaks_a_chain() -> None:
    """Like ranges join scores and boxes step by step: 1, 3; 3, 9; 9, 27. No concatenation is of unlike ranges, yet all would share a fix point."""
    n = Net(5)
    chain = [n.part(2, size) for size in (1.0, 3.0, 9.0, 27.0)]
    readers = [n.conv(n.concat(list(pair)), 3) for pair in pairwise(chain)]
    graph = n.graph(readers)
    statistics = measured(graph)
    before = copy.deepcopy(graph)
    tied = break_chains(graph, statistics)
    verify(graph, "calibrate")
    copies = [v for v in graph.nodes if "/copy" in v.name]
    assert tied and copies and break_chains(graph, measured(graph)) == []
    x = np.random.default_rng(2).normal(size=(1, 4, SIDE, SIDE))
    for name in graph.outputs:
        np.testing.assert_array_equal(float64(graph, x)[name], float64(before, x)[name])


def test_like_ranges_are_left_alone() -> None:
    n = Net()
    graph = n.graph([n.conv(n.concat([n.part(3, 3.0), n.part(3, 2.0)]), 5)])
    names = [v.name for v in graph.nodes]
    assert separate_unlike(graph, measured(graph)) == [] and break_chains(graph, measured(graph)) == []
    assert [v.name for v in graph.nodes] == names
