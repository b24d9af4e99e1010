"""Channels-last networks as tf2onnx and keras2onnx write them: one layout inside, no Transpose between convolutions, and the values of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from npuforge.compile.steps.partition import partition
from npuforge.quant.executor import ReferenceExecutor

CONV: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
ONE: dict[str, Any] = {"kernel_shape": [1, 1]}
TO_FIRST, TO_LAST = {"perm": [0, 3, 1, 2]}, {"perm": [0, 2, 3, 1]}
IMAGE = (1, 8, 6, 3)
F = np.float32


def block(source: str, target: str, weight: str, attrs: dict[str, Any] = CONV) -> list[tuple[Any, ...]]:
    """A convolution in its own layout between transposes."""
    return [
        ("Transpose", [source], [f"{target}_i"], TO_FIRST),
        ("Conv", [f"{target}_i", weight], [f"{target}_o"], attrs),
        ("Transpose", [f"{target}_o"], [target], TO_LAST),
    ]


MIDDLES: dict[str, tuple[list[tuple[Any, ...]], list[str]]] = {
    "bias and ReLU": ([("Add", ["a", "c4"], ["t"], {}), ("Relu", ["t"], ["m"], {})], ["Conv", "Conv"]),
    "scale per channel, negated": ([("Mul", ["c4", "a"], ["t"], {}), ("Neg", ["t"], ["m"], {})], ["Conv", "Conv"]),
    "PReLU": ([("PRelu", ["a", "c4"], ["m"], {})], ["Conv", "Conv"]),
    "SiLU": ([("Sigmoid", ["a"], ["t"], {}), ("Mul", ["a", "t"], ["m"], {})], ["Conv", "Conv"]),
    "squeeze and excite": (
        [("ReduceMean", ["a"], ["t"], {"axes": [1, 2]}), ("Sigmoid", ["t"], ["u"], {}), ("Mul", ["a", "u"], ["m"], {})],
        ["Conv", "AveragePool", "Affine", "Mul", "Conv"],
    ),
    "pad of height and width": ([("Pad", ["a", "pads"], ["m"], {})], ["Conv", "Conv"]),
    "residual": ([*block("a", "b", "w44"), ("Add", ["a", "b"], ["m"], {})], ["Conv", "Conv", "Add", "Conv"]),
    "concatenation": (
        [
            *block("a", "b", "w44"),
            ("Concat", ["b", "a"], ["t"], {"axis": 3}),
            ("Relu", ["t"], ["u"], {}),
            *block("u", "m", "w48", ONE),
        ],
        ["Conv", "Conv", "Concat", "Affine", "Conv", "Conv"],
    ),
    "a map along the width": ([("Mul", ["a", "row"], ["m"], {})], ["Conv", "Mul", "Conv"]),
}


def test_constant_maps_that_are_joined(build, same, weights):
    """Coordinates of the pixels beside a map (CoordConv in Keras): they turn with it."""
    nodes = [
        *block("x", "a", "w34"),
        ("Concat", ["a", "grid"], ["t"], {"axis": -1}),
        *block("t", "z", "w62"),
        ("Identity", ["z"], ["y"], {}),
    ]
    constants = {"w34": weights(4, 3, 3, 3), "w62": weights(2, 6, 3, 3), "grid": weights(1, 8, 6, 2)}
    graph = same(build(nodes, shape=IMAGE, constants=constants))
    assert [n.op for n in graph.nodes if n.op != "Transpose"] == ["Conv", "Concat", "Conv"]
    assert next(n for n in graph.nodes if n.op == "Concat").attrs["axis"] == 1


@pytest.mark.parametrize("name", MIDDLES)
def test_transposes_between_convolutions_vanish(build, same, weights, name):
    middle, wanted = MIDDLES[name]
    nodes = [*block("x", "a", "w34"), *middle, *block("m", "z", "w42", ONE), ("Identity", ["z"], ["y"], {})]
    constants = {
        "w34": weights(4, 3, 3, 3),
        "w44": weights(4, 4, 3, 3),
        "w48": weights(4, 8, 1, 1),
        "w42": weights(2, 4, 1, 1),
    }
    constants |= {"c4": weights(4), "pads": np.array([0, 1, 2, 0, 0, 0, 1, 0]), "row": weights(1, 1, 6, 1)}
    used = {t for n in nodes for t in n[1]}
    graph = same(build(nodes, shape=IMAGE, constants={k: v for k, v in constants.items() if k in used}), place=True)
    assert [n.op for n in graph.nodes] == [*wanted, "Transpose"] and graph.input_layout == {"x": "NHWC"}
    on_npu = [n.op for n in graph.nodes if n.device == "NPU"]
    assert on_npu == [op for op in wanted if (op, name) != ("Mul", "a map along the width")]


@pytest.mark.parametrize("name", ["scale and shift", "pad"])
def test_what_stands_before_the_first_transpose(build, same, weights, name):
    """Preprocessing in the graph, and TensorFlow's explicit pads of a strided convolution."""
    first = {
        "scale and shift": [("Div", ["x", "k"], ["s"], {}), ("Sub", ["s", "c3"], ["p"], {})],
        "pad": [("Pad", ["x", "pads"], ["p"], {})],
    }[name]
    nodes = [
        *first,
        ("Transpose", ["p"], ["i"], TO_FIRST),
        ("Conv", ["i", "w"], ["y"], {"kernel_shape": [3, 3], "strides": [2, 2]}),
    ]
    constants = {"k": F(127.5), "c3": weights(3), "pads": np.array([0, 0, 1, 0, 0, 1, 2, 0]), "w": weights(4, 3, 3, 3)}
    used = {t for n in nodes for t in n[1]}
    graph = same(build(nodes, shape=IMAGE, constants={k: v for k, v in constants.items() if k in used}), place=True)
    assert [n.op for n in graph.nodes] == ["Conv"] and graph.input_layout == {"x": "NHWC"}


