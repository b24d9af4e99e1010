"""Each fuse rule on a small graph against ONNX Runtime, with the cases where fusing would be wrong."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx
import pytest

CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
ONE = {"kernel_shape": [1, 1]}


def ops(graph):
    return [n.op for n in graph.nodes]


@pytest.fixture
def around(build, weights):
    """Conv → `nodes` (from `t` to `s`) → Conv, as a model."""

    def make(nodes, constants=None, outputs=("y",), opset=13, channels=4):
        chain = [("Conv", ["x", "w1"], ["t"], CONV, "first"), *nodes, ("Conv", ["s", "w2"], ["y"], ONE, "last")]
        own = {"w1": weights(4, 4, 3, 3), "w2": weights(3, channels, 1, 1)}
        return build(chain, constants={**own, **(constants or {})}, outputs=outputs, opset=opset)

    return make


F = np.float32
ACTIVATIONS = {
    "Relu": ([("Relu", ["t"], ["s"], {})], {}, 13),
    "LeakyRelu": ([("LeakyRelu", ["t"], ["s"], {"alpha": 0.3})], {}, 13),
    "Clip": ([("Clip", ["t", "lo", "hi"], ["s"], {})], {"lo": F(0), "hi": F(0.6)}, 13),
    "PRelu": (
        [("PRelu", ["t", "slope"], ["s"], {})],
        {"slope": np.linspace(-0.5, 0.5, 4, dtype=F).reshape(4, 1, 1)},
        13,
    ),
    "Silu": ([("Sigmoid", ["t"], ["g"], {}), ("Mul", ["g", "t"], ["s"], {})], {}, 13),
    "Mish": (
        [("Softplus", ["t"], ["p"], {}), ("Tanh", ["p"], ["g"], {}), ("Mul", ["t", "g"], ["s"], {})],
        {},
        13,
    ),
    "HardSwish": (
        [
            ("Add", ["t", "three"], ["a"], {}),
            ("Clip", ["a", "zero", "six"], ["c"], {}),
            ("Mul", ["t", "c"], ["m"], {}),
            ("Div", ["m", "six"], ["s"], {}),
        ],
        {"three": F(3), "zero": F(0), "six": F(6)},
        13,
    ),
    "HardSwish gate first": (
        [
            ("Add", ["t", "three"], ["a"], {}),
            ("Clip", ["a", "zero", "six"], ["c"], {}),
            ("Mul", ["c", "sixth"], ["m"], {}),
            ("Mul", ["m", "t"], ["s"], {}),
        ],
        {"three": F(3), "zero": F(0), "six": F(6), "sixth": F(1 / 6)},
        13,
    ),
    "HardSwish op": ([("HardSwish", ["t"], ["s"], {})], {}, 14),
    "HardSwish hard sigmoid": (
        [("HardSigmoid", ["t"], ["g"], {"alpha": 1 / 6, "beta": 0.5}), ("Mul", ["t", "g"], ["s"], {})],
        {},
        13,
    ),
    "HardSigmoid": ([("HardSigmoid", ["t"], ["s"], {"alpha": 0.25})], {}, 13),
    "Sigmoid": ([("Sigmoid", ["t"], ["s"], {})], {}, 13),
    "Tanh": ([("Tanh", ["t"], ["s"], {})], {}, 13),
    "Gelu": (
        [
            ("Div", ["t", "root"], ["d"], {}),
            ("Erf", ["d"], ["e"], {}),
            ("Add", ["e", "one"], ["p"], {}),
            ("Mul", ["t", "p"], ["m"], {}),
            ("Mul", ["m", "half"], ["s"], {}),
        ],
        {"root": F(math.sqrt(2)), "one": F(1), "half": F(0.5)},
        13,
    ),
    "Gelu half first": (
        [
            ("Div", ["t", "root"], ["d"], {}),
            ("Erf", ["d"], ["e"], {}),
            ("Add", ["e", "one"], ["p"], {}),
            ("Mul", ["t", "half"], ["m"], {}),
            ("Mul", ["m", "p"], ["s"], {}),
        ],
        {"root": F(math.sqrt(2)), "one": F(1), "half": F(0.5)},
        13,
    ),
    "CustomGELU": (
        [
            ("Pow", ["t", "three"], ["c"], {}),
            ("Mul", ["c", "k"], ["ck"], {}),
            ("Add", ["t", "ck"], ["a"], {}),
            ("Mul", ["a", "r"], ["ar"], {}),
            ("Tanh", ["ar"], ["h"], {}),
            ("Add", ["h", "one"], ["p"], {}),
            ("Mul", ["t", "p"], ["m"], {}),
            ("Mul", ["m", "half"], ["s"], {}),
        ],
        {"three": F(3), "k": F(0.044715), "r": F(math.sqrt(2 / math.pi)), "one": F(1), "half": F(0.5)},
        13,
    ),
}

ACTIVATIONS |= {
    "Silu by Exp": (
        [
            ("Neg", ["t"], ["n"], {}),
            ("Exp", ["n"], ["e"], {}),
            ("Add", ["e", "one"], ["p"], {}),
            ("Div", ["t", "p"], ["s"], {}),
        ],
        {"one": F(1)},
        13,
    ),
    "Sigmoid by Exp": (
        [
            ("Neg", ["t"], ["n"], {}),
            ("Exp", ["n"], ["e"], {}),
            ("Add", ["one", "e"], ["p"], {}),
            ("Reciprocal", ["p"], ["s"], {}),
        ],
        {"one": F(1)},
        13,
    ),
    "Mish by Exp and Log": (
        [
            ("Exp", ["t"], ["e"], {}),
            ("Add", ["e", "one"], ["p"], {}),
            ("Log", ["p"], ["l"], {}),
            ("Tanh", ["l"], ["g"], {}),
            ("Mul", ["t", "g"], ["s"], {}),
        ],
        {"one": F(1)},
        13,
    ),
    "Mish by quotient": (
        [
            ("Exp", ["t"], ["e"], {}),
            ("Add", ["two", "e"], ["p"], {}),
            ("Mul", ["e", "p"], ["n"], {}),
            ("Add", ["n", "two"], ["b"], {}),
            ("Div", ["n", "b"], ["g"], {}),
            ("Mul", ["t", "g"], ["s"], {}),
        ],
        {"two": F(2)},
        13,
    ),
    "Mish by product and quotient": (
        [
            ("Exp", ["t"], ["e"], {}),
            ("Mul", ["e", "e"], ["q"], {}),
            ("Mul", ["e", "two"], ["d"], {}),
            ("Add", ["d", "q"], ["n"], {}),
            ("Add", ["n", "two"], ["b"], {}),
            ("Mul", ["n", "t"], ["m"], {}),
            ("Div", ["m", "b"], ["s"], {}),
        ],
        {"two": F(2)},
        13,
    ),
    "LeakyRelu by Max": (
        [("Mul", ["t", "k"], ["m"], {}), ("Max", ["m", "t"], ["s"], {})],
        {"k": F(0.2)},
        13,
    ),
    "PRelu by two Relu": (
        [
            ("Relu", ["t"], ["p"], {}),
            ("Neg", ["t"], ["n"], {}),
            ("Relu", ["n"], ["r"], {}),
            ("Mul", ["k", "r"], ["m"], {}),
            ("Add", ["m", "p"], ["s"], {}),
        ],
        {"k": np.linspace(-0.5, 0.3, 4, dtype=F).reshape(1, 4, 1, 1)},
        13,
    ),
    "Clip by Max and Min": (
        [("Max", ["t", "lo"], ["m"], {}), ("Min", ["hi", "m"], ["s"], {})],
        {"lo": F(-0.2), "hi": F(0.4)},
        13,
    ),
    "Clip of Relu": ([("Relu", ["t"], ["m"], {}), ("Clip", ["m", "", "hi"], ["s"], {})], {"hi": F(0.4)}, 13),
    "HardSwish by Relu and Min": (
        [
            ("Add", ["t", "three"], ["a"], {}),
            ("Relu", ["a"], ["r"], {}),
            ("Min", ["r", "six"], ["c"], {}),
            ("Mul", ["t", "c"], ["m"], {}),
            ("Mul", ["m", "sixth"], ["s"], {}),
        ],
        {"three": F(3), "six": F(6), "sixth": F(1 / 6)},
        13,
    ),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_is_fused(around, same, name):
    nodes, constants, opset = ACTIVATIONS[name]
    graph = same(around(nodes, constants, opset=opset), 1e-4)
    assert ops(graph) == ["Conv", "Conv"]
    assert graph.nodes[0].activation.kind == name.split()[0]
    assert len(graph.nodes[0].sources) == 1 + len(nodes)


def test_quotient_with_another_number_is_no_mish(around, same):
    """n / (n + 3)"""
    nodes, constants, opset = ACTIVATIONS["Mish by quotient"]
    others = [(op, ["three" if t == "two" and o == ["b"] else t for t in i], o, a) for op, i, o, a in nodes]
    graph = same(around(others, {**constants, "three": F(3)}, opset=opset), 1e-4)
    assert "Mish" not in [n.activation.kind for n in graph.nodes]


ROUNDED = [
    "Gelu",
    "Gelu half first",
    "Gelu by product",
    "CustomGELU",
    "HardSwish gate first",
    "HardSwish by Relu and Min",
]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ROUNDED)
def test_constants_of_a_short_type(around, same, name, dtype):
    """A file of half or bfloat16 precision holds 1 / 6 or sqrt 2 rounded; it is the same function, within that type's step (2⁻⁸)."""
    nodes, constants, opset = ACTIVATIONS.get(name) or BY_PRODUCT
    rounded = {k: v.astype(dtype).astype(F) for k, v in constants.items()}
    graph = same(around(nodes, rounded, opset=opset), 2.0**-8)
    assert ops(graph) == ["Conv", "Conv"]
    assert graph.nodes[0].activation.kind == name.split()[0]


