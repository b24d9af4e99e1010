"""Products of tokens with constant weights as convolutions: equal to ONNX Runtime, on the NPU where it pays, without a move left between maps."""

from __future__ import annotations

import numpy as np
import pytest

from npuforge.compile.steps import token_maps

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
FLATTEN = [
    ("Reshape", ["t", "flat"], ["f"], {}),
    ("Transpose", ["f"], ["tokens"], {"perm": [0, 2, 1]}),
]
BACK = [
    ("Transpose", ["z"], ["zt"], {"perm": [0, 2, 1]}),
    ("Reshape", ["zt", "map"], ["m"], {}),
    ("Conv", ["m", "w2"], ["y"], CONV, "last"),
]
MLP = [
    ("MatMul", ["tokens", "up"], ["a"], {}, "up"),
    ("Add", ["a", "ub"], ["b"], {}, "up_bias"),
    ("Relu", ["b"], ["c"], {}, "relu"),
    ("MatMul", ["c", "down"], ["d"], {}, "down"),
    ("Add", ["db", "d"], ["e"], {}, "down_bias"),
    ("Add", ["tokens", "e"], ["z"], {}, "residual"),
]


@pytest.fixture
def constants(weights):
    """A map of 16 channels, 12 x 10."""
    return {
        "w": weights(16, 3, 3, 3),
        "w2": weights(5, 16, 3, 3),
        "flat": np.array([1, 16, 120]),
        "map": np.array([1, 16, 12, 10]),
        "up": weights(16, 64),
        "ub": weights(64),
        "down": weights(64, 16),
        "db": weights(1, 1, 16),
    }


@pytest.fixture(autouse=True)
def slow_cpu(monkeypatch):
    """The tests' networks are small: a CPU for which every product pays."""
    monkeypatch.setattr(token_maps, "CPU_MACS_PER_SECOND", 1e6)


def test_perceptron_between_convolutions_runs_with_them(build, same, constants):
    nodes = [("Conv", ["x", "w"], ["t"], CONV, "first"), *FLATTEN, *MLP, *BACK]
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants=constants), place=True)
    assert [p.device for p in graph.partitions] == ["NPU"]
    assert [n.op for n in graph.nodes if n.op != "ChannelGather"] == ["Conv", "Conv", "Conv", "Add", "Conv"]
    up = next(n for n in graph.nodes if n.op == "Conv" and "up" in n.sources)
    assert up.activation.kind == "Relu" and {"up", "up_bias", "relu"} <= set(up.sources)
    assert graph.tensors[up.outputs[0]].shape == (1, 64, 12, 10)


def test_tokens_from_a_channels_last_reshape(build, same, constants):
    start = [("Transpose", ["t"], ["n"], {"perm": [0, 2, 3, 1]}), ("Reshape", ["n", "rows"], ["tokens"], {})]
    end = [
        ("Reshape", ["z", "square"], ["s"], {}),
        ("Transpose", ["s"], ["m"], {"perm": [0, 3, 1, 2]}),
        ("Conv", ["m", "w2"], ["y"], CONV, "last"),
    ]
    given = {**constants, "rows": np.array([1, 120, 16]), "square": np.array([1, 12, 10, 16])}
    nodes = [("Conv", ["x", "w"], ["t"], CONV, "first"), *start, *MLP, *end]
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants=given), place=True)
    assert [p.device for p in graph.partitions] == ["NPU"]


def test_what_stands_between_stays_on_the_cpu(build, same, constants, weights):
    """LayerNormalization of tokens: the products around it are convolutions, their borders moves."""
    norm = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        *FLATTEN,
        ("LayerNormalization", ["tokens", "gamma", "beta"], ["normal"], {"axis": -1}, "norm"),
    ]
    mlp = [(op, ["normal" if t == "tokens" and op == "MatMul" else t for t in i], *rest) for op, i, *rest in MLP]
    given = {**constants, "gamma": weights(16), "beta": weights(16)}
    graph = same(
        build([*norm, *mlp, *BACK], shape=(1, 3, 12, 10), constants=given, opset=17), place=True, tolerance=2e-5
    )
    assert [p.device for p in graph.partitions] == ["NPU", "CPU", "NPU"]
    assert "norm" in [n.name for n in graph.nodes if n.device == "CPU"]
    assert "MatMul" not in [n.op for n in graph.nodes]