def test_a_transpose_that_is_an_output_stays(build, same, weights):
    nodes = [*block("x", "a", "w34"), ("Relu", ["a"], ["y"], {}), *block("y", "z", "w42", ONE)]
    graph = same(
        build(
            nodes, shape=IMAGE, constants={"w34": weights(4, 3, 3, 3), "w42": weights(2, 4, 1, 1)}, outputs=["y", "z"]
        )
    )
    assert [n.op for n in graph.nodes].count("Transpose") >= 2


def test_heads_keep_their_order(build, same, weights):
    """Behind the last convolution nothing moves."""
    nodes = [*block("x", "a", "w34"), ("Sigmoid", ["a"], ["s"], {}), ("Mul", ["s", "c4"], ["y"], {})]
    graph = same(build(nodes, shape=IMAGE, constants={"w34": weights(4, 3, 3, 3), "c4": weights(4)}))
    assert [n.op for n in graph.nodes] == ["Conv", "Transpose", "Sigmoid", "Mul"]


OWN = {  # the kit's own operators and their formulas (docs/own-operators.md)
    "npuforge::Silu": lambda x: x / (1 + np.exp(-x)),
    "npuforge::ClipSigmoid": lambda x: np.clip(1 / (1 + np.exp(-x)), 0.1, 0.9),
    "com.example::CustomGELU": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("name", OWN)
def test_own_operators_between_convolutions(build, compiled, weights, name):
    """Expected: ONNX Runtime's convolutions with the formula in float64 between them."""
    domain, kind = name.split("::")
    before, after = block("x", "a", "w34"), block("m", "y", "w42", ONE)
    first, last = {"w34": weights(4, 3, 3, 3)}, {"w42": weights(2, 4, 1, 1)}
    middle = (kind, ["a"], ["m"], {}, "own", domain)
    model = build([*before, middle, *after], shape=IMAGE, constants=first | last, domains=[domain])
    graph = partition(compiled(model))
    assert [(n.op, n.device) for n in graph.nodes] == [("Conv", "NPU"), ("Conv", "NPU"), ("Transpose", "CPU")]
    x = np.random.default_rng(3).normal(size=IMAGE).astype(F)

    def runtime(nodes, shape, constants, output, value):
        proto = build(nodes, shape=shape, constants=constants, outputs=[output])
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {proto.graph.input[0].name: value})[0]

    a = runtime(before, IMAGE, first, "a", x)
    after = [("Identity", ["x"], ["m"], {}), *after]
    expected = runtime(after, a.shape, last, "y", OWN[name](a.astype(np.float64)).astype(F))
    found = ReferenceExecutor(graph).run({"x": x.transpose(0, 3, 1, 2)})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