BY_PRODUCT = (
    [("Mul", ["t", "root"], ["d"], {}), *ACTIVATIONS["Gelu"][0][1:]],
    {**ACTIVATIONS["Gelu"][1], "root": F(0.5**0.5)},
    13,
)


@pytest.mark.parametrize("factor", [1.0005, 0.9992, 1.003])
def test_another_constant_is_another_function(around, same, factor):
    """Within a step of bfloat16, but nothing that a rounding gives."""
    nodes, constants, opset = ACTIVATIONS["CustomGELU"]
    graph = same(around(nodes, {**constants, "k": F(constants["k"] * factor)}, opset=opset), 1e-4)
    assert "CustomGELU" not in [n.activation.kind for n in graph.nodes]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0.2, 0.5), (-1.0, 0.3), (0.2, 0.3)),
        ((-0.1, 0.1), (0.2, 0.5), (0.2, 0.2)),
        ((0.3, 0.9), (-0.5, 0.1), (0.1, 0.1)),
    ],
)
def test_clip_of_clip(around, same, first, second, expected):
    """Also where the ranges do not meet: then everything is one number."""
    limits = dict(zip(("a", "b", "c", "d"), map(F, (*first, *second)), strict=True))
    graph = same(around([("Clip", ["t", "a", "b"], ["m"], {}), ("Clip", ["m", "c", "d"], ["s"], {})], limits))
    assert ops(graph) == ["Conv", "Conv"]
    assert (graph.nodes[0].activation.low, graph.nodes[0].activation.high) == pytest.approx(expected)


