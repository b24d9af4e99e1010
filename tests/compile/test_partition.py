"""Placement: device and reason of every node, as few partitions as the dependencies allow, the inspector's rows; and what the verifier catches."""

from __future__ import annotations

import numpy as np
import pytest

from npuforge.compile.ir.errors import UnsupportedError, VerifyError
from npuforge.compile.ir.graph import Activation, TensorInfo
from npuforge.compile.steps import partition as step
from npuforge.compile.steps.partition import explain, partition
from npuforge.compile.steps.remedies import remedy
from npuforge.compile.steps.verify import verify

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def devices(graph):
    return [(p.device, len(p.nodes)) for p in graph.partitions]


@pytest.fixture
def placed(compiled):
    """Import, fold, fuse, partition, verified."""

    def run(model):
        graph = partition(compiled(model))
        verify(graph, "partition")
        return graph

    return run


def test_head_goes_to_the_cpu(build, weights, placed):
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "conv"),
        ("Sigmoid", ["t"], ["s"], {}, "sigmoid"),
        ("Reshape", ["s", "shape"], ["y"], {}, "flat"),
    ]
    graph = placed(build(nodes, constants={"w": weights(6, 4, 3, 3), "shape": np.array([1, 6, 64])}))
    assert devices(graph) == [("NPU", 1), ("CPU", 2)]
    assert graph.partitions[0].inputs == ["x"] and graph.partitions[0].outputs == ["t"]
    assert graph.partitions[1].inputs == ["t"] and graph.partitions[1].outputs == ["y"]
    row = explain(graph)[1]
    assert (row.node, row.op, row.device, row.partition, row.macs) == ("sigmoid", "Sigmoid", "CPU", 1, 0)
    assert row.reason == step.HEAD_REASON
    assert explain(graph)[0].macs == 6 * 4 * 9 * 64


def test_an_operator_the_npu_lacks_splits_the_network(build, weights, placed):
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        ("Atan", ["t"], ["e"], {}, "atan"),
        ("Conv", ["e", "v"], ["u"], CONV, "second"),
        ("Conv", ["t", "v"], ["z"], CONV, "beside"),
        ("Add", ["u", "z"], ["a"], {}, "add"),
        ("Conv", ["a", "v"], ["y"], CONV, "last"),
    ]
    graph = placed(build(nodes, constants={"w": weights(4, 4, 3, 3), "v": weights(4, 4, 3, 3)}))
    assert devices(graph) == [("NPU", 2), ("CPU", 1), ("NPU", 3)]
    assert graph.node("atan").reason == "the NPU has no operator Atan"
    assert graph.partitions[0].nodes == ["first", "beside"] and graph.partitions[0].outputs == ["t", "z"]


def test_preparation_on_the_cpu_comes_first(build, weights, placed):
    nodes = [("Atan", ["x"], ["t"], {}, "atan"), ("Conv", ["t", "w"], ["y"], CONV, "conv")]
    assert devices(placed(build(nodes, constants={"w": weights(4, 4, 3, 3)}))) == [("CPU", 1), ("NPU", 1)]


def test_decode_written_as_a_convolution_stays_behind_the_head(build, weights, placed):
    """Distribution focal loss as newer YOLO heads write it: Softmax over 16 bins, then a 1x1 convolution that sums them up."""
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "conv"),
        ("Conv", ["t", "v"], ["h"], {"kernel_shape": [1, 1]}, "head"),
        ("Reshape", ["h", "s1"], ["a"], {}),
        ("Transpose", ["a"], ["b"], {"perm": [0, 2, 1, 3]}),
        ("Softmax", ["b"], ["p"], {"axis": 1}),
        ("Conv", ["p", "bins"], ["d"], {"kernel_shape": [1, 1]}, "dfl"),
        ("Reshape", ["d", "s2"], ["y"], {}),
    ]
    constants = {
        "w": weights(64, 16, 3, 3),
        "v": weights(64, 64, 1, 1),
        "s1": np.array([1, 4, 16, 256]),
        "s2": np.array([1, 4, 256]),
        "bins": np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1),
    }
    graph = placed(build(nodes, shape=(1, 16, 16, 16), constants=constants))
    assert [p.device for p in graph.partitions] == ["NPU", "CPU"]
    assert graph.partitions[0].nodes == ["conv", "head"] and "under 1 %" in graph.node("dfl").reason