def test_tokens_that_were_no_map_are_one_row(build, same, weights):
    nodes = [
        ("MatMul", ["x", "a"], ["t"], {}, "a"),
        ("Sigmoid", ["t"], ["s"], {}),
        ("MatMul", ["s", "b"], ["y"], {}, "b"),
    ]
    model = build(nodes, shape=(1, 30, 8), constants={"a": weights(8, 20), "b": weights(20, 6)})
    graph = same(model, place=True)
    assert [n.op for n in graph.nodes].count("Conv") == 2
    assert graph.tensors[next(n for n in graph.nodes if n.op == "Conv").outputs[0]].shape == (1, 20, 1, 30)


def test_products_of_two_computed_tensors_stay(build, same, weights):
    nodes = [
        ("MatMul", ["x", "q"], ["a"], {}, "q"),
        ("MatMul", ["x", "k"], ["b"], {}, "k"),
        ("Transpose", ["b"], ["bt"], {"perm": [0, 2, 1]}),
        ("MatMul", ["a", "bt"], ["s"], {}, "scores"),
        ("Softmax", ["s"], ["y"], {"axis": -1}),
    ]
    graph = same(build(nodes, shape=(1, 30, 8), constants={"q": weights(8, 20), "k": weights(8, 20)}), place=True)
    assert [n.name for n in graph.nodes if n.op == "MatMul"] == ["scores"]
    assert [n.op for n in graph.nodes].count("Conv") == 2


@pytest.mark.parametrize("shape", [(2, 30, 8), (1, 30, 8)])
def test_what_does_not_pay_or_fit_stays(build, same, weights, monkeypatch, shape):
    monkeypatch.setattr(token_maps, "CPU_MACS_PER_SECOND", 1e9)  # 4,800 products: 5 microseconds, an entry costs 100
    graph = same(build([("MatMul", ["x", "a"], ["y"], {})], shape=shape, constants={"a": weights(8, 20)}), place=True)
    assert [n.op for n in graph.nodes] == ["MatMul"]
    assert graph.nodes[0].device == "CPU"


def test_a_vector_along_the_tokens_is_no_bias(build, same, weights):
    """[30, 1] adds one number per token."""
    nodes = [("MatMul", ["x", "a"], ["t"], {}, "a"), ("Add", ["t", "position"], ["y"], {}, "add")]
    graph = same(build(nodes, shape=(1, 30, 8), constants={"a": weights(8, 30), "position": weights(30, 1)}))
    assert "Add" in [n.op for n in graph.nodes] and "Conv" in [n.op for n in graph.nodes]


@pytest.mark.parametrize("norm", [False, True], ids=["Keras' Dense", "ConvNeXt"])
def test_channels_last_maps(build, same, constants, weights, norm):
    """[1, H, W, C] between the transposes of two convolutions: one NPU region, or two around a LayerNormalization that the CPU computes."""
    start = [("Transpose", ["t"], ["tokens"], {"perm": [0, 2, 3, 1]})]
    mlp = list(MLP)
    if norm:
        start.append(("LayerNormalization", ["tokens", "gamma", "beta"], ["normal"], {"axis": -1}, "norm"))
        mlp[0] = ("MatMul", ["normal", "up"], ["a"], {}, "up")
    end = [("Transpose", ["z"], ["m"], {"perm": [0, 3, 1, 2]}), ("Conv", ["m", "w2"], ["y"], CONV, "last")]
    given = {**constants, "gamma": weights(16), "beta": weights(16)}
    nodes = [("Conv", ["x", "w"], ["t"], CONV, "first"), *start, *mlp, *end]
    model = build(nodes, shape=(1, 3, 12, 10), constants=given, opset=17)
    graph = same(model, place=True, tolerance=2e-5)
    assert [p.device for p in graph.partitions] == (["NPU", "CPU", "NPU"] if norm else ["NPU"])
    assert "MatMul" not in [n.op for n in graph.nodes]
    assert ("Transpose" in [n.op for n in graph.nodes]) == norm


def test_product_along_the_width_of_a_map(build, same, weights):
    """Of a map in N, C, H, W the last axis is no channel, the result the same all the same."""
    nodes = [("MatMul", ["x", "a"], ["t"], {}, "a"), ("Relu", ["t"], ["y"], {})]
    same(build(nodes, shape=(1, 3, 12, 10), constants={"a": weights(10, 7)}), place=True)