def test_parts_that_are_read_elsewhere_stay(around, same):
    nodes, constants, _ = ACTIVATIONS["Sigmoid by Exp"]
    graph = same(around([*nodes[:-1], ("Reciprocal", ["p"], ["q"], {}), ("Add", ["q", "e"], ["s"], {})], constants))
    assert "Exp" in ops(graph) and "Sigmoid" not in [n.activation.kind for n in graph.nodes]


def test_leaky_relu_above_one_is_none(around, same):
    """Max(x, 2x) is 2x where x is positive."""
    graph = same(around([("Mul", ["t", "k"], ["m"], {}), ("Max", ["m", "t"], ["s"], {})], {"k": F(2)}))
    assert "LeakyRelu" not in [n.activation.kind for n in graph.nodes]


LAYER_NORM = [
    ("ReduceMean", ["t"], ["m"], {"axes": [-1]}),
    ("Sub", ["t", "m"], ["d"], {}),
    ("Pow", ["d", "two"], ["q"], {}),
    ("ReduceMean", ["q"], ["v"], {"axes": [-1]}),
    ("Add", ["v", "eps"], ["e"], {}),
    ("Sqrt", ["e"], ["r"], {}),
    ("Div", ["d", "r"], ["n"], {}),
]
NORM_CONSTANTS = {
    "two": F(2),
    "eps": F(1e-5),
    "g": np.linspace(0.5, 2, 8, dtype=F),
    "b": np.linspace(-1, 1, 8, dtype=F),
}


