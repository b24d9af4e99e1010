"""Models that are quantised already, as ONNX Runtime's quantiser writes them: no images asked, scales and integer weights taken over, the same bits on every device.

ONNX Runtime rounds halves to even and multiplies by a float factor, the NPU rounds halves up and multiplies by 16 bits; and a value that the file rounds twice
(before and after an activation) the NPU rounds once. So one layer differs by at most one step, and a network by a few.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from ladder import Quantised, climb, compile_graph
from onnx import numpy_helper
from onnxruntime.quantization import QuantType
from quantised_networks import Form, images, quantise

from npuforge.compile.context import Options
from npuforge.compile.ir.errors import CalibrationError
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.ir.quantization import ConvParams, QGraph
from npuforge.compile.pipeline import compile_model, quantize
from npuforge.compile.reference import NodesExecutor
from npuforge.hw_kernels.arch import load
from npuforge.quant.executor import IntegerExecutor

S8, U8 = QuantType.QInt8, QuantType.QUInt8
ALL = [
    (Form(operators, activation, weight, per_channel, symmetric), curves)
    for curves in (False, True)
    for operators in (False, True)
    for activation, weight in ((S8, S8), (U8, S8), (U8, U8))
    for per_channel, symmetric in itertools.product((True, False), (True, False))
]
SOME = [
    (Form(False, S8, S8, True, True), True),
    (Form(False, U8, U8, False, False), False),
    (Form(True, U8, S8, True, False), True),
    (Form(True, U8, U8, False, False), True),
]
CARRIED = ("m4", "u4", "r4")  # moved bytes: they have the scale of what they become
LARGEST, MEAN = 8.0, 1.2  # steps of the output, over 14 layers


def taken_over(path: Path) -> QGraph:
    """The integer graph, made without images."""
    qgraph, ctx = quantize(Options(path, load("nf-b1024"), path.parent))
    assert any("no calibration" in n for n in ctx.notices)
    return qgraph


def steps_from_onnxruntime(path: Path, qgraph: QGraph) -> np.ndarray:
    """Distance of the output from ONNX Runtime's run of the file, in steps of its scale."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    executor = IntegerExecutor(qgraph, NodesExecutor(qgraph.graph))
    found = []
    for x in images(3, seed=5):
        pixels = (x * 255).round().astype(np.uint8).transpose(0, 2, 3, 1)
        ours = executor.run_outputs(pixels if qgraph.quant["x"].image_mean is not None else x)["y"]
        found.append(np.abs(ours - session.run(None, {"x": x})[0]) / qgraph.quant["y"].scale[0])
    return np.concatenate(found)


def file_integers(path: Path) -> dict[str, np.ndarray]:
    """By weight name: integer minus zero point of the file's quantised weights."""
    constants = {i.name: numpy_helper.to_array(i).astype(np.int64) for i in onnx.load(path).graph.initializer}
    found = {}
    for name, value in constants.items():
        if name.startswith("w") and name.endswith("_quantized"):
            zero = constants[name.replace("_quantized", "_zero_point")].reshape(-1)
            found[name.removesuffix("_quantized")] = value - zero.reshape(-1, *[1] * (value.ndim - 1))
    return found


def check_weights(path: Path, qgraph: QGraph) -> None:
    """Every integer weight is the file's; of one split in two the sum is."""
    graph = qgraph.graph
    wanted = file_integers(path)
    assert len(wanted) == 7
    for node in graph.nodes:
        params = qgraph.params[node.name]
        if node.op != "Conv" or not isinstance(params, ConvParams):
            continue
        label = next(s for s in node.sources if s.startswith("conv_")).removesuffix("_quant")
        number = label.removeprefix("conv_c") if label != "conv_y" else "7"
        expected = wanted[f"w{number}"].transpose(0, 2, 3, 1)
        found = params.weight.astype(np.int64)
        if found.shape != expected.shape:
            before = graph.producer(node.inputs[0])
            assert before is not None and before.op == "ChannelGather"
            group = int(node.attrs["group"])
            count = expected.shape[3]
            lanes = np.asarray(before.attrs["indices"][: found.shape[3]])
            assert group in (1, expected.shape[0])
            total = np.zeros(expected.shape, np.int64)
            for position, lane in enumerate(lanes):
                total[..., lane % count] += found[..., position]
            found = total
        np.testing.assert_array_equal(found, expected, err_msg=label)


