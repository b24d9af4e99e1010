"""A small detector-like network and its statically quantised forms, as ONNX Runtime's quantiser writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

SIZE = 16
PAIRED = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


@dataclass(frozen=True)
class Form:
    """One way to quantise."""

    operators: bool  # QOperator instead of QDQ
    activation: QuantType
    weight: QuantType
    per_channel: bool
    symmetric: bool

    def __str__(self) -> str:
        words = ["QOperator" if self.operators else "QDQ", f"a-{self.activation.name}", f"w-{self.weight.name}"]
        return "-".join(
            [*words, "channel" if self.per_channel else "tensor", "symmetric" if self.symmetric else "asymmetric"]
        )


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, images: list[np.ndarray]) -> None:
        self._images: Iterator[np.ndarray] = iter(images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self._images, None)
        return None if image is None else {"x": image}


def images(count: int, seed: int = 3) -> list[np.ndarray]:
    """float32 [1, 3, SIZE, SIZE], whole pixels divided by 255."""
    rng = np.random.default_rng(seed)
    return [(rng.integers(0, 256, (1, 3, SIZE, SIZE)) / 255.0).astype(np.float32) for _ in range(count)]


def float_network(curves: bool = True) -> onnx.ModelProto:
    """Dense, strided, depthwise and pointwise convolution, ReLU, LeakyReLU and SiLU, residual addition, pooling, concatenation of unlike ranges, nearest resize,
    squeeze-excite by global average pool; the last convolution is the output."""
    rng = np.random.default_rng(11)
    constants: dict[str, np.ndarray] = {}

    def weight(name: str, *shape: int) -> str:
        constants[name] = (rng.normal(size=shape) * np.sqrt(2.0 / np.prod(shape[1:]))).astype(np.float32)
        return name

    def bias(name: str, count: int) -> str:
        constants[name] = (rng.normal(size=count) * 0.1).astype(np.float32)
        return name

    one: dict[str, Any] = {"kernel_shape": [1, 1]}
    nodes = [
        ("Conv", ["x", weight("w1", 16, 3, 3, 3), bias("b1", 16)], ["c1"], {**PAIRED, "strides": [2, 2]}),
        ("Relu", ["c1"], ["r1"], {}),
        ("Conv", ["r1", weight("w2", 16, 1, 3, 3), bias("b2", 16)], ["c2"], {**PAIRED, "group": 16}),
        ("LeakyRelu", ["c2"], ["r2"], {"alpha": 0.1}),
        ("Conv", ["r2", weight("w3", 16, 16, 1, 1)], ["c3"], one),
        ("Add", ["c3", "r1"], ["a3"], {}),
        ("MaxPool", ["a3"], ["m4"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Conv", ["m4", weight("w4", 24, 16, 3, 3), bias("b4", 24)], ["c4"], PAIRED),
        *(
            [("Sigmoid", ["c4"], ["g4"], {}), ("Mul", ["c4", "g4"], ["r4"], {})]
            if curves
            else [("Relu", ["c4"], ["r4"], {})]
        ),
        (
            "Resize",
            ["r4", "", "scales"],
            ["u4"],
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        ),
        ("Concat", ["u4", "a3"], ["k5"], {"axis": 1}),
        ("Conv", ["k5", weight("w5", 24, 40, 1, 1), bias("b5", 24)], ["c5"], one),
        ("Relu", ["c5"], ["r5"], {}),
        ("GlobalAveragePool", ["r5"], ["p6"], {}),
        ("Conv", ["p6", weight("w6", 24, 24, 1, 1), bias("b6", 24)], ["c6"], one),
        ("Sigmoid", ["c6"], ["s6"], {}),
        ("Mul", ["r5", "s6"], ["e6"], {}),
        ("Conv", ["e6", weight("w7", 10, 24, 1, 1), bias("b7", 10)], ["y"], one),
    ]
    constants["scales"] = np.array([1, 1, 2, 2], np.float32)
    graph = helper.make_graph(
        [helper.make_node(op, i, o, name=f"{op.lower()}_{o[0]}", **a) for op, i, o, a in nodes],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, SIZE, SIZE))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10, 8, 8))],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def quantise(folder: Path, form: Form, curves: bool = True) -> Path:
    """The file of the quantised network."""
    source, target = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(float_network(curves), source)
    quantize_static(
        source,
        target,
        _Reader(images(8)),
        quant_format=QuantFormat.QOperator if form.operators else QuantFormat.QDQ,
        activation_type=form.activation,
        weight_type=form.weight,
        per_channel=form.per_channel,
        extra_options={"ActivationSymmetric": form.symmetric, "WeightSymmetric": form.symmetric},
    )
    return target