@pytest.mark.parametrize("tail", ["scale and shift", "shift", "none"])
def test_layer_normalization_in_parts(around, same, tail):
    steps = {"scale and shift": [("Mul", "g"), ("Add", "b")], "shift": [("Add", "b")], "none": []}[tail]
    nodes, current = list(LAYER_NORM), "n"
    for op, constant in steps:
        nodes.append((op, [current, constant], [f"{current}{constant}"], {}))
        current += constant
    nodes.append(("Atan", [current], ["s"], {}))
    graph = same(around(nodes, NORM_CONSTANTS))
    assert ops(graph) == ["Conv", "LayerNormalization", "Atan", "Conv"]
    assert len(graph.nodes[1].sources) == 7 + len(steps)


def test_a_variance_about_another_mean_is_no_layer_normalization(around, same):
    nodes = [
        n if n[0] != "ReduceMean" or n[2] != ["v"] else ("ReduceMean", ["q"], ["v"], {"axes": [-2]}) for n in LAYER_NORM
    ]
    graph = same(around([*nodes, ("Atan", ["n"], ["s"], {})], NORM_CONSTANTS))
    assert "LayerNormalization" not in ops(graph)


def test_affine_of_affine_is_one(around, same):
    """HardSwish, then a learned scale and shift (PP-LCNet): one Affine in front of the bordered convolution that cannot take the shift."""
    nodes = [("HardSwish", ["t"], ["h"], {}), ("Mul", ["h", "k"], ["m"], {}), ("Add", ["m", "c"], ["a"], {})]
    chain = around(nodes, {"k": F(0.7), "c": F(-0.4)}, opset=14)
    chain.graph.node[-1].input[0] = "a"
    chain.graph.node[-1].attribute.append(onnx.helper.make_attribute("pads", [1, 1, 1, 1]))
    graph = same(chain)
    assert ops(graph) == ["Conv", "Affine", "Conv"]
    assert graph.nodes[1].attrs["scale"] == pytest.approx([0.7] * 4) and graph.nodes[1].attrs["bias"] == pytest.approx(
        [-0.4] * 4
    )


def test_relu6_has_limits(around, same):
    graph = same(around([("Clip", ["t", "lo", "hi"], ["s"], {})], {"lo": F(0), "hi": F(6)}))
    assert (graph.nodes[0].activation.low, graph.nodes[0].activation.high) == (0.0, 6.0)


def test_clip_9_attributes(around, same):
    graph = same(around([("Clip", ["t"], ["s"], {"min": 0.0, "max": 6.0})], opset=9))
    assert graph.nodes[0].activation.kind == "Clip" and graph.nodes[0].activation.high == 6.0


def test_pre_activation_with_a_second_reader_is_not_fused(around, same):
    nodes = [("Relu", ["t"], ["r"], {}), ("Add", ["r", "t"], ["s"], {})]
    graph = same(around(nodes))
    assert ops(graph) == ["Conv", "Affine", "Add", "Conv"]
    assert graph.nodes[0].activation.kind == "none" and graph.nodes[1].activation.kind == "Relu"


def test_pre_activation_that_is_an_output_is_not_fused(around, same):
    graph = same(around([("Relu", ["t"], ["s"], {})], outputs=["y", "t"]))
    assert ops(graph) == ["Conv", "Affine", "Conv"] and graph.nodes[0].outputs == ["t"]


def test_sigmoid_that_is_read_elsewhere_is_no_silu(around, same):
    nodes = [("Sigmoid", ["t"], ["g"], {}), ("Mul", ["g", "t"], ["m"], {}), ("Add", ["m", "g"], ["s"], {})]
    graph = same(around(nodes))
    assert "Silu" not in [n.activation.kind for n in graph.nodes]


def test_gate_of_another_tensor_is_no_silu(around, same):
    nodes = [("Sigmoid", ["t"], ["g"], {}), ("Mul", ["g", "x"], ["s"], {})]
    graph = same(around(nodes))
    assert ops(graph) == ["Conv", "Mul", "Conv"] and graph.nodes[0].activation.kind == "Sigmoid"


