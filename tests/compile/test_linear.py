"""Fully connected layers as convolutions over the whole map, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def ops(graph):
    return [n.op for n in graph.nodes]


@pytest.mark.parametrize("transposed", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Gemm transB"])
def test_flatten_and_linear(build, same, weights, op, transposed):
    nodes = [("Conv", ["x", "w"], ["t"], CONV)]
    if transposed:
        nodes.append(("Transpose", ["t"], ["n"], {"perm": [0, 2, 3, 1]}))
    nodes.append(("Flatten", ["n" if transposed else "t"], ["f"], {"axis": 1}))
    matrix = weights(6 * 20, 7)
    if op == "MatMul":
        nodes += [("MatMul", ["f", "m"], ["a"], {}, "linear"), ("Add", ["a", "b"], ["r"], {}, "add")]
    else:
        attrs = {"alpha": 0.5, "beta": 2.0, "transB": 1} if op.endswith("transB") else {}
        matrix = np.ascontiguousarray(matrix.T) if attrs else matrix
        nodes.append(("Gemm", ["f", "m", "b"], ["r"], attrs, "linear"))
    nodes.append(("Relu", ["r"], ["y"], {}, "relu"))
    model = build(nodes, shape=(1, 4, 5, 4), constants={"w": weights(6, 4, 3, 3), "m": matrix, "b": weights(7)})
    graph = same(model, place=True)
    assert ops(graph) == ["Conv", "Conv", "Reshape"]
    assert graph.nodes[1].attrs["kernel_shape"] == [5, 4] and graph.nodes[1].activation.kind == "Relu"
    assert {"linear", "relu"} <= set(graph.nodes[1].sources) and [p.device for p in graph.partitions] == ["NPU", "CPU"]


def test_two_layers_with_prelu(build, same, weights):
    nodes = [
        ("Flatten", ["x"], ["f"], {}),
        ("MatMul", ["f", "m1"], ["a"], {}),
        ("Add", ["b1", "a"], ["b"], {}),
        ("PRelu", ["b", "slope"], ["c"], {}),
        ("Gemm", ["c", "m2", "b2"], ["d"], {}),
        ("Softmax", ["d"], ["y"], {"axis": 1}),
    ]
    constants = {"m1": weights(36, 9), "b1": weights(1, 9), "slope": weights(9), "m2": weights(9, 5), "b2": weights(5)}
    graph = same(build(nodes, shape=(1, 4, 3, 3), constants=constants), place=True)
    assert ops(graph) == ["Conv", "Conv", "Reshape", "Softmax"]
    assert graph.nodes[0].activation.kind == "PRelu" and graph.nodes[1].attrs["kernel_shape"] == [1, 1]


def test_global_pool_and_linear(build, same, weights):
    nodes = [("GlobalAveragePool", ["x"], ["p"], {}), ("Flatten", ["p"], ["f"], {}), ("MatMul", ["f", "m"], ["y"], {})]
    assert ops(same(build(nodes, constants={"m": weights(4, 6)}))) == ["AveragePool", "Conv", "Reshape"]


def test_squeeze_excite_with_linear_layers(build, same, weights):
    nodes = [
        ("ReduceMean", ["x"], ["p"], {"axes": [2, 3], "keepdims": 0}),
        ("MatMul", ["p", "m1"], ["a"], {}),
        ("Relu", ["a"], ["b"], {}),
        ("MatMul", ["b", "m2"], ["c"], {}),
        ("Sigmoid", ["c"], ["d"], {}),
        ("Reshape", ["d", "s"], ["e"], {}),
        ("Mul", ["x", "e"], ["f"], {}),
        ("Conv", ["f", "w"], ["y"], CONV),
    ]
    constants = {"m1": weights(4, 3), "m2": weights(3, 4), "s": np.array([1, 4, 1, 1]), "w": weights(6, 4, 3, 3)}
    graph = same(build(nodes, constants=constants), place=True)
    assert graph.nodes[-1].op == "Conv" and graph.nodes[-1].device == "NPU"


@pytest.mark.parametrize("shape", [(2, 4, 3, 3), (1, 4, 3, 3)])
def test_row_that_is_read_twice_or_has_a_batch(build, same, weights, shape):
    nodes = [("Flatten", ["x"], ["f"], {}), ("MatMul", ["f", "m"], ["a"], {}), ("Relu", ["a"], ["y"], {})]
    graph = same(build(nodes, shape=shape, constants={"m": weights(36, 5)}, outputs=["y", "a"]))
    assert ops(graph) == (["Flatten", "MatMul", "Relu"] if shape[0] == 2 else ["Conv", "Reshape", "Relu"])


def test_attention_product_stays(build, same):
    nodes = [("Transpose", ["x"], ["t"], {"perm": [0, 1, 3, 2]}), ("MatMul", ["x", "t"], ["y"], {})]
    assert ops(same(build(nodes))) == ["Transpose", "MatMul"]