@pytest.mark.parametrize(("form", "curves"), SOME, ids=str)
def test_scales_and_integers_are_the_files_own(tmp_path: Path, form: Form, curves: bool) -> None:
    path = quantise(tmp_path, form, curves)
    qgraph = taken_over(path)
    assert {n.device for n in qgraph.graph.nodes} == {"NPU"}
    assert set(qgraph.notes.values()) == {"the model's own scale"}
    constants = {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
    shift = 128 if form.activation == U8 else 0
    checked = 0
    for tensor, quant in qgraph.quant.items():
        label = tensor.removesuffix("/real").removesuffix("_quantized")
        if f"{label}_scale" in constants and quant.image_mean is None and label not in CARRIED:
            assert set(quant.scale) == {float(constants[f"{label}_scale"])}, tensor
            assert set(quant.zero_point) == {int(constants[f"{label}_zero_point"]) - shift}, tensor
            checked += 1
    assert checked >= 7
    check_weights(path, qgraph)
    error = steps_from_onnxruntime(path, qgraph)
    assert error.max() <= LARGEST and error.mean() <= MEAN


@pytest.mark.full
@pytest.mark.parametrize(("form", "curves"), ALL, ids=str)
def test_every_form(tmp_path: Path, form: Form, curves: bool) -> None:
    path = quantise(tmp_path, form, curves)
    qgraph = taken_over(path)
    check_weights(path, qgraph)
    error = steps_from_onnxruntime(path, qgraph)
    assert error.max() <= LARGEST and error.mean() <= MEAN


@pytest.mark.parametrize(("form", "curves"), [SOME[0], SOME[3]], ids=str)
def test_the_devices_compute_the_same_bits(tmp_path: Path, form: Form, curves: bool) -> None:
    """Also with weights of nine bits, which are split, and with weights of -128."""
    path = quantise(tmp_path, form, curves)
    qgraph, ctx = quantize(Options(path, load("nf-b1024"), path.parent))
    if not form.symmetric:
        lowest = min(p.weight.min() for p in qgraph.params.values() if isinstance(p, ConvParams))
        assert lowest == -128
    quantised = Quantised(qgraph, ctx.preprocess)
    x = images(1, seed=8)[0]
    pixels = (x * 255).round().astype(np.uint8).transpose(0, 2, 3, 1)
    given = IntegerExecutor(qgraph).quantise_input("x", pixels if qgraph.quant["x"].image_mean is not None else x)
    assert climb(quantised, compile_graph(quantised, "nf-b1024"), {"x": given}) == []


def test_a_model_that_gives_only_some_scales_says_which_are_missing(tmp_path: Path) -> None:
    path = quantise(tmp_path, SOME[0][0], False)
    model = onnx.load(path)
    gone = next(n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "r2")
    back = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input[0] == gone.output[0])
    for node in model.graph.node:
        node.input[:] = ["r2" if t == back.output[0] else t for t in node.input]
    model.graph.node.remove(gone)
    model.graph.node.remove(back)
    onnx.save(model, path)
    with pytest.raises(
        CalibrationError, match=r"no scales for 1 tensors, first 'r2' \(written by node 'conv_c2'\).*--calib"
    ):
        quantize(Options(path, load("nf-b1024"), path.parent))


def test_a_float_model_still_needs_images(tmp_path: Path) -> None:
    quantise(tmp_path, SOME[0][0])
    with pytest.raises(CalibrationError, match="no calibration images: give a folder"):
        quantize(Options(tmp_path / "float.onnx", load("nf-b1024"), tmp_path))


def test_own_scales_can_be_refused(tmp_path: Path) -> None:
    path = quantise(tmp_path, SOME[0][0])
    with pytest.raises(CalibrationError, match="no calibration images"):
        quantize(Options(path, load("nf-b1024"), tmp_path, own_scales=False))
    with pytest.raises(CalibrationError, match="no calibration images"):
        quantize(Options(path, load("nf-b1024"), tmp_path, mode="pow2"))


@pytest.mark.data
def test_real_model(tmp_path: Path) -> None:
    """YOLO-Fastest as ONNX Runtime quantised it: closer to the float network than ONNX Runtime's own run of the file, as values are rounded once."""
    data = Path(__file__).resolve().parents[3] / "shared" / "data"
    if not (data / "models").is_dir():
        pytest.skip(f"{data / 'models'} is absent (third-party models are kept beside the repository)")
    path = data / "models" / "yolo_fastest_1.1_qdq_int8.onnx"
    options = Options(path, load("nf-b4096"), tmp_path / "build", preprocess=load_preprocess("yolo_fastest_1.1"))
    compiled, ctx = compile_model(options)
    assert ctx.qgraph is not None and (tmp_path / "build" / "model.bin").is_file()
    assert [p["device"] for p in compiled.meta["partitions"]] == ["NPU", "CPU"]
    on_cpu = [n for n in ctx.qgraph.graph.nodes if n.device == "CPU"]
    assert [n.op for n in on_cpu] == ["Conv", "Conv"] and all("leaves this output in float" in n.reason for n in on_cpu)
    whole = [n for n in ctx.qgraph.graph.nodes if n.op == "Conv" and n.device == "NPU"]
    assert len(whole) == 82 and all(n.weight_scale is not None for n in whole)
    cpu = ["CPUExecutionProvider"]
    quantised = onnxruntime.InferenceSession(path, providers=cpu)
    exact = onnxruntime.InferenceSession(data / "models" / "yolo_fastest_1.1.onnx", providers=cpu)
    executor = IntegerExecutor(ctx.qgraph, NodesExecutor(ctx.qgraph.graph))
    from npuforge.compile.ir.image import prepare

    image = sorted((data / "coco128" / "images" / "train2017").glob("*.jpg"))[0]
    pixels, tensor, _ = prepare(image, ctx.preprocess)
    ours = executor.run_outputs(pixels[np.newaxis])
    names = [v.name for v in quantised.get_outputs()]
    theirs = dict(zip(names, quantised.run(None, {"input": tensor}), strict=True))
    right = dict(zip(names, exact.run(None, {exact.get_inputs()[0].name: tensor}), strict=True))
    for name in names:
        assert np.std(ours[name] - right[name]) < np.std(theirs[name] - right[name])
        assert np.corrcoef(ours[name].ravel(), theirs[name].ravel())[0, 1] > 0.99
