"""What the import computes of nodes whose inputs are all constants, against ONNX Runtime: every case of every standard operator that both can run alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from npuforge.compile.ir.graph import TensorInfo
from npuforge.compile.steps.onnx_nodes import make_node, run_node, value_info
from npuforge.hw_kernels.levels import is_standard
from npuforge.hw_kernels.operator import case_graph, case_inputs, registry

OPSET = 17
LATER = {"GridSample": 20}  # since when it has these names of modes
FILES = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"}  # random
CASES = [
    (name, number)
    for name, op in sorted(registry().items())
    if is_standard(op) and name not in FILES
    for number in range(len(op.cases))
]


@pytest.mark.parametrize(("name", "number"), CASES, ids=lambda value: str(value))
def test_as_onnx_runtime(name: str, number: int) -> None:
    case, opset = registry()[name].cases[number], LATER.get(name, OPSET)
    node = case_graph(name, case, 3).nodes[0]
    if node.activation.kind != "none":
        pytest.skip("a fused activation is no constant's")
    given = [x.astype(np.float32) if x.dtype == np.float64 else x for x in map(np.asarray, case_inputs(case, 3))]
    constants = dict(zip(dict.fromkeys(t for t in node.inputs if t), given, strict=False))
    graph = helper.make_graph(
        [make_node(node.op, node.inputs, node.outputs, node.attrs, "node")],
        "one",
        [value_info(TensorInfo(t, v.shape, v.dtype.name)) for t, v in constants.items()],
        [onnx.ValueInfoProto(name=t) for t in node.outputs if t],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        expected = session.run(None, constants)
    except Exception as error:  # of an older or a newer operator set
        pytest.skip(f"ONNX Runtime: {str(error).splitlines()[0][:100]}")
    try:
        found = run_node(node, constants, opset)
    except Exception:  # then the import leaves the node as it is
        pytest.skip("is not computed at import")
    for wanted, own in zip(expected, found, strict=True):
        assert own.shape == wanted.shape and own.dtype == wanted.dtype
        np.testing.assert_allclose(own, wanted, rtol=2e-5, atol=2e-5)
