"""Each fold rule on a small graph: where it is exact it applies and the result equals ONNX Runtime; where it is not exact it must not apply."""

from __future__ import annotations

import numpy as np
import pytest

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
VALID = {"kernel_shape": [3, 3]}


def ops(graph):
    return [n.op for n in graph.nodes]


@pytest.fixture
def norm(weights):
    """Constants of a BatchNorm over `c` channels."""

    def make(c):
        return {"g": weights(c), "b": weights(c), "m": weights(c), "v": np.abs(weights(c)) + 0.1}

    return make


BN = ("BatchNormalization", ["t", "g", "b", "m", "v"], ["y"], {"epsilon": 1e-3}, "bn")


def test_batch_norm_into_convolution(build, same, weights, norm):
    graph = same(
        build([("Conv", ["x", "w"], ["t"], CONV, "conv"), BN], constants={"w": weights(6, 4, 3, 3), **norm(6)})
    )
    assert ops(graph) == ["Conv"] and graph.nodes[0].sources == ["conv", "bn"]
    assert graph.nodes[0].outputs == ["y"]


@pytest.mark.parametrize("group", [1, 2, 4])
def test_batch_norm_into_transposed_convolution(build, same, weights, norm, group):
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "group": group}
    nodes = [("ConvTranspose", ["x", "w"], ["t"], attrs, "up"), BN]
    graph = same(build(nodes, constants={"w": weights(4, 3, 2, 2), **norm(3 * group)}))
    assert ops(graph) == ["ConvTranspose"]


def test_batch_norm_stays_when_the_convolution_is_read_elsewhere(build, same, weights, norm):
    nodes = [("Conv", ["x", "w"], ["t"], CONV), BN, ("Conv", ["y", "w2"], ["z"], VALID)]
    graph = same(
        build(nodes, constants={"w": weights(4, 4, 3, 3), "w2": weights(4, 4, 3, 3), **norm(4)}, outputs=["t", "z"])
    )
    # The convolution before keeps its own values; the one after has no border, so it takes the BatchNorm.
    assert ops(graph) == ["Conv", "Conv"] and graph.nodes[1].sources == ["bn", "conv2"]


@pytest.mark.parametrize(("attrs", "absorbed"), [(VALID, True), (CONV, False)], ids=["no border", "border"])
def test_batch_norm_before_convolution(build, same, weights, norm, attrs, absorbed):
    nodes = [
        ("BatchNormalization", ["x", "g", "b", "m", "v"], ["t"], {}, "bn"),
        ("Conv", ["t", "w"], ["y"], {**attrs, "group": 2}, "conv"),
    ]
    graph = same(build(nodes, constants={"w": weights(6, 2, 3, 3), **norm(4)}))
    assert ops(graph) == (["Conv"] if absorbed else ["Affine", "Conv"])


def test_scale_before_bordered_convolution(build, same, weights):
    nodes = [("Div", ["x", "d"], ["t"], {}, "div"), ("Conv", ["t", "w"], ["y"], CONV, "conv")]
    graph = same(build(nodes, constants={"w": weights(6, 4, 3, 3), "d": np.float32(255.0)}), 1e-5)
    assert ops(graph) == ["Conv"] and graph.nodes[0].sources == ["div", "conv"]


@pytest.mark.parametrize(
    ("op", "operands"),
    [("Mul", "tc"), ("Mul", "ct"), ("Add", "tc"), ("Sub", "tc"), ("Sub", "ct"), ("Div", "tc")],
)
def test_constant_after_convolution(build, same, weights, op, operands):
    nodes = [("Conv", ["x", "w", "b"], ["t"], CONV), (op, list(operands), ["y"], {})]
    constants = {"w": weights(6, 4, 3, 3), "b": weights(6), "c": weights(6, 1, 1) + 2.0}
    assert ops(same(build(nodes, constants=constants))) == ["Conv"]


def test_constant_that_varies_over_the_map_stays(build, same, weights):
    nodes = [("Conv", ["x", "w"], ["t"], CONV), ("Add", ["t", "c"], ["s"], {}), ("Conv", ["s", "w2"], ["y"], CONV)]
    constants = {"w": weights(6, 4, 3, 3), "w2": weights(2, 6, 3, 3), "c": weights(1, 6, 8, 8)}
    graph = same(build(nodes, constants=constants), place=True)
    add = graph.nodes[1]
    assert add.op == "Add" and add.device == "CPU" and "one value per channel" in add.reason


def test_constant_divided_by_a_map_stays(build, same, weights):
    nodes = [("Sigmoid", ["x"], ["t"], {}), ("Div", ["c", "t"], ["s"], {}), ("Conv", ["s", "w"], ["y"], CONV)]
    graph = same(build(nodes, constants={"w": weights(6, 4, 3, 3), "c": np.float32(1.0)}))
    assert "Div" in ops(graph)


