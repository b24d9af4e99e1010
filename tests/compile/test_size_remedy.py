"""Shapes that do not fit: the refusal names the multiples that the network's own strides ask for, and the size it proposes runs."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.import_onnx import import_onnx


def pyramid(levels: int, shape: tuple[int, int]) -> onnx.ModelProto:
    """`levels` convolutions of stride 2 (the last of stride 2 in rows and 4 in columns where the sides differ), upsampling, Concat with the map before."""
    wide = shape[0] != shape[1]
    weights = [np.ones((2, 3 if i == 0 else 2, 3, 3), np.float32) * 0.1 for i in range(levels)]
    nodes, x = [], "x"
    for i in range(levels):
        strides = [2, 4] if wide and i == levels - 1 else [2, 2]
        nodes.append(
            helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], kernel_shape=[3, 3], pads=[1] * 4, strides=strides)
        )
        x = f"c{i}"
    nodes += [
        helper.make_node("Resize", [x, "", "scales"], ["up"], mode="nearest"),
        helper.make_node("Concat", ["up", f"c{levels - 2}"], ["y"], "join", axis=1),
    ]
    scales = np.array([1, 1, 2, 4 if wide else 2], np.float32)
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(
        nodes,
        "pyramid",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [*constants, numpy_helper.from_array(scales, "scales")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize(
    ("levels", "size", "multiples"),
    [(3, (36, 36), (8, 8)), (5, (200, 200), (32, 32)), (6, (96, 96), (64, 64)), (3, (36, 40), (8, 16))],
)
def test_multiples_of_the_networks_strides(levels: int, size: tuple[int, int], multiples: tuple[int, int]) -> None:
    model = pyramid(levels, size)
    with pytest.raises(ModelError, match=r"'join' \(Concat\)") as refused:
        fold(import_onnx(model, shapes={"x": (1, 3, *size)}).graph)
    text = str(refused.value)
    assert (
        f"a height in multiples of {multiples[0]} and a width of {multiples[1]}, 'x' has {size[0]} x {size[1]}" in text
    )
    proposed = re.search(r"--shape x=1x3x(\d+)x(\d+)", text)
    assert proposed is not None
    fitting = (int(proposed[1]), int(proposed[2]))
    assert all(f % m == 0 and s <= f < s + m for f, s, m in zip(fitting, size, multiples, strict=True))
    fold(import_onnx(model, shapes={"x": (1, 3, *fitting)}).graph)


def test_no_word_of_the_size_where_it_is_none_of_its_business() -> None:
    model = pyramid(3, (32, 32))
    model.graph.initializer[-1].CopyFrom(numpy_helper.from_array(np.array([1, 1, 3, 3], np.float32), "scales"))
    with pytest.raises(ModelError, match=r"'join' \(Concat\)") as refused:
        fold(import_onnx(model, shapes={"x": (1, 3, 32, 32)}).graph)
    assert "--shape" not in str(refused.value) and "export it again, without this Concat" in str(refused.value)