def test_hard_swish_with_another_offset_is_not_recognised(around, same):
    nodes, constants, _ = ACTIVATIONS["HardSwish"]
    graph = same(around(nodes, {**constants, "three": F(2)}))
    assert "HardSwish" not in [n.activation.kind for n in graph.nodes]


def test_residual_add_takes_the_activation(around, same):
    nodes = [("Add", ["t", "x"], ["a"], {}), ("LeakyRelu", ["a"], ["s"], {"alpha": 0.1})]
    graph = same(around(nodes))
    assert ops(graph) == ["Conv", "Add", "Conv"] and graph.nodes[1].activation.kind == "LeakyRelu"


def test_sigmoid_after_the_last_convolution_stays_in_float(build, same, weights):
    nodes = [("Conv", ["x", "w"], ["t"], CONV), ("Sigmoid", ["t"], ["y"], {})]
    graph = same(build(nodes, constants={"w": weights(3, 4, 3, 3)}), place=True)
    assert (
        ops(graph) == ["Conv", "Sigmoid"]
        and graph.nodes[1].device == "CPU"
        and "no convolution follows" in graph.nodes[1].reason
    )


def test_leaky_relu_after_the_last_convolution_is_fused(build, same, weights):
    nodes = [("Conv", ["x", "w"], ["t"], CONV), ("LeakyRelu", ["t"], ["y"], {"alpha": 0.1})]
    assert ops(same(build(nodes, constants={"w": weights(3, 4, 3, 3)}))) == ["Conv"]


