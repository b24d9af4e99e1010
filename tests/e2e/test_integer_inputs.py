"""Networks whose inputs are integers: uint8 images cast or dequantised by the network itself, N, H, W, C or N, C, H, W; expected values are ONNX Runtime's on the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.board_runtime.session import Session
from npuforge.compile.context import Options
from npuforge.compile.host_program import float_graph, host_program
from npuforge.compile.ir.errors import InputError
from npuforge.compile.ir.image import prepare
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.preprocess_io import parse_preprocess
from npuforge.compile.pipeline import compile_model
from npuforge.hw_kernels.arch import load

SIZE = 16
TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "bool": TensorProto.BOOL, "int64": TensorProto.INT64}
TO_NCHW: dict[str, Any] = {"perm": [0, 3, 1, 2]}
CONV: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
CHANNELS, OUTPUTS = 3, 8
STEP = 0.02  # of the quantised networks' outputs


def save(path: Path, nodes: list[tuple[Any, ...]], constants: dict[str, Any], dtype: str, nhwc: bool, out: str) -> Path:
    shape = (1, SIZE, SIZE, CHANNELS) if nhwc else (1, CHANNELS, SIZE, SIZE)
    graph = helper.make_graph(
        [helper.make_node(op, i, o, name=f"{op.lower()}_{o[0]}", **a) for op, i, o, a in nodes],
        "integers",
        [helper.make_tensor_value_info("x", TYPES[dtype], shape)],
        [helper.make_tensor_value_info("y", TYPES.get(out, TensorProto.FLOAT), None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def built_in_preprocessing(path: Path, nhwc: bool, dtype: str = "uint8") -> Path:
    """Cast, scale and shift, then convolutions: what tf2onnx and exports with preprocessing inside look like."""
    rng = np.random.default_rng(1)
    weights = {
        name: (rng.normal(size=shape) / 4).astype(np.float32)
        for name, shape in (("w", (8, CHANNELS, 3, 3)), ("v", (OUTPUTS, 8, 3, 3)))
    }
    nodes = [
        ("Cast", ["x"], ["f"], {"to": TensorProto.FLOAT}),
        ("Mul", ["f", "scale"], ["m"], {}),
        ("Sub", ["m", "one"], ["s"], {}),
        *([("Transpose", ["s"], ["t"], TO_NCHW)] if nhwc else [("Identity", ["s"], ["t"], {})]),
        ("Conv", ["t", "w"], ["c"], CONV),
        ("Relu", ["c"], ["r"], {}),
        ("Conv", ["r", "v"], ["y"], CONV),
    ]
    constants = {**weights, "scale": np.float32(1 / 127.5), "one": np.float32(1)}
    return save(path, nodes, constants, dtype, nhwc, "float")


def quantised(path: Path, dtype: str, nhwc: bool, integer_output: bool) -> Path:
    """DequantizeLinear of the input, two convolutions with int8 weights; the output is dequantised, or leaves as integers."""
    rng = np.random.default_rng(2)
    zero = np.array(128 if dtype == "uint8" else 0, dtype)
    constants = {
        "wq": rng.integers(-127, 128, (8, CHANNELS, 3, 3)).astype(np.int8),
        "vq": rng.integers(-127, 128, (OUTPUTS, 8, 3, 3)).astype(np.int8),
        **{"z": zero, "zw": np.int8(0), "sx": np.float32(1 / 128), "sw": np.float32(0.003), "sy": np.float32(STEP)},
    }
    nodes = [
        ("DequantizeLinear", ["x", "sx", "z"], ["f"], {}),
        *([("Transpose", ["f"], ["t"], TO_NCHW)] if nhwc else [("Identity", ["f"], ["t"], {})]),
        ("DequantizeLinear", ["wq", "sw", "zw"], ["w"], {}),
        ("DequantizeLinear", ["vq", "sw", "zw"], ["v"], {}),
        ("Conv", ["t", "w"], ["c"], CONV),
        ("QuantizeLinear", ["c", "sy", "z"], ["cq"], {}),
        ("DequantizeLinear", ["cq", "sy", "z"], ["cf"], {}),
        ("Conv", ["cf", "v"], ["o"], CONV),
        ("QuantizeLinear", ["o", "sy", "z"], ["y" if integer_output else "yq"], {}),
        *([] if integer_output else [("DequantizeLinear", ["yq", "sy", "z"], ["y"], {})]),
    ]
    return save(path, nodes, constants, dtype, nhwc, dtype if integer_output else "float")


def expected(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def pictures(folder: Path, count: int = 9) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{i}.png" for i in range(count)]
    for i, path in enumerate(paths):
        cv2.imwrite(str(path), np.random.default_rng(i).integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8))
    return paths


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("nhwc", [True, False], ids=["NHWC", "NCHW"])
def test_images_of_a_network_that_scales_them_itself(tmp_path: Path, nhwc: bool, dtype: str) -> None:
    """No record: pixels as they are (uint8) or minus 128 (int8); calibrated, compiled and run from the same image files."""
    images = pictures(tmp_path / "images")
    path = built_in_preprocessing(tmp_path / "net.onnx", nhwc, dtype)
    compile_model(Options(path, load("nf-b1024"), tmp_path / "build", calibration=images[:-1]))
    session = Session(tmp_path / "build", device="sim")
    record = parse_preprocess(session.preprocess)
    assert (record.dtype, record.layout) == (dtype, "NHWC" if nhwc else "NCHW")
    _, tensor, _ = prepare(images[-1], record)
    rgb = cv2.imread(str(images[-1]))[np.newaxis, :, :, ::-1].astype(np.int64) - (128 if dtype == "int8" else 0)
    given = rgb.astype(dtype) if nhwc else rgb.transpose(0, 3, 1, 2).astype(dtype)
    np.testing.assert_array_equal(tensor, given)
    wanted = expected(path, given)
    noise = np.square(session.run({"x": tensor})["y"] - wanted, dtype=np.float64).mean()
    assert 10 * np.log10(wanted.var() / noise) > 30, "dB"


@pytest.mark.parametrize(
    ("dtype", "mean", "std"), [("uint8", 0.0, 255.0), ("uint8", 128.0, 1.0), ("int8", 0.0, 1.0), ("int8", 0.0, 255.0)]
)
def test_record_that_makes_no_integers_of_the_pixels(tmp_path: Path, dtype: str, mean: float, std: float) -> None:
    images = pictures(tmp_path / "images")
    path = built_in_preprocessing(tmp_path / "net.onnx", True, dtype)
    options = Options(path, load("nf-b1024"), tmp_path / "build", calibration=images)
    record = Preprocess(mean=[mean] * 3, std=[std] * 3)
    with pytest.raises(InputError, match=f"input x takes {dtype}.*the network scales them itself"):
        compile_model(replace(options, preprocess=record))
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("integer_output", [True, False], ids=["integers out", "float out"])
@pytest.mark.parametrize("nhwc", [True, False], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_from_the_input_on_needs_no_images(
    tmp_path: Path, dtype: str, nhwc: bool, integer_output: bool
) -> None:
    """The input's own scale is the first tensor's; the NPU has both convolutions; each value within one step of ONNX Runtime's."""
    path = quantised(tmp_path / "net.onnx", dtype, nhwc, integer_output)
    _, ctx = compile_model(Options(path, load("nf-b1024"), tmp_path / "build"))
    assert any("every scale is the quantised model's own" in n for n in ctx.notices)
    assert ctx.qgraph is not None
    assert {n.device for n in ctx.qgraph.graph.nodes if n.op == "Conv"} == {"NPU"}
    session = Session(tmp_path / "build", device="sim")
    limits = np.iinfo(dtype)
    shape = (1, SIZE, SIZE, CHANNELS) if nhwc else (1, CHANNELS, SIZE, SIZE)
    x = np.random.default_rng(5).integers(limits.min, limits.max + 1, shape).astype(dtype)
    found, wanted = session.run({"x": x})["y"], expected(path, x)
    assert found.dtype == wanted.dtype
    steps = np.abs(found.astype(np.float64) - wanted) / (1.0 if integer_output else STEP)
    assert steps.max() < 1.01 and (steps > 0.5).mean() < 0.02


@pytest.mark.parametrize("dtype", list(TYPES))
def test_channels_last_input_of_any_type(tmp_path: Path, dtype: str) -> None:
    """What only the CPU partition reads is transposed whatever its elements are."""
    path = built_in_preprocessing(tmp_path / "net.onnx", True, dtype)
    limits = (0, 2) if dtype == "bool" else (0, 100)
    x = np.random.default_rng(3).integers(*limits, (1, SIZE, SIZE, CHANNELS)).astype(dtype)
    graph = float_graph(onnx.load(path))
    assert graph.input_layout == {"x": "NHWC"}
    np.testing.assert_allclose(Session(host_program(graph)).run({"x": x})["y"], expected(path, x), rtol=1e-4, atol=1e-5)
