"""Pad in front of MaxPool: a border that never is a window's largest element becomes the pool's own; any other stays. Results are ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import pytest

POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}
LOWEST = float(np.finfo(np.float32).min)
TOP_LEFT_AND_RIGHT = [0, 0, 1, 0, 0, 0, 1, 2]


def ops(graph):
    return [n.op for n in graph.nodes]


def network(build, weights, before, value, pads, pool=None):
    """Convolution → `before` → Pad → MaxPool → convolution."""
    source = "a" if before is None else "r"
    nodes = [("Conv", ["x", "w"], ["a"], {"kernel_shape": [1, 1]}, "first")]
    nodes += [] if before is None else [(before, ["a"], ["r"], {}, "bend")]
    nodes += [
        ("Pad", [source, "p", "v"], ["t"], {}, "pad"),
        ("MaxPool", ["t"], ["m"], POOL if pool is None else pool, "pool"),
        ("Conv", ["m", "w2"], ["y"], {"kernel_shape": [1, 1]}, "last"),
    ]
    constants = {"w": weights(4, 4, 1, 1), "w2": weights(2, 4, 1, 1), "p": np.array(pads), "v": np.float32(value)}
    return build(nodes, constants=constants)


@pytest.mark.parametrize(
    ("before", "value"),
    [(None, -np.inf), (None, LOWEST), ("Relu", 0.0), ("Relu", -3.0), ("Sigmoid", 0.0)],
    ids=["-inf (timm)", "lowest float32", "0 behind ReLU", "below ReLU", "0 behind a sigmoid"],
)
def test_border_that_never_wins(build, same, weights, before, value):
    graph = same(network(build, weights, before, value, TOP_LEFT_AND_RIGHT))
    assert "Pad" not in ops(graph)
    pool = next(n for n in graph.nodes if n.op == "MaxPool")
    assert pool.attrs["pads"] == [1, 0, 1, 2] and pool.sources == ["pad", "pool"]


def test_border_adds_to_the_pools_own(build, same, weights):
    graph = same(network(build, weights, None, -np.inf, TOP_LEFT_AND_RIGHT, {**POOL, "pads": [1, 1, 0, 0]}))
    assert next(n for n in graph.nodes if n.op == "MaxPool").attrs["pads"] == [2, 1, 1, 2]


@pytest.mark.parametrize(
    ("before", "value", "pads"),
    [
        (None, 0.0, TOP_LEFT_AND_RIGHT),
        ("Relu", 0.25, TOP_LEFT_AND_RIGHT),
        ("Relu", 0.0, [0, 0, 3, 0, 0, 0, 0, 0]),
    ],
    ids=["0 above negative values", "above 0", "a window of border alone"],
)
def test_border_that_may_win_stays(build, same, weights, before, value, pads):
    assert "Pad" in ops(same(network(build, weights, before, value, pads)))


def test_pad_with_several_readers(build, same, weights):
    nodes = [
        ("Pad", ["x", "p", "v"], ["t"], {}),
        ("MaxPool", ["t"], ["m3"], {"kernel_shape": [3, 3]}),
        ("MaxPool", ["t"], ["m5"], {"kernel_shape": [5, 5], "pads": [1, 1, 1, 1]}),
        ("Conv", ["m3", "w"], ["y"], {"kernel_shape": [1, 1]}),
        ("Conv", ["m5", "w"], ["z"], {"kernel_shape": [1, 1]}),
    ]
    constants = {"w": weights(4, 4, 1, 1), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "v": np.float32(-np.inf)}
    graph = same(build(nodes, constants=constants, outputs=["y", "z"]))
    assert sorted(ops(graph)) == ["Conv", "Conv", "MaxPool", "MaxPool"]