# ---- channel movement
def shuffle(groups, c=4, h=8):
    return (
        [
            ("Reshape", ["t", "s1"], ["a"], {}),
            ("Transpose", ["a"], ["b"], {"perm": [0, 2, 1, 3, 4]}),
            ("Reshape", ["b", "s2"], ["s"], {}),
        ],
        {"s1": np.array([1, groups, c // groups, h, h]), "s2": np.array([1, -1, h, h])},
    )


def test_channel_shuffle(around, same):
    graph = same(around(*shuffle(2)))
    assert ops(graph) == ["Conv", "ChannelGather", "Conv"] and graph.nodes[1].attrs["indices"] == [0, 2, 1, 3]


def test_two_shuffles_compose(around, same, weights):
    first, constants = shuffle(2)
    second = [
        ("Split", ["s", "parts"], ["p", "q"], {"axis": 1}),
        ("Concat", ["q", "p"], ["z"], {"axis": 1}),
    ]
    renamed = [(op, [i if i != "s" else "s0" for i in ins], outs, at) for op, ins, outs, at in second]
    first = [(op, ins, [o if o != "s" else "s0" for o in outs], at) for op, ins, outs, at in first]
    renamed[-1] = ("Concat", ["q", "p"], ["s"], {"axis": 1})
    graph = same(around(first + renamed, {**constants, "parts": np.array([2, 2])}))
    assert ops(graph) == ["Conv", "ChannelGather", "Conv"] and graph.nodes[1].attrs["indices"] == [1, 3, 0, 2]


def test_spatial_transpose_is_no_channel_gather(around, same):
    graph = same(around([("Transpose", ["t"], ["s"], {"perm": [0, 1, 3, 2]})]))
    assert ops(graph) == ["Conv", "Transpose", "Conv"]


def test_spatial_slice_is_no_channel_gather(around, same):
    cut = {"b": np.array([1]), "e": np.array([7]), "a": np.array([2])}
    graph = same(around([("Slice", ["t", "b", "e", "a"], ["s"], {})], cut))
    assert ops(graph) == ["Conv", "Slice", "Conv"]


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_split(around, same, opset):
    attrs = {"axis": 1, "split": [1, 3]} if opset < 13 else {"axis": 1}
    nodes = [("Split", ["t"] if opset < 13 else ["t", "parts"], ["p", "s"], attrs)]
    graph = same(
        around(nodes, {"parts": np.array([1, 3])} if opset >= 13 else {}, channels=3, outputs=["y", "p"], opset=opset)
    )
    gathers = {n.outputs[0]: n.attrs["indices"] for n in graph.nodes if n.op == "ChannelGather"}
    assert gathers["s"] == [1, 2, 3]
    assert all(n.op in ("Conv", "ChannelGather", "Split") for n in graph.nodes)


def test_concat_with_zeros(around, same):
    nodes = [("Concat", ["t", "zeros"], ["s"], {"axis": 1})]
    graph = same(around(nodes, {"zeros": np.zeros((1, 2, 8, 8), F)}, channels=6))
    assert graph.nodes[1].op == "ChannelGather" and graph.nodes[1].attrs["indices"] == [0, 1, 2, 3, -1, -1]


def test_concat_with_ones_is_not_zeros(around, same):
    nodes = [("Concat", ["t", "ones"], ["s"], {"axis": 1})]
    graph = same(around(nodes, {"ones": np.ones((1, 2, 8, 8), F)}, channels=6))
    assert ops(graph) == ["Conv", "Concat", "Conv"]


def test_pad_of_channels(around, same):
    nodes = [("Pad", ["t", "p"], ["s"], {})]
    graph = same(around(nodes, {"p": np.array([0, 0, 0, 0, 0, 2, 0, 0])}, channels=6))
    assert graph.nodes[1].op == "ChannelGather" and graph.nodes[1].attrs["indices"] == [0, 1, 2, 3, -1, -1]


def test_concat_of_two_maps_stays(around, same):
    graph = same(around([("Concat", ["t", "x"], ["s"], {"axis": 1})], channels=8))
    assert ops(graph) == ["Conv", "Concat", "Conv"]


@pytest.mark.parametrize(
    "order", [[(0, 0), (1, 0), (0, 1), (1, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]], ids=["yolox", "onnx"]
)
def test_focus(build, same, weights, order):
    nodes, constants = [], {"e": np.array([2**31, 2**31]), "ax": np.array([2, 3]), "st": np.array([2, 2])}
    for i, start in enumerate(order):
        constants[f"b{i}"] = np.array(start)
        nodes.append(("Slice", ["x", f"b{i}", "e", "ax", "st"], [f"p{i}"], {}))
    nodes += [("Concat", [f"p{i}" for i in range(4)], ["c"], {"axis": 1}), ("Conv", ["c", "w"], ["y"], CONV)]
    graph = same(build(nodes, shape=(1, 3, 8, 6), constants={**constants, "w": weights(5, 12, 3, 3)}))
    onnx_order = order[1] == (0, 1)
    assert ops(graph) == (["SpaceToDepth", "Conv"] if onnx_order else ["SpaceToDepth", "ChannelGather", "Conv"])


def test_focus_with_nested_slices(build, same, weights):
    constants = {"end": np.array([2**31]), "two": np.array([2]), "h": np.array([2]), "w_": np.array([3])}
    nodes = []
    for by in (0, 1):
        constants[f"s{by}"] = np.array([by])
        nodes.append(("Slice", ["x", f"s{by}", "end", "h", "two"], [f"row{by}"], {}))
    for bx in (0, 1):
        for by in (0, 1):
            nodes.append(("Slice", [f"row{by}", f"s{bx}", "end", "w_", "two"], [f"p{by}{bx}"], {}))
    nodes += [("Concat", ["p00", "p10", "p01", "p11"], ["c"], {"axis": 1}), ("Conv", ["c", "w"], ["y"], CONV)]
    graph = same(build(nodes, shape=(1, 3, 8, 8), constants={**constants, "w": weights(5, 12, 3, 3)}))
    assert ops(graph) == ["SpaceToDepth", "ChannelGather", "Conv"]


def test_shifted_phase_is_no_focus(build, same, weights):
    constants = {"b": np.array([2, 0]), "e": np.array([2**31, 2**31]), "ax": np.array([2, 3]), "st": np.array([2, 2])}
    nodes = [("Slice", ["x", "b", "e", "ax", "st"], ["c"], {}), ("Conv", ["c", "w"], ["y"], CONV)]
    graph = same(build(nodes, constants={**constants, "w": weights(5, 4, 3, 3)}))
    assert ops(graph) == ["Slice", "Conv"]


# ---- windows and resize
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [7, 8])
def test_auto_pad_convolution(build, same, weights, mode, size):
    attrs = {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": mode}
    graph = same(
        build([("Conv", ["x", "w"], ["y"], attrs)], shape=(1, 4, size, size), constants={"w": weights(5, 4, 3, 2)})
    )
    assert "auto_pad" not in graph.nodes[0].attrs


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 2], "output_padding": [1, 0], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "output_shape": [15, 16]},
        {"strides": [2, 1], "pads": [0, 1, 1, 0]},
    ],
)
def test_transposed_convolution(build, same, weights, attrs):
    graph = same(build([("ConvTranspose", ["x", "w"], ["y"], attrs)], constants={"w": weights(4, 5, 3, 3)}))
    assert set(graph.nodes[0].attrs) == {"kernel_shape", "strides", "dilations", "output_padding", "pads", "group"}
    assert len(graph.nodes[0].inputs) == 3


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("extra", [{}, {"pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_LOWER"}])
def test_pools(build, same, weights, op, ceil, extra):
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 0 if "auto_pad" in extra else ceil, **extra}
    nodes = [(op, ["x"], ["t"], attrs), ("Conv", ["t", "w"], ["y"], ONE)]
    graph = same(build(nodes, constants={"w": weights(5, 4, 1, 1)}))
    assert "ceil_mode" not in graph.nodes[0].attrs and len(graph.nodes[0].attrs["ceil_pads"]) == 4