def test_products_count_as_multiply_accumulates(build, compiled, weights):
    nodes = [("MatMul", ["x", "x"], ["y"], {})]
    graph = compiled(build(nodes, shape=(2, 30, 30)))
    assert token_maps.macs(graph.nodes[0], graph) == 2 * 30 * 30 * 30


TO_LAST, TO_FIRST = {"perm": [0, 2, 3, 1]}, {"perm": [0, 3, 1, 2]}


def test_products_on_a_channels_last_map(build, same, constants, weights):
    """A ConvNeXt block: Transpose → MatMul, Add, GELU, MatMul, Add, Mul → Transpose → Add of the block's input."""
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        ("Transpose", ["t"], ["tokens"], TO_LAST),
        *MLP[:2],
        ("Div", ["b", "root"], ["g0"], {}),
        ("Erf", ["g0"], ["g1"], {}),
        ("Add", ["g1", "one"], ["g2"], {}),
        ("Mul", ["b", "g2"], ["g3"], {}),
        ("Mul", ["g3", "half"], ["c"], {}),
        *MLP[3:5],
        ("Mul", ["e", "gamma"], ["z"], {}),
        ("Transpose", ["z"], ["back"], TO_FIRST),
        ("Add", ["t", "back"], ["m"], {}, "residual"),
        BACK[-1],
    ]
    given = {
        **constants,
        "root": np.float32(2**0.5),
        "one": np.float32(1),
        "half": np.float32(0.5),
        "gamma": weights(16),
    }
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants=given), place=True)
    assert [p.device for p in graph.partitions] == ["NPU"]
    assert [n.op for n in graph.nodes] == ["Conv", "Conv", "Conv", "Add", "Conv"]
    assert graph.nodes[1].activation.kind == "Gelu"


@pytest.mark.parametrize("rows", [(30, 4, 16), (5, 6, 4, 16), (2, 3, 5, 4, 16), (120, 16)])
def test_windows_and_rows(build, same, constants, rows):
    """Tokens behind any number of axes (windows of a Swin block, a batch, rows that a tensordot makes): all products on the NPU."""
    start = [("Transpose", ["t"], ["n"], TO_LAST), ("Reshape", ["n", "rows"], ["tokens"], {})]
    end = [("Reshape", ["z", "square"], ["s"], {}), ("Transpose", ["s"], ["m"], TO_FIRST), BACK[-1]]
    bias = {"db": constants["db"].reshape(16)} if len(rows) == 2 else {}
    given = {**constants, **bias, "rows": np.array(rows), "square": np.array([1, 12, 10, 16])}
    nodes = [("Conv", ["x", "w"], ["t"], CONV, "first"), *start, *MLP, *end]
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants=given), place=True)
    assert not any(n.op == "MatMul" for n in graph.nodes)
    assert all(n.device == "NPU" for n in graph.nodes if n.op == "Conv")
    if len(rows) in (2, 3):  # in the order of the map's pixels
        assert [p.device for p in graph.partitions] == ["NPU"]


@pytest.mark.parametrize("shift", [False, True])
def test_windows_keep_the_pixels_of_their_map(build, same, constants, shift):
    """Window partition (of a map that may be rolled) and its reverse, as in a Swin block: the products work on the map itself, no move is left."""
    given = {**constants, "parts": np.array([1, 16, 4, 3, 5, 2]), "windows": np.array([20, 6, 16])}
    given |= {
        "apart": np.array([1, 4, 5, 3, 2, 16]),
        "one": np.array([1]),
        "end": np.array([99]),
        "up_to": np.array([11]),
    }
    given |= {"zero": np.array([0]), "axis": np.array([2])}
    start = [("Conv", ["x", "w"], ["t"], CONV, "first")]
    rolled, back = "t", "m"
    if shift:
        rolled, back = "rolled", "unrolled"
        start += [
            ("Slice", ["t", "one", "end", "axis"], ["lower"], {}),
            ("Slice", ["t", "zero", "one", "axis"], ["upper"], {}),
            ("Concat", ["lower", "upper"], ["rolled"], {"axis": 2}),
        ]
    nodes = [
        *start,
        ("Reshape", [rolled, "parts"], ["p"], {}),
        ("Transpose", ["p"], ["q"], {"perm": [0, 2, 4, 3, 5, 1]}),
        ("Reshape", ["q", "windows"], ["tokens"], {}),
        *MLP,
        ("Reshape", ["z", "apart"], ["r"], {}),
        ("Transpose", ["r"], ["s"], {"perm": [0, 5, 1, 3, 2, 4]}),
        ("Reshape", ["s", "map"], ["m"], {}),
    ]
    if shift:
        nodes += [
            ("Slice", ["m", "zero", "up_to", "axis"], ["low"], {}),
            ("Slice", ["m", "up_to", "end", "axis"], ["high"], {}),
            ("Concat", ["high", "low"], ["unrolled"], {"axis": 2}),
        ]
    nodes.append(("Conv", [back, "w2"], ["y"], CONV, "last"))
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants=given), place=True)
    assert [p.device for p in graph.partitions] == ["NPU"]
    assert [n.op for n in graph.nodes if n.op != "ChannelGather"] == ["Conv", "Conv", "Conv", "Add", "Conv"]