def _split_in_front(middle, weights):
    """Atan, `middle`, Atan, and then the network proper: what lies between the two is an island."""
    nodes = [("Atan", ["x"], ["e"], {}, "atan"), *middle, ("Atan", ["m"], ["f"], {}, "atan2")]
    nodes += [
        (("Conv"), ["f" if i == 0 else f"c{i}", "v" if i == 0 else "w"], [f"c{i + 1}"], CONV, f"c{i}") for i in range(8)
    ]
    nodes.append(("Conv", ["c8", "w"], ["y"], CONV, "last"))
    return nodes, {"v": weights(64, 4, 3, 3), "w": weights(64, 64, 3, 3), "small": weights(4, 4, 1, 1)}


def test_a_small_island_between_cpu_nodes_is_not_worth_an_entry(build, weights, placed):
    """Without the rule: CPU, NPU (one Relu), CPU, NPU."""
    nodes, constants = _split_in_front([("Relu", ["e"], ["m"], {}, "island")], weights)
    graph = placed(build(nodes, constants=constants))
    assert [d for d, _ in devices(graph)] == ["CPU", "NPU"]
    assert graph.node("island").device == "CPU"
    reason = graph.node("island").reason
    assert "under 1 % of the network's multiply-accumulates (0.00%; about 0.00 ms on the CPU, 0.10 ms" in reason
    assert "comes over once the CPU nodes around it do" in remedy(graph.node("island"), graph)


def test_a_small_convolution_stays_where_the_cpu_would_be_slower(build, weights, placed, monkeypatch):
    middle = [("Conv", ["e", "small"], ["m"], {"kernel_shape": [1, 1]}, "island")]
    nodes, constants = _split_in_front(middle, weights)
    assert placed(build(nodes, constants=constants)).node("island").device == "CPU"
    monkeypatch.setattr(step, "CPU_MACS_PER_SECOND", 1e6)  # 1024 MACs: about 1 ms, an entry costs 0.1 ms
    graph = placed(build(nodes, constants=constants))
    assert [d for d, _ in devices(graph)] == ["CPU", "NPU", "CPU", "NPU"]
    assert graph.node("island").device == "NPU" and graph.node("island").reason == ""


def test_the_decision_does_not_change_when_it_is_made_again(build, weights, placed):
    nodes, constants = _split_in_front([("Relu", ["e"], ["m"], {}, "island")], weights)
    graph = placed(build(nodes, constants=constants))
    first = [(n.name, n.device) for n in graph.nodes]
    assert [(n.name, n.device) for n in partition(graph).nodes] == first


def test_every_cpu_node_says_what_to_change(build, weights, placed):
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        ("Softmax", ["t"], ["e"], {"axis": 1}, "softmax"),
        ("Conv", ["e", "w"], ["z"], CONV, "second"),
        ("Sigmoid", ["z"], ["y"], {}, "sigmoid"),
    ]
    graph = placed(build(nodes, constants={"w": weights(4, 4, 3, 3)}))
    advice = {n.name: remedy(n, graph) for n in graph.nodes}
    assert advice["first"] == "" and "Sigmoid gate" in advice["softmax"]
    assert "kept in float on purpose" in advice["sigmoid"]


def test_bytes_are_int8_on_the_npu_and_float_on_the_cpu(build, weights, placed):
    nodes = [("Conv", ["x", "w"], ["t"], CONV, "conv"), ("Sigmoid", ["t"], ["y"], {}, "sigmoid")]
    conv, sigmoid = explain(placed(build(nodes, constants={"w": weights(6, 4, 3, 3)})))
    assert conv.bytes == 4 * 64 + 6 * 64 + 6 * 4 * 9 + 6  # image, map, weights, bias
    assert sigmoid.bytes == 4 * 2 * 6 * 64


def test_operator_that_nothing_has(build, weights, compiled):
    nodes = [("Det", ["x"], ["y"], {}, "determinant")]
    with pytest.raises(
        UnsupportedError,
        match=r"'determinant' \(Det\) can run nowhere: NPU: the NPU has no operator Det; .*no Det.*cpu\.hpp",
    ):
        partition(compiled(build(nodes)))


def test_batch_of_two_is_refused_or_explained(build, weights, compiled):
    graph = compiled(
        build([("Conv", ["x", "w"], ["y"], CONV, "conv")], shape=(2, 4, 8, 8), constants={"w": weights(4, 4, 3, 3)})
    )
    graph = partition(graph)
    assert graph.node("conv").device == "CPU" and "N = 1" in graph.node("conv").reason


def test_concat_on_another_axis_has_a_reason(build, weights, placed):
    nodes = [("Concat", ["x", "x2"], ["t"], {"axis": 2}, "cat"), ("Conv", ["t", "w"], ["y"], CONV, "conv")]
    model = build(nodes, inputs={"x": (1, 4, 8, 8), "x2": (1, 4, 8, 8)}, constants={"w": weights(4, 4, 3, 3)})
    assert placed(model).node("cat").reason == "the NPU concatenates along channels only"