@pytest.mark.parametrize("scales", [(0.6, 2.3), (2.3, 0.6), (0.5, 2.0), (1.0, 0.4), (1.7, 1.0), (0.7, 0.3)])
def test_the_old_nearest_resize_grows_downwards_and_shrinks_upwards(build, same, scales):
    """Operator set 10, axis by axis, as ONNX Runtime."""
    constants = {"scales": np.array([1, 1, *scales], np.float32)}
    same(build([("Resize", ["x", "scales"], ["y"], {"mode": "nearest"})], constants=constants, opset=10))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_to_the_strides_multiple_ignores_output_padding(build, same, weights, mode):
    """ONNX's text and ONNX Runtime; ONNX's shape inference adds it."""
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": mode, "output_padding": [1, 1]}
    graph = same(build([("ConvTranspose", ["x", "w"], ["y"], attrs)], constants={"w": weights(4, 5, 3, 3)}))
    assert graph.tensors[graph.outputs[0]].shape == (1, 5, 16, 16)


@pytest.mark.parametrize("opset", [11, 18, 20, 22])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("kernel", "pad", "size"), [(2, 1, 33), (1, 0, 32), (3, 1, 32), (3, 0, 32), (2, 0, 33), (2, 1, 32)]
)
def test_a_window_behind_the_map_does_not_count_in_ceil_mode(build, same, op, kernel, pad, size, opset):
    """Of any operator set: ONNX's own shape inference has such windows before 22, ONNX Runtime and PyTorch never had them."""
    attrs = {"kernel_shape": [kernel] * 2, "strides": [2, 2], "pads": [pad] * 4, "ceil_mode": 1}
    graph = same(build([(op, ["x"], ["y"], attrs)], shape=(1, 4, size, size), opset=opset))
    sides = {(2, 1, 33): 17, (1, 0, 32): 16, (3, 1, 32): 17, (3, 0, 32): 16, (2, 0, 33): 17, (2, 1, 32): 17}
    assert graph.tensors[graph.outputs[0]].shape == (1, 4, *[sides[kernel, pad, size]] * 2)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "ReduceMean"])
def test_global_pools(build, same, weights, op):
    attrs = {"axes": [2, 3]} if op == "ReduceMean" else {}
    nodes = [(op, ["x"], ["t"], attrs), ("Conv", ["t", "w"], ["y"], ONE)]
    graph = same(build(nodes, constants={"w": weights(5, 4, 1, 1)}))
    assert graph.nodes[0].op in ("AveragePool", "MaxPool") and graph.nodes[0].attrs["kernel_shape"] == [8, 8]


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[1], [1, 2, 3]])
def test_other_means_are_no_pool(build, compiled, weights, axes, keep):
    nodes = [("ReduceMean", ["x"], ["t"], {"axes": axes, "keepdims": keep}), ("Conv", ["x", "w"], ["y"], ONE)]
    graph = compiled(build(nodes, constants={"w": weights(5, 4, 1, 1)}, outputs=["y", "t"]))
    assert "AveragePool" not in ops(graph)


