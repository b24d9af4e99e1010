"""Attributes that ONNX's checker lets pass and no network may have: words outside an enumeration, pads below zero."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.onnx_nodes import WORDS, refuse_unknown_words

WINDOW = {"kernel_shape": [3, 3]}


@pytest.mark.parametrize(
    ("op", "attrs", "word"),
    [
        ("Conv", WINDOW | {"auto_pad": "SAME_MIDDLE"}, "auto_pad is 'SAME_MIDDLE', expected one of NOTSET, SAME_UPPER"),
        ("ConvTranspose", WINDOW | {"auto_pad": "same_upper"}, "auto_pad is 'same_upper'"),
        ("Conv", WINDOW | {"auto_pad": "SAME_\nPPER"}, r"auto_pad is 'SAME_\nPPER'"),  # a message is one line
        ("MaxPool", WINDOW | {"auto_pad": "FULL"}, "auto_pad is 'FULL'"),
        ("AveragePool", WINDOW | {"auto_pad": "FULL"}, "auto_pad is 'FULL'"),
        ("DepthToSpace", {"blocksize": 2, "mode": "RCD"}, "mode is 'RCD', expected one of DCR, CRD"),
        ("Gelu", {"approximate": "erf"}, "approximate is 'erf', expected one of none, tanh"),
    ],
)
def test_a_word_outside_its_enumeration(build, weights, op, attrs, word):
    inputs = ["x", "w"] if op.startswith("Conv") else ["x"]
    nodes = [(op, inputs, ["m"], attrs, "bad"), ("Relu", ["m"], ["y"], {}, "relu")]
    with pytest.raises(ModelError) as caught:
        import_onnx(build(nodes, constants={"w": weights(4, 4, 3, 3)} if len(inputs) == 2 else {}, opset=20))
    assert f"node 'bad' ({op}): attribute {word}" in str(caught.value) and "; export" in str(caught.value)


def test_an_empty_auto_pad_is_none(build, weights):
    graph = import_onnx(
        build([("Conv", ["x", "w"], ["y"], WINDOW | {"auto_pad": ""}, "c")], constants={"w": weights(4, 4, 3, 3)})
    ).graph
    assert graph.nodes[0].op == "Conv"


def test_every_default_of_the_standard_is_legal():
    checked = 0
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            listed = WORDS.get((schema.name, name), WORDS.get(name))
            if listed and attribute.default_value.s:
                refuse_unknown_words(Node("n", schema.name, [], [], {name: attribute.default_value.s.decode()}))
                checked += 1
    assert checked > 40


def test_every_word_in_onnx_s_own_node_tests_is_legal():
    checked = 0
    for file in (Path(onnx.__file__).parent / "backend/test/data/node").glob("*/model.onnx"):
        for node in onnx.load(file).graph.node:
            words = {a.name: a.s.decode() for a in node.attribute if a.type == onnx.AttributeProto.STRING}
            if node.domain == "":
                refuse_unknown_words(Node(str(file), node.op_type, [], [], words))
                checked += any((node.op_type, w) in WORDS or w in WORDS for w in words)
    assert checked > 50


def test_pads_below_zero(build, weights):
    good = build([("Conv", ["x", "w"], ["y"], WINDOW, "c")], constants={"w": weights(4, 4, 3, 3)})
    good.graph.node[0].attribute.append(onnx.helper.make_attribute("pads", [-1, 0, 0, 0]))
    with pytest.raises(ModelError, match=r"'c' \(Conv\).*attribute pads is \[-1, 0, 0, 0\]: cut .* with a Slice"):
        import_onnx(good)
