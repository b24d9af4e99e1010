"""Quantised ONNX and com.microsoft operators: the float graph that the import makes of each computes what ONNX Runtime computes with integers, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import Imported, import_onnx
from npuforge.compile.steps.qoperator import DynamicQuantisationWarning
from npuforge.compile.steps.verify import verify

MS = "com.microsoft"
F, U8, I8 = np.float32, np.uint8, np.int8
S = {"xs": F(0.02), "xz": U8(120), "ys": F(0.03), "yz": U8(110)}
X, Y = ["xq", "xs", "xz"], ["ys", "yz"]


def model(
    nodes: list[tuple[Any, ...]], constants: dict[str, Any], shape: tuple[int, ...], opset: int = 13
) -> onnx.ModelProto:
    """From x to y, float; nodes: (type, inputs, outputs, attributes[, domain])."""
    graph = helper.make_graph(
        [helper.make_node(op, i, o, name=f"{op}_{o[0]}", domain=d[0] if d else "", **a) for op, i, o, a, *d in nodes],
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)], ir_version=8
    )


def compiled(file: onnx.ModelProto) -> Imported:
    """Imported, folded and fused, verified."""
    imported = import_onnx(file)
    verify(imported.graph, "import")
    imported.graph = fuse(fold(imported.graph))
    verify(imported.graph, "fuse")
    return imported


def difference(
    file: onnx.ModelProto,
    found: Imported,
    shape: tuple[int, ...],
    limits: tuple[float, float] | None = None,
    seed: int = 0,
) -> float:
    """Largest distance of the float graph, its output cut to `limits`, from ONNX Runtime on the file."""
    x = np.random.default_rng(seed).uniform(-2, 2, size=shape).astype(F)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0]
    inside = x.transpose(0, 3, 1, 2) if found.graph.input_layout.get("x") == "NHWC" else x
    ours = GraphExecutor(found.graph, providers=["CPUExecutionProvider"], threads=1).run({"x": inside})["y"]
    if limits is not None:
        ours = np.clip(ours, *limits)
    assert ours.shape == expected.shape
    return float(np.abs(ours - expected).max())


def around(op: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """QuantizeLinear → operator → DequantizeLinear."""
    return [("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}), op, ("DequantizeLinear", ["yq", "ys", "yz"], ["y"], {})]


RNG = np.random.default_rng(5)
W = RNG.integers(-127, 128, (5, 4, 3, 3)).astype(I8)
KERNEL = {
    "wq": W,
    "ws": np.linspace(0.002, 0.01, 5).astype(F),
    "wz": np.zeros(5, I8),
    "b": RNG.integers(-900, 900, 5).astype(np.int32),
}
COLUMNS = {"mq": RNG.integers(0, 256, (6, 7)).astype(U8), "ms": F(0.01), "mz": U8(131)}
MAP, ROWS = (1, 4, 8, 8), (3, 6)
CONV_GAIN = float((np.abs(W.astype(F)) * KERNEL["ws"].reshape(-1, 1, 1, 1)).sum(axis=(1, 2, 3)).max())
PRODUCT_GAIN = float((np.abs(COLUMNS["mq"].astype(F) - 131) * 0.01).sum(axis=0).max())
# operator, constants, shape of x, and how much a step of the input may change the output
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], tuple[int, ...], float]] = {
    "QLinearConv": (
        ("QLinearConv", [*X, "wq", "ws", "wz", *Y, "b"], ["yq"], {"pads": [1] * 4, "kernel_shape": [3, 3]}),
        KERNEL,
        MAP,
        CONV_GAIN,
    ),
    "QLinearMatMul": (("QLinearMatMul", [*X, "mq", "ms", "mz", *Y], ["yq"], {}), COLUMNS, ROWS, PRODUCT_GAIN),
    "QGemm": (
        ("QGemm", [*X, "mq", "ms", "mz", "c", *Y], ["yq"], {}, MS),
        {**COLUMNS, "c": np.arange(7, dtype=np.int32) * 100},
        ROWS,
        PRODUCT_GAIN,
    ),
    "QLinearAdd": (("QLinearAdd", [*X, *X, *Y], ["yq"], {}, MS), {}, MAP, 2.0),
    "QLinearMul": (("QLinearMul", [*X, *X, *Y], ["yq"], {}, MS), {}, MAP, 4.0),
    "QLinearSigmoid": (("QLinearSigmoid", [*X, *Y], ["yq"], {}, MS), {}, MAP, 0.5),
    "QLinearLeakyRelu": (("QLinearLeakyRelu", [*X, *Y], ["yq"], {"alpha": 0.2}, MS), {}, MAP, 1.0),
    "QLinearGlobalAveragePool": (("QLinearGlobalAveragePool", [*X, *Y], ["yq"], {}, MS), {}, MAP, 1.0),
    "QLinearAveragePool": (("QLinearAveragePool", [*X, *Y], ["yq"], {"kernel_shape": [2, 2]}, MS), {}, MAP, 1.0),
    "QLinearConcat": (("QLinearConcat", [*Y, *X, *X], ["yq"], {"axis": 1}, MS), {}, MAP, 1.0),
    "QLinearSoftmax": (("QLinearSoftmax", [*X, *Y], ["yq"], {"axis": 1, "opset": 13}, MS), {}, ROWS, 0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    """Within half a step of the input, times the gain, and half a step of the output."""
    op, constants, shape, gain = CASES[name]
    file = model(around(op), {**S, **constants}, shape)
    found = compiled(file)
    assert not [n.op for n in found.graph.nodes if "uant" in n.op or "QL" in n.op]
    limits = tuple((q - int(S["yz"])) * float(S["ys"]) for q in (0, 255))
    assert difference(file, found, shape, limits) <= 0.5 * S["xs"] * gain + 0.5 * S["ys"] + 1e-4
    assert found.graph.grids


def test_reduce_mean() -> None:
    """ONNX Runtime's CPU has no QLinearReduceMean: against its definition."""
    op = ("QLinearReduceMean", [*X, *Y], ["yq"], {"axes": [2, 3], "keepdims": 1}, MS)
    found = compiled(model(around(op), S, MAP))
    x = np.random.default_rng(0).uniform(-2, 2, MAP).astype(F)
    ours = GraphExecutor(found.graph, providers=["CPUExecutionProvider"]).run({"x": x})["y"]
    assert np.abs(ours - x.mean(axis=(2, 3), keepdims=True)).max() < 1e-5