def test_windows_that_are_not_put_back(build, same, constants):
    """The tokens leave in the order in which they came."""
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        ("Reshape", ["t", "parts"], ["p"], {}),
        ("Transpose", ["p"], ["q"], {"perm": [0, 2, 4, 3, 5, 1]}),
        ("Reshape", ["q", "windows"], ["tokens"], {}),
        *MLP,
        ("Softmax", ["z"], ["y"], {"axis": 1}),
    ]
    given = {**constants, "parts": np.array([1, 16, 4, 3, 5, 2]), "windows": np.array([20, 6, 16])}
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants=given), place=True)
    assert "MatMul" not in [n.op for n in graph.nodes]


def test_gemm_of_many_rows(build, same, constants, weights):
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        ("Transpose", ["t"], ["n"], TO_LAST),
        ("Reshape", ["n", "rows"], ["r"], {}),
        ("Gemm", ["r", "a", "c"], ["z"], {"transB": 1, "alpha": 0.5, "beta": 2.0}, "gemm"),
        ("Reshape", ["z", "square"], ["s"], {}),
        ("Transpose", ["s"], ["m"], TO_FIRST),
        BACK[-1],
    ]
    given = {"rows": np.array([120, 16]), "square": np.array([1, 12, 10, 16]), "a": weights(16, 16), "c": weights(16)}
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants={**constants, **given}), place=True)
    assert [n.op for n in graph.nodes] == ["Conv", "Conv", "Conv"]


@pytest.mark.parametrize("rank", [2, 3])
def test_weights_on_the_left(build, same, constants, rank):
    """W @ X with the channels of X [1, channels, pixels] summed over."""
    given = {
        **constants,
        "flat": np.array([1, 16, 120][3 - rank :]),
        "up": np.ascontiguousarray(constants["up"].T),
        "down": np.ascontiguousarray(constants["down"].T),
        "ub": constants["ub"].reshape(-1, 1),
        "db": constants["db"].reshape(-1, 1),
    }
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        ("Reshape", ["t", "flat"], ["tokens"], {}),
        ("MatMul", ["up", "tokens"], ["a"], {}),
        *MLP[1:3],
        ("MatMul", ["down", "c"], ["d"], {}),
        *MLP[4:],
        ("Reshape", ["z", "map"], ["m"], {}),
        BACK[-1],
    ]
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants=given), place=True)
    assert [p.device for p in graph.partitions] == ["NPU"]
    assert [n.op for n in graph.nodes] == ["Conv", "Conv", "Conv", "Add", "Conv"]


def test_products_along_the_width_leave_the_map_before_them(build, same, constants, weights):
    """Of an N, C, H, W map the last axis is its width: the activation in front stays with its convolution."""
    nodes = [
        ("Conv", ["x", "w"], ["t"], CONV, "first"),
        ("Relu", ["t"], ["r"], {}, "relu"),
        ("MatMul", ["r", "wide"], ["m"], {}, "product"),
        BACK[-1],
    ]
    graph = same(build(nodes, shape=(1, 3, 12, 10), constants={**constants, "wide": weights(10, 10)}), place=True)
    assert graph.nodes[0].name == "first" and graph.nodes[0].activation.kind == "Relu"
    assert "MatMul" not in [n.op for n in graph.nodes]
