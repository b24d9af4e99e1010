"""Networks whose tensors and nodes have the names that the .xmodel writer adds: every child still finds its tensors by name, with our own session's values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")

from npuforge.board_runtime import vart, xir
from npuforge.board_runtime.session import Session
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps import generate, write_bin
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.compile.xir.reader import read_xmodel
from npuforge.compile.xir.writer import write_xmodel
from npuforge.hw_kernels import arch as arches
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor
from npuforge.quant.quantize import quantize

PLAIN = {"mid": "mid", "tail": "tail", "first": "c1", "host": "h", "second": "c2"}
SUFFIXES = ("float", "nhwc", "upload", "npu")
CASES = [
    {"first": "x_upload", "second": "mid_download", "host": "npu_0"},  # nodes
    {"first": "x", "host": "npu_2", "second": "outputs"},
    *({"mid": f"x_{suffix}", "tail": f"mid_{suffix}"} for suffix in SUFFIXES),  # tensors
    *({"mid": f"tail_{suffix}", "first": f"mid_{suffix}"} for suffix in SUFFIXES),
]


def network(names: dict[str, str]) -> onnx.ModelProto:
    """Convolution, Atan on the CPU, convolution; the tensor in between is an output too."""
    random = np.random.default_rng(1)
    given = PLAIN | names
    nodes = [
        helper.make_node("Conv", ["x", "w1"], [given["mid"]], given["first"], pads=[1, 1, 1, 1]),
        helper.make_node("Atan", [given["mid"]], ["between"], given["host"]),
        helper.make_node("Conv", ["between", "w2"], [given["tail"]], given["second"], pads=[1, 1, 1, 1]),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 5])]
    outputs = [helper.make_tensor_value_info(given[n], TensorProto.FLOAT, [1, 4, 6, 5]) for n in ("mid", "tail")]
    shapes = {"w1": (4, 3, 3, 3), "w2": (4, 4, 3, 3)}
    constants = [numpy_helper.from_array(random.normal(size=s).astype(np.float32), n) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "net", values, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("mode", ["pow2", "fine"])
@pytest.mark.parametrize("names", CASES, ids=lambda names: "-".join(names.values()))
def test_every_child_finds_its_tensors(names: dict[str, str], mode: str, tmp_path: Path) -> None:
    graph = partition(fuse(fold(import_onnx(network(names)).graph)))
    image = np.random.default_rng(2).normal(size=(1, 3, 6, 5)).astype(np.float32)
    qgraph = quantize(graph, calibrate(graph, [{"x": image}], lambda n: GraphExecutor(graph, n, threads=1).run), mode)
    binary = write_bin.to_bytes(generate.generate(qgraph, arches.load("nf-b1024")))
    write_xmodel(qgraph, binary, tmp_path / "model.xmodel")
    values = {"x": np.ascontiguousarray(IntegerExecutor(qgraph).quantise_input("x", image))}
    for child in xir.Graph.deserialize(tmp_path / "model.xmodel").get_root_subgraph().toposort_child_subgraph():
        if child.get_attr("device") == "USER":
            continue
        runner = vart.Runner.create_runner(child)
        results = runner.run([values[t.name] for t in runner.get_input_tensors()])
        values |= {t.name: a for t, a in zip(runner.get_output_tensors(), results, strict=True)}
    model = read_xmodel(tmp_path / "model.xmodel")
    tensors = {op.name: op.tensor.name for op in model.ops}
    returned = [tensors[name] for name in model.attrs["return_ops"].value]
    own = Session(binary).run([image])
    for name, (output, expected) in zip(returned, own.items(), strict=True):
        np.testing.assert_array_equal(values[name], expected, err_msg=f"{output} as {name}")