@pytest.mark.parametrize("own", [[0, 0, 0, 0], [1, 0, 0, 2]])
def test_zero_pad_into_convolution(build, same, weights, own):
    nodes = [("Pad", ["x", "p"], ["t"], {}, "pad"), ("Conv", ["t", "w"], ["y"], {**VALID, "pads": own}, "conv")]
    constants = {"w": weights(6, 4, 3, 3), "p": np.array([0, 0, 1, 0, 0, 0, 2, 1])}
    graph = same(build(nodes, constants=constants))
    assert ops(graph) == ["Conv"] and graph.nodes[0].sources == ["pad", "conv"]
    assert graph.nodes[0].attrs["pads"] == [1 + own[0], own[1], 2 + own[2], 1 + own[3]]


@pytest.mark.parametrize(
    ("mode", "value", "pads"),
    [
        ("constant", 1.0, [0, 0, 1, 1, 0, 0, 1, 1]),
        ("reflect", 0.0, [0, 0, 1, 1, 0, 0, 1, 1]),
        ("edge", 0.0, [0, 0, 1, 1, 0, 0, 1, 1]),
        ("constant", 0.0, [0, 0, 2, 2, 0, 0, -1, -1]),
    ],
    ids=["value 1", "reflect", "edge", "negative"],
)
def test_other_pads_stay(build, same, weights, mode, value, pads):
    nodes = [("Pad", ["x", "p", "v"], ["t"], {"mode": mode}), ("Conv", ["t", "w"], ["y"], VALID)]
    constants = {"w": weights(6, 4, 3, 3), "p": np.array(pads), "v": np.float32(value)}
    assert ops(same(build(nodes, constants=constants))) == ["Pad", "Conv"]


def test_pad_read_twice_stays(build, same, weights):
    nodes = [("Pad", ["x", "p"], ["t"], {}), ("Conv", ["t", "w"], ["y"], VALID)]
    constants = {"w": weights(6, 4, 3, 3), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    assert ops(same(build(nodes, constants=constants, outputs=["y", "t"]))) == ["Pad", "Conv"]


def test_pad_into_average_pool(build, same, weights):
    nodes = [
        ("Pad", ["x", "p"], ["t"], {}),
        ("AveragePool", ["t"], ["a"], {"kernel_shape": [3, 3], "strides": [2, 2]}),
        ("Conv", ["a", "w"], ["y"], {"kernel_shape": [1, 1]}),
    ]
    graph = same(build(nodes, constants={"w": weights(2, 4, 1, 1), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}))
    assert ops(graph) == ["AveragePool", "Conv"]
    assert graph.nodes[0].attrs["count_include_pad"] == 1 and graph.nodes[0].attrs["pads"] == [1, 1, 1, 1]


def test_pad_into_average_pool_that_ignores_its_own_pads_stays(build, same, weights):
    nodes = [
        ("Pad", ["x", "p"], ["t"], {}),
        ("AveragePool", ["t"], ["a"], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        ("Conv", ["a", "w"], ["y"], {"kernel_shape": [1, 1]}),
    ]
    graph = same(build(nodes, constants={"w": weights(2, 4, 1, 1), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}))
    assert ops(graph) == ["Pad", "AveragePool", "Conv"]


def test_noops_disappear(build, same, weights):
    nodes = [
        ("Identity", ["x"], ["a"], {}, "identity"),
        ("Cast", ["a"], ["b"], {"to": 1}),
        ("Dropout", ["b"], ["c"], {}),
        ("Mul", ["one", "c"], ["d"], {}),
        ("Reshape", ["d", "s"], ["e"], {}),
        ("Transpose", ["e"], ["f"], {"perm": [0, 2, 3, 1]}),
        ("Transpose", ["f"], ["g"], {"perm": [0, 3, 1, 2]}),
        ("Concat", ["g"], ["h"], {"axis": 1}),
        ("Conv", ["h", "w"], ["i"], CONV, "conv"),
        ("Identity", ["i"], ["y"], {}, "last"),
    ]
    constants = {"w": weights(6, 4, 3, 3), "one": np.float32(1.0), "s": np.array([1, 4, 8, -1])}
    graph = same(build(nodes, constants=constants))
    assert ops(graph) == ["Conv"] and graph.nodes[0].inputs[0] == "x" and graph.nodes[0].outputs == ["y"]
    assert {"identity", "conv", "last"} <= set(graph.nodes[0].sources)


def test_backward_slice_is_no_noop(build, same, weights):
    nodes = [("Slice", ["x", "s", "e", "a", "t"], ["z"], {}), ("Conv", ["z", "w"], ["y"], CONV)]
    constants = {
        "w": weights(6, 4, 3, 3),
        "s": np.array([-1]),
        "e": np.array([-9223372036854775807]),
        "a": np.array([1]),
        "t": np.array([-1]),
    }
    graph = same(build(nodes, constants=constants))
    assert ops(graph) == ["ChannelGather", "Conv"] and graph.nodes[0].attrs["indices"] == [3, 2, 1, 0]


def test_identity_between_input_and_output_stays(build, same, weights):
    nodes = [("Identity", ["x"], ["copy"], {}), ("Conv", ["x", "w"], ["y"], CONV)]
    graph = same(build(nodes, constants={"w": weights(6, 4, 3, 3)}, outputs=["copy", "y"]))
    assert sorted(ops(graph)) == ["Conv", "Identity"]


def test_shape_chain_is_constant(build, same, weights):
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV),
        ("Shape", ["t"], ["s"], {}),
        ("Gather", ["s", "i0"], ["n"], {"axis": 0}),
        ("Unsqueeze", ["n", "z"], ["n1"], {}),
        ("Concat", ["n1", "rest"], ["shape"], {"axis": 0}),
        ("Reshape", ["t", "shape"], ["y"], {}),
    ]
    constants = {"w": weights(6, 4, 3, 3), "i0": np.array(0), "z": np.array([0]), "rest": np.array([6, -1])}
    graph = same(build(nodes, constants=constants))
    assert ops(graph) == ["Conv", "Reshape"] and graph.tensors["y"].shape == (1, 6, 64)


