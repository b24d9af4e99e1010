"""An attribute that a custom operator does not have is refused at the import, with the nearest that it has."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.steps.import_onnx import import_onnx


def network(operator, outputs, attributes, constants=()):
    inputs = ["x", *(f"c{i}" for i in range(len(constants)))]
    node = helper.make_node(operator, inputs, outputs, name="own", domain="npuforge", **attributes)
    values = [helper.make_tensor_value_info(t, TensorProto.FLOAT, None) for t in outputs]
    held = [onnx.numpy_helper.from_array(np.asarray(c, np.float32), f"c{i}") for i, c in enumerate(constants)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 12, 4, 4])
    graph = helper.make_graph([node], "own", [x], values, held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


RIGHT = {"anchors": [10.0, 13.0, 16.0, 30.0], "strides": [8], "num_classes": 1}


@pytest.mark.parametrize(
    ("operator", "outputs", "attributes", "expected"),
    [
        ("LeakyReluMask", ["y", "m"], {"alhpa": 0.2}, "has no attribute alhpa; use alpha"),
        ("YoloDecode", ["b", "s", "k"], RIGHT | {"score_treshold": 0.5}, "use score_threshold"),
        ("Silu", ["y"], {"beta": 2.0}, "has no attribute beta; leave it out (it has none)"),
    ],
)
def test_an_unknown_attribute_is_refused(tmp_path, operator, outputs, attributes, expected):
    path = tmp_path / "own.onnx"
    onnx.save(network(operator, outputs, attributes), path)
    with pytest.raises(ModelError) as refusal:
        import_onnx(path)
    assert expected in str(refusal.value) and "node 'own'" in str(refusal.value)


@pytest.mark.parametrize(
    ("operator", "outputs", "attributes"),
    [("LeakyReluMask", ["y", "m"], {"alpha": 0.2}), ("YoloDecode", ["b", "s", "k"], RIGHT), ("Silu", ["y"], {})],
)
def test_its_own_attributes_are_taken(tmp_path, operator, outputs, attributes):
    path = tmp_path / "own.onnx"
    onnx.save(network(operator, outputs, attributes), path)
    assert import_onnx(path).graph.outputs == outputs
