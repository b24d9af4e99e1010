"""What docs/operators.md says of operators that the NPU has not got but that run there as others (`Op.placed_as`), and of those that never do.

Each stands between two convolutions; the placement is `npuforge inspect`'s.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile import pipeline
from npuforge.compile.context import Options
from npuforge.compile.steps.partition import explain
from npuforge.hw_kernels import levels
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.operator import registry

CHANNELS = 16


def placed(folder: Path, parts: list[onnx.NodeProto], constants: dict[str, np.ndarray], outputs: int) -> list[str]:
    """`NPU:Conv+Relu` and so on of the network convolutions, parts from `a` and `b` to `m`, convolution."""
    random = np.random.default_rng(0)
    weights = {n: (o, i, 1, 1) for n, o, i in (("w0", CHANNELS, 3), ("w1", CHANNELS, 3), ("w2", 4, outputs))}
    made = {n: random.normal(size=shape).astype(np.float32) for n, shape in weights.items()} | constants
    read = {t for part in parts for t in part.input}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], name="FIRST")]
    nodes += [helper.make_node("Conv", ["x", "w1"], ["b"], name="SECOND")] if "b" in read else []
    nodes += [*parts, helper.make_node("Conv", ["m", "w2"], ["y"], name="LAST")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 3, 8, 8]), ("y", None))]
    graph = helper.make_graph(
        nodes, "net", values[:1], values[1:], [numpy_helper.from_array(v, n) for n, v in made.items()]
    )
    versions = [helper.make_opsetid("", 24 if any(p.op_type == "Swish" for p in parts) else 21)]
    onnx.save(
        helper.make_model(graph, opset_imports=[*versions, helper.make_opsetid("npuforge", 1)], ir_version=10),
        folder / "net.onnx",
    )
    rows = explain(pipeline.inspect(Options(folder / "net.onnx", load("nf-b4096"), folder / "out")))
    return [f"{r.device}:{r.op}" + ("" if r.activation == "none" else f"+{r.activation}") for r in rows]


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    domain, _, name = op.rpartition("::")
    return helper.make_node(name, inputs.split(), output.split(), domain=domain, **attributes)


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


DROPPED: list[str] = []
TAKEN = {"s": number(0.05), "z": np.array(0, np.int8)}
AS_OTHERS = [  # nodes, constants, channels behind them, what stands between the convolutions or is fused into the first
    ([node("DepthToSpace", "a", "m", blocksize=2)], {}, 4, ["NPU:ConvTranspose"]),
    ([node("npuforge::LeakyReluMask", "a", "m mask")], {}, CHANNELS, "LeakyRelu"),
    ([node("Identity", "a", "m")], {}, CHANNELS, DROPPED),
    ([node("Dropout", "a", "m")], {}, CHANNELS, DROPPED),
    ([node("Cast", "a", "m", to=1)], {}, CHANNELS, DROPPED),
    ([node("Expand", "a k", "m")], {"k": integers(1, 1, 8, 8)}, CHANNELS, DROPPED),
    ([node("Tile", "a k", "m")], {"k": integers(1, 1, 1, 1)}, CHANNELS, DROPPED),
    ([node("Mean", "a", "m")], {}, CHANNELS, DROPPED),
    (
        [node("Flatten", "a", "f"), node("Reshape", "f k", "m")],
        {"k": integers(1, CHANNELS, 8, 8)},
        CHANNELS,
        ["NPU:ChannelGather"],
    ),
    (
        [node("Unsqueeze", "a k", "u"), node("Squeeze", "u k", "m")],
        {"k": integers(2)},
        CHANNELS,
        ["NPU:ChannelGather"],
    ),
    ([node("Sum", "a b", "m")], {}, CHANNELS, ["NPU:Conv", "NPU:Add"]),
    ([node("Max", "a k", "m")], {"k": number(0)}, CHANNELS, "Relu"),
    ([node("Max", "a k", "m")], {"k": number(-1)}, CHANNELS, "Clip"),
    ([node("Mul", "a k", "t"), node("Max", "a t", "m")], {"k": number(0.1)}, CHANNELS, "LeakyRelu"),
    ([node("Min", "a k", "m")], {"k": number(6)}, CHANNELS, "Clip"),
    ([node("Neg", "a", "m")], {}, CHANNELS, DROPPED),
    (
        [
            node("MaxPool", "a", "t", kernel_shape=[2, 2]),
            node("Neg", "t", "u"),
            node("MaxPool", "u", "m", kernel_shape=[2, 2]),
        ],
        {},
        CHANNELS,
        ["NPU:MaxPool", "NPU:Affine", "NPU:MaxPool"],
    ),
    ([node("Swish", "a", "m")], {}, CHANNELS, "Silu"),
    (
        [
            node("Mul", "a k", "t"),
            node("Erf", "t", "u"),
            node("Add", "u one", "v"),
            node("Mul", "a v", "w"),
            node("Mul", "w half", "m"),
        ],
        {"k": number(0.5**0.5), "one": number(1), "half": number(0.5)},
        CHANNELS,
        "Gelu",
    ),
    (
        [
            *(node("Pow", "a three", "t"), node("Mul", "t c", "u"), node("Add", "a u", "v"), node("Mul", "v k", "w")),
            *(node("Tanh", "w", "p"), node("Add", "p one", "q"), node("Mul", "a q", "r"), node("Mul", "r half", "m")),
        ],
        {
            "three": number(3),
            "c": number(0.044715),
            "k": number((2 / np.pi) ** 0.5),
            "one": number(1),
            "half": number(0.5),
        },
        CHANNELS,
        "CustomGELU",
    ),
    (
        [node("Neg", "a", "t"), node("Exp", "t", "u"), node("Add", "u one", "v"), node("Reciprocal", "v", "m")],
        {"one": number(1)},
        CHANNELS,
        "Sigmoid",
    ),
    (
        [node("Neg", "a", "t"), node("Exp", "t", "u"), node("Add", "u one", "v"), node("Div", "a v", "m")],
        {"one": number(1)},
        CHANNELS,
        "Silu",
    ),
    (
        [
            *(node("Exp", "a", "t"), node("Add", "t one", "u"), node("Log", "u", "v")),
            *(node("Tanh", "v", "w"), node("Mul", "a w", "m")),
        ],
        {"one": number(1)},
        CHANNELS,
        "Mish",
    ),
    ([node("Softplus", "a", "v"), node("Tanh", "v", "w"), node("Mul", "a w", "m")], {}, CHANNELS, "Mish"),
]
NAMES = [{(f"{p.domain}::" if p.domain else "") + p.op_type for p in parts} for parts, *_ in AS_OTHERS]
PAIRS = {"QuantizeLinear", "DequantizeLinear"}


@pytest.mark.parametrize(
    ("parts", "constants", "outputs", "between"), AS_OTHERS, ids=["-".join(sorted(n)) for n in NAMES]
)
def test_the_npu_runs_it_as_others(
    parts: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    outputs: int,
    between: list[str] | str,
    tmp_path: Path,
) -> None:
    first, middle = (f"NPU:Conv+{between}", []) if isinstance(between, str) else ("NPU:Conv", between)
    assert placed(tmp_path, parts, constants, outputs) == [first, *middle, "NPU:Conv"]


def test_quantised_pairs_become_scales(tmp_path: Path) -> None:
    def pair(source: str, target: str) -> list[onnx.NodeProto]:
        return [
            node("QuantizeLinear", f"{source} s z", f"{target}q"),
            node("DequantizeLinear", f"{target}q s z", target),
        ]

    random = np.random.default_rng(0)
    weights = {
        n: random.integers(-127, 128, s).astype(np.int8) for n, s in (("w", (16, 3, 1, 1)), ("v", (4, 16, 1, 1)))
    }
    nodes = [
        *(*pair("x", "x1"), node("DequantizeLinear", "w s z", "w1"), node("Conv", "x1 w1", "a")),
        *(*pair("a", "a1"), node("DequantizeLinear", "v s z", "v1"), node("Conv", "a1 v1", "b"), *pair("b", "y")),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 3, 8, 8]), ("y", None))]
    constants = [numpy_helper.from_array(v, n) for n, v in (weights | TAKEN).items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "q.onnx")
    rows = explain(pipeline.inspect(Options(tmp_path / "q.onnx", load("nf-b4096"), tmp_path / "out")))
    assert [f"{r.device}:{r.op}" for r in rows] == ["NPU:Conv", "NPU:Conv"]


def test_every_such_operator_is_among_these_cases() -> None:
    said = {name for name, op in registry().items() if op.placed_as}
    assert said <= set().union(*NAMES) | PAIRS
    assert all(levels.reason(registry()[n], "int8").startswith(registry()[n].placed_as) for n in said)
    missing = {
        n
        for names in NAMES
        for n in names
        if not levels.declared(registry()[n], "int8") and not levels.through(registry()[n], "int8")
    }
    assert missing == said - PAIRS


UNARY = "Atan Ceil Cos Floor GlobalLpPool Hardmax LogSoftmax LpNormalization Round Shrink Sign Sin Sinh Softmax Softsign Sqrt Tan"


@pytest.mark.parametrize("op", UNARY.split())
def test_other_operators_stay_on_the_cpu(op: str, tmp_path: Path) -> None:
    assert not registry()[op].placed_as
    assert placed(tmp_path, [node(op, "a", "m")], {}, CHANNELS) == ["NPU:Conv", f"CPU:{op}", "NPU:Conv"]


def test_a_mask_that_is_read_stays_on_the_cpu(tmp_path: Path) -> None:
    parts = [node("npuforge::LeakyReluMask", "a", "t mask"), node("Mul", "t mask", "m")]
    assert placed(tmp_path, parts, {}, CHANNELS) == ["NPU:Conv", "CPU:npuforge::LeakyReluMask", "NPU:Mul", "NPU:Conv"]