def test_equal_nodes_are_one(build, same, weights):
    half = {"s": np.array([0]), "e": np.array([2]), "a": np.array([1])}
    nodes = [
        ("Slice", ["x", "s", "e", "a"], ["p"], {}),
        ("Slice", ["x", "s", "e", "a"], ["q"], {}),
        ("Mul", ["p", "q"], ["m"], {}),
        ("Conv", ["m", "w"], ["y"], CONV),
    ]
    graph = same(build(nodes, constants={"w": weights(6, 2, 3, 3), **half}))
    assert ops(graph) == ["ChannelGather", "Mul", "Conv"]


def test_activation_between_transposes(build, same, weights):
    nodes = [
        ("Conv", ["x", "w"], ["a"], CONV, "conv"),
        ("Transpose", ["a"], ["b"], {"perm": [0, 2, 3, 1]}, "to_last"),
        ("Relu", ["b"], ["c"], {}, "relu"),
        ("Clip", ["c", "zero", "six"], ["d"], {}, "clip"),
        ("Transpose", ["d"], ["e"], {"perm": [0, 3, 1, 2]}, "to_first"),
        ("Conv", ["e", "v"], ["y"], CONV, "last"),
    ]
    constants = {"w": weights(4, 4, 3, 3), "v": weights(2, 4, 3, 3), "zero": np.float32(0), "six": np.float32(6)}
    graph = same(build(nodes, shape=(1, 4, 7, 9), constants=constants))
    assert "Transpose" not in ops(graph)


def test_softmax_between_transposes_stays(build, same, weights):
    nodes = [
        ("Transpose", ["x"], ["b"], {"perm": [0, 2, 3, 1]}),
        ("Softmax", ["b"], ["c"], {"axis": 3}),
        ("Transpose", ["c"], ["e"], {"perm": [0, 3, 1, 2]}),
        ("Conv", ["e", "v"], ["y"], CONV),
    ]
    assert ops(same(build(nodes, constants={"v": weights(2, 4, 3, 3)}))).count("Transpose") == 2


def test_nhwc_input(build, same, weights):
    nodes = [("Transpose", ["x"], ["t"], {"perm": [0, 3, 1, 2]}), ("Conv", ["t", "w"], ["y"], CONV)]
    graph = same(build(nodes, shape=(1, 8, 6, 4), constants={"w": weights(6, 4, 3, 3)}))
    assert graph.input_layout == {"x": "NHWC"} and graph.tensors["x"].shape == (1, 4, 8, 6) and ops(graph) == ["Conv"]


def test_nhwc_input_that_is_read_as_it_is_stays(build, same, weights):
    nodes = [
        ("Transpose", ["x"], ["t"], {"perm": [0, 3, 1, 2]}),
        ("Conv", ["t", "w"], ["y"], CONV),
        ("Relu", ["x"], ["z"], {}),
    ]
    graph = same(build(nodes, shape=(1, 8, 6, 4), constants={"w": weights(6, 4, 3, 3)}, outputs=["y", "z"]))
    assert graph.input_layout == {} and "Transpose" in ops(graph)


def test_nhwc_input_that_is_an_output_stays(build, same, weights):
    nodes = [("Transpose", ["x"], ["t"], {"perm": [0, 3, 1, 2]}), ("Conv", ["t", "w"], ["y"], CONV)]
    graph = same(build(nodes, shape=(1, 8, 6, 4), constants={"w": weights(6, 4, 3, 3)}, outputs=["y", "x"]))
    assert graph.input_layout == {} and graph.tensors["x"].shape == (1, 8, 6, 4)


def test_shared_weights_are_not_changed_for_the_other_reader(build, same, weights, norm):
    nodes = [("Conv", ["x", "w"], ["t"], CONV), BN, ("Conv", ["x", "w"], ["z"], {**CONV, "dilations": [1, 1]})]
    graph = same(build(nodes, constants={"w": weights(4, 4, 3, 3), **norm(4)}, outputs=["y", "z"]))
    assert ops(graph) == ["Conv", "Conv"]