RESIZES = [
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
]


@pytest.mark.parametrize("attrs", RESIZES)
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_resize(build, same, weights, attrs, by):
    constants = {
        "w": weights(5, 4, 1, 1),
        "scales": F([1, 1, 1.7, 2]),
        "sizes": np.array([1, 4, 13, 16]),
        "none": F([]),
    }
    inputs = ["x", "none", "scales"] if by == "scales" else ["x", "none", "none", "sizes"]
    graph = same(
        build([("Resize", inputs, ["t"], attrs), ("Conv", ["t", "w"], ["y"], ONE)], constants=constants, opset=11)
    )
    assert graph.nodes[0].inputs == ["x"] and graph.nodes[0].attrs["sizes"] == [13, 16]
    assert graph.nodes[0].attrs["scales"] == pytest.approx([1.7 if by == "scales" else 13 / 8, 2.0])


def test_upsample_9(build, same, weights):
    nodes = [("Upsample", ["x", "s"], ["t"], {"mode": "nearest"}), ("Conv", ["t", "w"], ["y"], ONE)]
    graph = same(build(nodes, constants={"w": weights(5, 4, 1, 1), "s": F([1, 1, 2, 2])}, opset=9))
    assert graph.nodes[0].op == "Resize" and graph.nodes[0].attrs["coordinate_transformation_mode"] == "asymmetric"
    assert graph.nodes[0].attrs["sizes"] == [16, 16]


def test_cubic_resize_runs_on_the_cpu_with_a_reason(build, same, weights):
    nodes = [("Resize", ["x", "", "s"], ["t"], {"mode": "cubic"}), ("Conv", ["t", "w"], ["y"], ONE)]
    graph = same(build(nodes, constants={"w": weights(5, 4, 1, 1), "s": F([1, 1, 2, 2])}), place=True)
    assert graph.nodes[0].device == "CPU" and "cubic" in graph.nodes[0].reason
    assert [p.device for p in graph.partitions] == ["CPU", "NPU"]


# ---- element-wise
def test_small_operand_comes_second(around, same):
    nodes = [("GlobalAveragePool", ["t"], ["g"], {}), ("Mul", ["g", "t"], ["s"], {})]
    graph = same(around(nodes))
    assert graph.nodes[2].op == "Mul" and graph.nodes[2].inputs == ["t", "g"]


def test_sum_of_three(around, same):
    graph = same(around([("Relu", ["x"], ["r"], {}), ("Sum", ["t", "x", "r"], ["s"], {})]))
    assert ops(graph).count("Add") == 2


def test_stand_alone_scale(around, same):
    nodes = [("MaxPool", ["t"], ["m"], {**CONV}), ("Mul", ["m", "c"], ["a"], {}), ("Add", ["a", "d"], ["s"], {})]
    graph = same(around(nodes, {"c": F([[[2]], [[3]], [[-4]], [[5]]]), "d": F(0.5)}))
    assert ops(graph) == ["Conv", "MaxPool", "Conv"]  # no border in the last convolution: both go into it


def test_custom_activation(build, weights):
    from npuforge.compile.reference import GraphExecutor
    from npuforge.compile.steps.fold import fold
    from npuforge.compile.steps.fuse import fuse
    from npuforge.compile.steps.import_onnx import import_onnx

    nodes = [
        ("Conv", ["x", "w"], ["t"], ONE, "conv"),
        ("CustomGELU", ["t"], ["s"], {}, "gelu", "com.example"),
        ("Conv", ["s", "v"], ["y"], ONE, "last"),
    ]
    model = build(
        nodes,
        constants={"w": weights(4, 4, 1, 1), "v": np.eye(4, dtype=F).reshape(4, 4, 1, 1)},
        domains=["com.example"],
    )
    graph = fuse(fold(import_onnx(model).graph))
    assert ops(graph) == ["Conv", "Conv"] and graph.nodes[0].activation.kind == "CustomGELU"
    x = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(F)
    t = np.einsum("oi,nihw->nohw", graph.constants["w"][:, :, 0, 0].astype(np.float64), x)
    expected = 0.5 * t * (1 + np.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3)))
    assert np.abs(GraphExecutor(graph).run({"x": x})["y"] - expected).max() < 1e-5