def test_every_common_constraint_is_a_sentence_a_user_can_read():
    for constraint in (*step.COMMON, step.is_worth_the_npu):
        text = constraint.__doc__ or ""
        assert text.startswith("the NPU") and "\n" not in text.strip() and not text.endswith(".")


# ---- the verifier
@pytest.fixture
def good(build, weights, placed):
    """A small placed graph."""
    nodes = [
        ("Conv", ["x", "w", "b"], ["t"], CONV, "conv"),
        ("Relu", ["t"], ["r"], {}, "relu"),
        ("Conv", ["r", "w", "b"], ["u"], CONV, "conv2"),
        ("Sigmoid", ["u"], ["y"], {}, "sigmoid"),
    ]
    return placed(build(nodes, constants={"w": weights(4, 4, 3, 3), "b": weights(4)}))


def dangling(g):
    g.nodes[1].inputs[0] = "nowhere"


def reordered(g):
    g.nodes[0], g.nodes[1] = g.nodes[1], g.nodes[0]


def two_producers(g):
    g.nodes[1].outputs = [g.nodes[0].outputs[0]]


def no_sources(g):
    g.nodes[1].sources = []


def dynamic(g):
    g.tensors["r"] = TensorInfo("r", (1, -1, 8, 8))


def wrong_shape(g):
    g.tensors["r"] = TensorInfo("r", (1, 4, 7, 8))


def missing_attribute(g):
    del g.nodes[0].attrs["dilations"]


def wrong_kernel(g):
    g.nodes[0].attrs["kernel_shape"] = [1, 1]


def wrong_bias(g):
    g.constants["b"] = g.constants["b"][:3]
    g.tensors["b"] = TensorInfo("b", (3,))


def repeated_name(g):
    g.nodes[1].name = g.nodes[0].name


def no_reason(g):
    g.nodes[-1].reason = ""


def wrong_device(g):
    g.nodes[0].device = "CPU"


def lost_output(g):
    g.outputs = ["z"]


def unread(g):
    g.outputs = ["u"]


def unknown_activation_place(g):
    g.nodes[-1].activation = Activation("Relu")


def unlisted(g):
    g.partitions[0].nodes.pop()


def constant_shape(g):
    g.constants["b"] = g.constants["b"].reshape(2, 2)


@pytest.mark.parametrize(
    ("damage", "node"),
    [
        (dangling, "conv2"),
        (reordered, "conv2"),
        (two_producers, "conv2"),
        (no_sources, "conv2"),
        (dynamic, "r"),
        (wrong_shape, "conv"),
        (missing_attribute, "conv"),
        (wrong_kernel, "conv"),
        (wrong_bias, "conv"),
        (repeated_name, "conv"),
        (no_reason, "sigmoid"),
        (wrong_device, "conv"),
        (lost_output, "z"),
        (unread, "sigmoid"),
        (unknown_activation_place, "sigmoid"),
        (unlisted, "partitions"),
        (constant_shape, "b"),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_verifier_names_step_and_node(good, damage, node):
    verify(good, "partition")
    damage(good)
    with pytest.raises(VerifyError) as caught:
        verify(good, "partition")
    assert "after step 'partition'" in str(caught.value) and node in str(caught.value) and "\n" not in str(caught.value)


def test_constants_that_differ_along_another_axis(build, weights, placed):
    """[8] lies along the width of an N, C, H, W map: the reason names both shapes."""
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        ("Add", ["t", "row"], ["a"], {}, "add"),
        ("Conv", ["a", "w"], ["y"], CONV, "last"),
    ]
    graph = placed(build(nodes, constants={"w": weights(4, 4, 3, 3), "row": weights(8)}))
    add = graph.node("add")
    assert add.device == "CPU" and add.reason == f"{step.CONSTANT_REASON} (this one is [8], its tensor [1, 4, 8, 8])"
    assert "N, C, H, W" in remedy(add, graph)


def test_a_small_product_with_constant_weights_is_not_asked_for_them(build, weights, placed):
    nodes = [
        ("MatMul", ["x", "a"], ["t"], {}, "small"),
        ("Conv", ["t", "w"], ["y"], CONV, "last"),
    ]
    graph = placed(build(nodes, constants={"w": weights(4, 4, 3, 3), "a": weights(8, 8)}))
    product = graph.node("small")
    assert product.device == "CPU" and "constant" not in remedy(product, graph)
