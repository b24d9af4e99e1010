"""Depth to space in front of a convolution, in both orders and as torch writes pixel_shuffle by hand: on the NPU, equal to ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from npuforge.compile.steps import pixel_shuffle

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def network(build, weights, middle, constants, channels):
    """Convolution to 24 channels on 6 x 5, `middle` from t to s, convolution."""
    nodes = [("Conv", ["x", "w"], ["t"], CONV, "first"), *middle, ("Conv", ["s", "v"], ["y"], CONV, "last")]
    given = {"w": weights(24, 4, 3, 3), "v": weights(5, channels, 3, 3), **constants}
    return build(nodes, shape=(1, 4, 6, 5), constants=given)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_operator_becomes_a_transposed_convolution(build, same, weights, mode):
    middle = [("DepthToSpace", ["t"], ["s"], {"blocksize": 2, "mode": mode}, "shuffle")]
    graph = same(network(build, weights, middle, {}, 6), place=True)
    assert [n.op for n in graph.nodes] == ["Conv", "ConvTranspose", "Conv"]
    assert [p.device for p in graph.partitions] == ["NPU"]
    assert graph.nodes[1].sources == ["shuffle"]


def test_operator_acts_on_numbers_that_differ_everywhere(build, same):
    """Elements 0, 1, 2 … through the operator and a convolution that hands on: the weights are 0 and 1, so that nothing is rounded."""
    nodes = [
        ("DepthToSpace", ["x"], ["s"], {"blocksize": 3, "mode": "DCR"}),
        ("Conv", ["s", "one"], ["y"], {"kernel_shape": [1, 1]}),
    ]
    one = np.eye(2, dtype=np.float32)[:, :, None, None]
    same(build(nodes, shape=(1, 18, 2, 3), constants={"one": one}), tolerance=0.0)


def test_written_by_hand(build, same, weights):
    middle = [
        ("Reshape", ["t", "six"], ["a"], {}),
        ("Transpose", ["a"], ["b"], {"perm": [0, 1, 4, 2, 5, 3]}),
        ("Reshape", ["b", "four"], ["s"], {}),
    ]
    shapes = {"six": np.array([1, 6, 2, 2, 6, 5]), "four": np.array([1, 6, 12, 10])}
    graph = same(network(build, weights, middle, shapes, 6), place=True)
    assert [n.op for n in graph.nodes] == ["Conv", "ConvTranspose", "Conv"]


def test_half_of_the_channels_is_read(build, same, weights):
    middle = [
        ("DepthToSpace", ["t"], ["d"], {"blocksize": 2}, "shuffle"),
        ("Slice", ["d", "from", "to", "axis"], ["s"], {}, "slice"),
    ]
    shapes = {"from": np.array([3]), "to": np.array([6]), "axis": np.array([1])}
    graph = same(network(build, weights, middle, shapes, 3), place=True)
    assert [n.op for n in graph.nodes] == ["Conv", "ConvTranspose", "Conv"]
    assert set(graph.nodes[1].sources) == {"shuffle", "slice"}


def test_rows_in_another_order_are_no_such_move(build, same, weights):
    middle = [
        ("Reshape", ["t", "six"], ["a"], {}),
        ("Transpose", ["a"], ["b"], {"perm": [0, 1, 2, 4, 5, 3]}),  # block before row
        ("Reshape", ["b", "four"], ["s"], {}),
    ]
    shapes = {"six": np.array([1, 6, 2, 2, 6, 5]), "four": np.array([1, 6, 12, 10])}
    graph = same(network(build, weights, middle, shapes, 6), place=True)
    assert "ConvTranspose" not in [n.op for n in graph.nodes]
    assert [p.device for p in graph.partitions] == ["NPU", "CPU", "NPU"]


def test_behind_the_last_convolution_nothing_is_quantised_for_it(build, same, weights):
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV),
        ("DepthToSpace", ["t"], ["y"], {"blocksize": 2}, "shuffle"),
    ]
    graph = same(build(nodes, constants={"w": weights(8, 4, 3, 3)}), place=True)
    assert [p.device for p in graph.partitions] == ["NPU", "CPU"]


def test_cost_decides(build, same, weights, monkeypatch):
    middle = [("DepthToSpace", ["t"], ["s"], {"blocksize": 2}, "shuffle")]
    monkeypatch.setattr(pixel_shuffle, "ARRAY_MACS_PER_SECOND", 1e6)
    graph = same(network(build, weights, middle, {}, 6), place=True)
    assert [p.device for p in graph.partitions] == ["NPU", "CPU", "NPU"]
