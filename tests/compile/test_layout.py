"""Channels-last networks as tf2onnx and keras2onnx write them: one layout inside, no Transpose between convolutions, and the values of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