def test_integers_that_are_only_moved() -> None:
    """Pooling, slicing, joining and reshaping on int8 tensors."""
    nodes = [
        ("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}),
        ("MaxPool", ["xq"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Split", ["p", "parts"], ["a", "b"], {"axis": 1}),
        ("Concat", ["b", "a"], ["c"], {"axis": 1}),
        ("Reshape", ["c", "flat"], ["f"], {}),
        ("Transpose", ["f"], ["t"], {"perm": [0, 2, 1]}),
        ("DequantizeLinear", ["t", "xs", "xz"], ["y"], {}),
    ]
    constants = {"xs": S["xs"], "xz": S["xz"], "parts": np.array([1, 3]), "flat": np.array([1, 4, -1])}
    file = model(nodes, constants, MAP)
    found = compiled(file)
    assert not [n.op for n in found.graph.nodes if "uant" in n.op]
    assert difference(file, found, MAP) <= 0.51 * S["xs"]


def test_unlike_grids_are_written_out(build: Any) -> None:
    """Two scales one after the other cannot be one tensor's: what they do is computed, rounding included."""
    nodes = [("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}), ("DequantizeLinear", ["xq", "ys", "yz"], ["y"], {})]
    file = model(nodes, S, MAP)
    found = compiled(file)
    assert [n.op for n in found.graph.nodes][-1] in ("Mul", "Affine") and "Round" in [n.op for n in found.graph.nodes]
    assert difference(file, found, MAP) < 1e-5


DYNAMIC = [
    ("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"], {}),
    ("Cast", ["acc"], ["real"], {"to": TensorProto.FLOAT}),
    ("Mul", ["xs", "ws"], ["unit"], {}),
    ("Mul", ["real", "unit"], ["scaled"], {}),
    ("Add", ["scaled", "b"], ["y"], {}),
]


@pytest.mark.parametrize("kind", ["ConvInteger", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_dynamic_quantisation_becomes_float(kind: str) -> None:
    if kind == "ConvInteger":
        shape: tuple[int, ...] = MAP
        constants = {
            "wq": (W.astype(int) + 128).astype(U8),
            "wz": U8(128),
            "ws": F(0.01),
            "b": RNG.normal(size=(1, 5, 1, 1)).astype(F),
        }
        nodes = [DYNAMIC[0], (kind, ["xq", "wq", "xz", "wz"], ["acc"], {"kernel_shape": [3, 3]}), *DYNAMIC[1:]]
    else:
        shape = ROWS
        constants = {**COLUMNS, "ws": COLUMNS["ms"], "b": RNG.normal(size=7).astype(F)}
        if kind == "MatMulInteger":
            nodes = [DYNAMIC[0], (kind, ["xq", "mq", "xz", "mz"], ["acc"], {}), *DYNAMIC[1:]]
        elif kind == "DynamicQuantizeMatMul":
            nodes = [(kind, ["x", "mq", "ms", "mz", "b"], ["y"], {}, MS)]
        else:
            nodes = [DYNAMIC[0], (kind, ["xq", "mq", "xs", "ms", "xz", "mz", "b"], ["y"], {}, MS)]
    used = {t for n in nodes for t in n[1]}
    file = model(nodes, {k: v for k, v in constants.items() if k in used}, shape)
    found = compiled(file)
    assert [type(w) for w in found.warnings] == [DynamicQuantisationWarning]
    assert "1 integer convolutions or products" in str(found.warnings[0]) and not found.graph.grids
    wanted = {"ConvInteger": ["Conv"], "MatMulInteger": ["MatMul", "Mul", "Add"]}.get(kind, ["MatMul", "Add"])
    assert [n.op for n in found.graph.nodes] == wanted
    # ONNX Runtime rounds x to 8 bits of its range; the float graph does not.
    gain = float(np.abs(W.astype(F) * 0.01).sum(axis=(1, 2, 3)).max()) if kind == "ConvInteger" else PRODUCT_GAIN
    assert difference(file, found, shape) <= 0.5 * (4.0 / 255) * gain + 1e-4


def test_computed_weights_are_refused() -> None:
    nodes = [
        ("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}),
        ("ConvInteger", ["xq", "xq", "xz", "xz"], ["yq"], {}),
        ("Cast", ["yq"], ["y"], {"to": TensorProto.FLOAT}),
    ]
    with pytest.raises(
        UnsupportedError, match=r"ConvInteger_yq.*weights 'xq' is computed at run time, expected a constant"
    ):
        import_onnx(model(nodes, {"xs": F(0.1), "xz": U8(1)}, (1, 1, 4, 4)))


LAST = {
    "QLinearConv": ("QLinearConv", [*X, "wq", "ws", "wz", *Y, "b"], ["yq"], {"pads": [1] * 4, "channels_last": 1}, MS),
    "QLinearAveragePool": ("QLinearAveragePool", [*X, *Y], ["yq"], {"kernel_shape": [2, 2], "channels_last": 1}, MS),
    "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", [*X, *Y], ["yq"], {"channels_last": 1}, MS),
}


@pytest.mark.parametrize("op", LAST)
def test_channels_last(op: str) -> None:
    """[N, H, W, C], as ONNX Runtime saves a model after its layout optimisation; its own kernels are the reference."""
    shape = (1, 6, 7, 4)
    file = model(around(LAST[op]), {**S, **KERNEL}, shape)
    found = compiled(file)
    gain = CONV_GAIN if op == "QLinearConv" else 1.0
    assert difference(file, found, shape, (-3.3, 4.35)) <= 0.5 * S["xs"] * gain + 0.5 * S["ys"] + 1e-4
    if op == "QLinearConv":
        conv = next(n for n in found.graph.nodes if n.op == "Conv")
        assert conv.weight_scale is not None and conv.outputs[0] in found.graph.grids


def test_channels_last_convolutions_meet_without_a_transpose() -> None:
    """Two of them and a pool between: the transposes between them cancel."""
    nodes = [
        ("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}),
        ("QLinearConv", [*X, "wq", "ws", "wz", *Y, "b"], ["aq"], {"pads": [1] * 4, "channels_last": 1}, MS),
        ("NhwcMaxPool", ["aq"], ["mq"], {"kernel_shape": [2, 2], "strides": [2, 2]}, MS),
        ("QLinearConv", ["mq", *Y, "vq", "vs", "wz1", *Y], ["yq"], {"channels_last": 1}, MS),
        ("DequantizeLinear", ["yq", "ys", "yz"], ["y"], {}),
    ]
    v = np.random.default_rng(9).integers(-127, 128, (3, 5, 1, 1)).astype(I8)
    extra = {"vq": v, "vs": F(0.004), "wz1": I8(0), "ws": KERNEL["ws"] / F(10)}  # small: nothing saturates between
    file = model(nodes, {**S, **KERNEL, **extra}, (1, 6, 8, 4))
    found = compiled(file)
    ops = [n.op for n in found.graph.nodes]
    gain = float(np.abs(v * 0.004).sum(axis=(1, 2, 3)).max())
    assert [op for op in ops if op in ("Conv", "MaxPool")] == ["Conv", "MaxPool", "Conv"] and ops.count(
        "Transpose"
    ) <= 2
    assert (
        difference(file, found, (1, 6, 8, 4), (-3.3, 4.35))
        <= 0.5 * (S["xs"] * CONV_GAIN / 10 + S["ys"]) * gain + 0.5 * S["ys"] + 1e-4
    )
