"""The vendor's graph runner on CPU nodes of every kind that we write as its own operators, and of those that we do not because its tasks are wrong there.

Right values are our session's, whose operators are held against ONNX Runtime elsewhere. Skipped where the vendor's library is not installed, or lacks an
operator (`libvart_op_imp_<type>.so`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from vart_build import vendor_folder

from npuforge.board_runtime.session import Session
from npuforge.compile.context import Options
from npuforge.compile.pipeline import compile_model
from npuforge.compile.xir.reader import read_xmodel
from npuforge.compile.xir.vendor_tasks import OURS, TASKS
from npuforge.hw_kernels.arch import load
from npuforge.quant.executor import IntegerExecutor

SHAPE = (1, 8, 6, 5)
RNG = np.random.default_rng(4)
SCRIPT = """
import sys
import numpy as np, xir, vitis_ai_library
graph = xir.Graph.deserialize(sys.argv[1])
runner = vitis_ai_library.GraphRunner.create_graph_runner(graph)
inputs, outputs = runner.get_inputs(), runner.get_outputs()
np.asarray(inputs[0])[...] = np.load(sys.argv[2])
job = runner.execute_async(inputs, outputs)
assert job[1] == 0 and runner.wait(job) == 0
np.savez(sys.argv[3], **{b.get_tensor().name: np.array(b) for b in outputs})
"""


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def axes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


Tail = tuple[str, list[Any], dict[str, Any]]  # operator, operands ("t" is the tensor), attributes
TAILS: list[Tail] = [
    *((op, ["t"], {}) for op in ("Sigmoid", "Tanh", "Exp", "Neg", "Relu", "HardSwish", "Mish", "Identity")),
    ("LeakyRelu", ["t"], {"alpha": 0.2}),
    ("Clip", ["t", np.float32(0), np.float32(6)], {}),
    *((op, ["t", floats(8, 1, 1)], {}) for op in ("Add", "Sub", "Mul", "Div", "Min", "Max")),
    ("Sub", [floats(5), "t"], {}),
    ("Add", [floats(1, 6, 1), "t"], {}),
    ("Mul", ["t", np.float32(2.5)], {}),
    *(("ReduceSum", ["t", axes(*on)], {"keepdims": keep}) for on in ((3,), (2, 3), (1,), (1, 3)) for keep in (0, 1)),
    *(("ReduceMax", ["t", axes(*on)], {"keepdims": keep}) for on in ([3], [3, 2], [1, 2], [1, 3]) for keep in (0, 1)),
    ("ReduceMin", ["t", axes(1)], {}),
    ("ReduceMean", ["t", axes(1)], {"keepdims": 0}),
    ("ReduceProd", ["t", axes(2, 3)], {}),
    ("MatMul", ["t", floats(5, 7)], {}),
    ("MatMul", ["t", floats(8, 5, 7)], {}),
    ("MatMul", [floats(4, 6), "t"], {}),
    ("MatMul", [floats(1, 1, 4, 6), "t"], {}),
    ("Softmax", ["t"], {"axis": 3}),
    ("Softmax", ["t"], {"axis": 1}),
    ("Transpose", ["t"], {"perm": [0, 3, 1, 2]}),
    ("Concat", ["t", floats(1, 2, 6, 5)], {"axis": 1}),
    ("Slice", ["t", axes(1, -3), axes(100, -1), axes(1, 2), axes(3, 1)], {}),
    ("Reshape", ["t", axes(1, 2, 4, -1)], {}),
    ("Flatten", ["t"], {"axis": 1}),
]
NAMES = [f"o{number:02}_{op}" for number, (op, _, _) in enumerate(TAILS)]


def network(factor: float) -> onnx.ModelProto:
    """Convolution, Softmax, t = (Softmax - 0.1)·factor; each tail an output, and a Split."""
    constants = {
        "w": floats(8, 4, 3, 3) / 3,
        "shift": np.float32(0.1),
        "factor": np.float32(factor),
        "parts": axes(3, 5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "c", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Softmax", ["c"], ["s"], "s", axis=2),
        helper.make_node("Sub", ["s", "shift"], ["d"], "d"),
        helper.make_node("Mul", ["d", "factor"], ["t"], "t"),
        helper.make_node("Split", ["t", "parts"], ["split0", "split1"], "split", axis=1),
    ]
    for name, (op, operands, attrs) in zip(NAMES, TAILS, strict=True):
        inputs = []
        for number, operand in enumerate(operands):
            inputs.append(operand if isinstance(operand, str) else f"{name}_{number}")
            if not isinstance(operand, str):
                constants[inputs[-1]] = np.asarray(operand)
        nodes.append(helper.make_node(op, inputs, [name], f"n_{name}", **attrs))
    graph = helper.make_graph(
        nodes,
        "tails",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 6, 5))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in (*NAMES, "split0", "split1")],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("factor", [4.0, 400.0], ids=["small", "beyond 89"])
def test_the_vendors_graph_runner(tmp_path: Path, factor: float) -> None:
    libraries = vendor_folder()
    probe = subprocess.run([sys.executable, "-c", "import vitis_ai_library"], capture_output=True)
    if probe.returncode != 0 or not (libraries / "libnpuforge-ops.so").exists():
        pytest.skip("the Vitis AI Library (module vitis_ai_library, header vart/op_imp.h) is not installed")
    onnx.save(network(factor), tmp_path / "net.onnx")
    samples = [tmp_path / f"{number}.npz" for number in range(3)]
    for path in samples:
        np.savez(path, x=floats(1, 4, 6, 5))
    options = Options(tmp_path / "net.onnx", load("nf-b1024"), tmp_path / "build", calibration=samples, mode="pow2")
    _, ctx = compile_model(options)
    assert ctx.qgraph is not None
    types = {op.type for op in read_xmodel(tmp_path / "build" / "model.xmodel").ops if op.get("device") == "CPU"}
    assert types >= set(TASKS) - {"softmax", "tanh"}
    paths = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), str(libraries)]
    lacking = [
        t for t in types & set(TASKS) - OURS if not any((Path(p) / f"libvart_op_imp_{t}.so").exists() for p in paths)
    ]
    if lacking:
        pytest.skip(f"the vendor's installation has no libvart_op_imp_{lacking[0]}.so on LD_LIBRARY_PATH")
    x = np.load(samples[0])["x"]
    np.save(tmp_path / "input.npy", IntegerExecutor(ctx.qgraph).quantise_input("x", x))
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *(tmp_path / n for n in ("script.py", "build/model.xmodel", "input.npy", "made.npz"))],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": ":".join(p for p in paths if p)},
    )
    assert done.returncode == 0, done.stderr
    expected = Session(tmp_path / "build").run({"x": x})
    with np.load(tmp_path / "made.npz") as made:
        assert set(made) == set(expected)
        for name, values in expected.items():
            assert made[name].shape == values.shape
            np.testing.assert_allclose(made[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
