"""Convolutions behind a concatenation of unlike ranges: the rewritten graph computes what the first did, and is still a placed graph."""

from __future__ import annotations

import numpy as np
import pytest

from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.partition import partition
from npuforge.compile.steps.separate_ranges import like_parts, separate_unlike
from npuforge.compile.steps.verify import verify
from npuforge.quant.statistics import Statistics, TensorStatistics

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}


def statistics(**largest: float) -> Statistics:
    """Tensors by name with the range [0, largest]."""
    found = Statistics()
    for name, value in largest.items():
        known = found.tensors[name] = TensorStatistics.empty(2, False)
        known.low, known.high = np.zeros(2), np.full(2, value)
    return found


def test_parts_are_grouped_by_their_ranges() -> None:
    seen = statistics(a=600.0, b=1.0, c=40.0, d=0.9, e=0.0)
    assert like_parts(["a", "b", "c", "d", "e"], seen) == [[0, 2], [1, 3, 4]]
    assert like_parts(["b", "d"], seen) == [[0, 1]]


@pytest.mark.parametrize("others", [False, True], ids=["alone", "with another reader"])
@pytest.mark.parametrize("activation", [[], [("Relu", ["u"], ["y"], {}, "relu")]], ids=["plain", "relu"])
def test_the_sum_of_the_parts_is_the_convolution(build, compiled, weights, others, activation) -> None:
    last = "u" if activation else "y"
    nodes = [
        ("Conv", ["x", "w"], ["p"], {"kernel_shape": [1, 1]}, "p"),
        ("Conv", ["x", "w"], ["q"], {"kernel_shape": [1, 1]}, "q"),
        ("Conv", ["x", "w"], ["r"], {"kernel_shape": [1, 1]}, "r"),
        ("Relu", ["q"], ["qr"], {}, "qr"),
        ("Concat", ["p", "qr", "r"], ["j"], {"axis": 1}, "join"),
        ("Conv", ["j", "v", "b"], [last], CONV, "last"),
        *activation,
        ("MaxPool", ["j"], ["m"], {"kernel_shape": [2, 2]}, "pool"),
        ("Conv", ["m", "v"], ["z"], CONV, "z"),
    ]
    constants = {"w": weights(2, 4, 1, 1), "v": weights(5, 6, 3, 3), "b": weights(5)}
    outputs = ["y", "z"] if others else ["y"]
    graph = partition(compiled(build(nodes if others else nodes[:-2], constants=constants, outputs=outputs)))
    x = np.random.default_rng(1).normal(size=(1, 4, 8, 8)).astype(np.float32)
    before = GraphExecutor(graph, providers=["CPUExecutionProvider"]).run({"x": x})
    names = [graph.node("join").inputs[i] for i in range(3)]
    assert separate_unlike(graph, statistics(**dict(zip(names, (600.0, 1.0, 500.0), strict=True)))) == ["join"]
    verify(graph, "calibrate")
    after = GraphExecutor(graph, providers=["CPUExecutionProvider"]).run({"x": x})
    for name in outputs:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=1e-5)
    assert graph.node("last").op == "Add" and graph.node("last").activation.kind == ("Relu" if activation else "none")
    assert ("join" in [n.name for n in graph.nodes]) == others
    assert [p.device for p in graph.partitions] == ["NPU"]
    assert graph.partitions[0].nodes == [n.name for n in graph.nodes]


def test_like_ranges_are_left_alone(build, compiled, weights) -> None:
    nodes = [
        ("Relu", ["x"], ["r"], {}),
        ("Concat", ["x", "r"], ["j"], {"axis": 1}, "join"),
        ("Conv", ["j", "v"], ["y"], CONV),
    ]
    graph = partition(compiled(build(nodes, constants={"v": weights(5, 8, 3, 3)})))
    names = graph.node("join").inputs
    assert separate_unlike(graph, statistics(**{names[0]: 3.0, names[1]: 2.0})) == []
