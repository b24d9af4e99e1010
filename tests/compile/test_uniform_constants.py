"""Constants that ConstantOfShape or Expand blew up to full maps are folded like the scalar or the values per channel that they are. Results are ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

CONV = {"kernel_shape": [1, 1]}


def behind_convolution(build, weights, fill, op, swapped=False, **constants):
    """x → Conv → op with a map that `fill` makes in the shape of the convolution's output → Conv."""
    operands = ["map", "a"] if swapped else ["a", "map"]
    nodes = [
        ("Conv", ["x", "w"], ["a"], CONV),
        ("Shape", ["a"], ["shape"], {}),
        fill,
        (op, operands, ["b"], {}),
        ("Conv", ["b", "w"], ["y"], CONV),
    ]
    return build(nodes, constants={"w": weights(4, 4, 1, 1), **constants})


def full(value):
    return ("ConstantOfShape", ["shape"], ["map"], {"value": numpy_helper.from_array(np.array([value], np.float32))})


EXPAND = ("Expand", ["p", "shape"], ["map"], {})


@pytest.mark.parametrize(("op", "swapped"), [("Add", False), ("Mul", True), ("Sub", True), ("Div", False)])
def test_one_value_everywhere(build, same, weights, op, swapped):
    graph = same(behind_convolution(build, weights, full(0.5), op, swapped))
    assert [n.op for n in graph.nodes] == ["Conv", "Conv"]


def test_nothing_is_added(build, same, weights):
    graph = same(behind_convolution(build, weights, ("ConstantOfShape", ["shape"], ["map"], {}), "Add"))
    assert [n.op for n in graph.nodes] == ["Conv", "Conv"]
    assert not any(graph.constants[n.inputs[2]].any() for n in graph.nodes)  # the biases


@pytest.mark.parametrize("shape", [(), (1, 4, 1, 1), (4, 1, 1)])
def test_expanded_parameter(build, same, weights, shape):
    graph = same(behind_convolution(build, weights, EXPAND, "Mul", p=weights(*shape) + np.float32(2.0)))
    assert [n.op for n in graph.nodes] == ["Conv", "Conv"]


def test_maximum_with_zeros_is_relu(build, same, weights):
    graph = same(behind_convolution(build, weights, full(0.0), "Max"))
    assert [(n.op, n.activation.kind) for n in graph.nodes] == [("Conv", "Relu"), ("Conv", "none")]


def test_map_that_varies_stays(build, same, weights):
    graph = same(behind_convolution(build, weights, EXPAND, "Mul", p=weights(1, 4, 8, 1)))
    assert "Mul" in [n.op for n in graph.nodes]
