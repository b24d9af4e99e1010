"""The bundled network for oriented boxes: file, record, decode by formula, accuracy of float and device on few scenes (full: on 100)."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from npuforge.board_runtime.heads import Head
from npuforge.compile.context import Options
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.pipeline import compile_model
from npuforge.compile.reference import FloatReference
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.rotated import polygon_overlap
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.command_evaluate import evaluate_columns
from npuforge.scripts.datasets import load_dataset
from npuforge.scripts.oriented_model import CELLS, HEADS, IMAGE_SIZE, LAYERS, PARTS, STRIDES, build_onnx
from npuforge.scripts.report.data import DEVICE, FLOAT
from npuforge.scripts.scenes import CLASS_NAMES, render_scene, write_folder
from npuforge.scripts.scenes.oriented import corners, oriented_box

DATA = Path(__file__).parents[2] / "scripts" / "demo_data"
MODEL = DATA / "oriented.onnx"
GATE = 0.85  # mAP50 of oriented boxes that the float network must reach; int8 may lose one point


def image_of(index: int, seed: int = 3) -> np.ndarray:
    return render_scene(seed, index).image.astype(np.float32).transpose(2, 0, 1)[None] / 255


def test_file_is_small_valid_and_has_the_custom_operator() -> None:
    assert MODEL.stat().st_size < 2_000_000
    model = onnx.load(MODEL)
    onnx.checker.check_model(model)
    assert {o.domain: o.version for o in model.opset_import} == {"": 13, "npuforge": 1}
    types = [n.op_type for n in model.graph.node]
    for op_type, number in {"Resize": 1, "MaxPool": 3, "AngleDecode": 1, "LeakyRelu": 0}.items():
        assert types.count(op_type) == number
    assert types.count("BatchNormalization") == types.count("Conv") - len(HEADS) > 15
    assert types.count("Sigmoid") == types.count("BatchNormalization") + 1  # SiLU everywhere, and the scores
    assert next(n for n in model.graph.node if n.op_type == "AngleDecode").domain == "npuforge"


def test_layer_table_and_file_agree() -> None:
    """The file is what `build_onnx` makes of its own weights: nothing was edited by hand."""
    model = onnx.load(MODEL)
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    assert build_onnx(weights).graph == model.graph
    trained = {"conv": 5, "head": 2}
    assert sum(n.split(".")[0] in {y.name for y in LAYERS if y.kind in trained} for n in weights) - 2 * 3 == sum(
        trained.get(layer.kind, 0) for layer in LAYERS
    )


def test_record_fits_the_network() -> None:
    record = load_preprocess(DATA / "oriented.yaml")
    assert (record.width, record.height, record.color, record.resize) == (IMAGE_SIZE, IMAGE_SIZE, "RGB", "stretch")
    assert record.mean == [0, 0, 0] and record.std == [255, 255, 255]
    assert record.class_names == CLASS_NAMES and record.head.kind == "yolo_rows" and Head(record).oriented


def test_rows_are_the_formulas_of_the_maps() -> None:
    """The decode cut off by hand, the maps from one plain ONNX Runtime session, the formulas in float64."""
    model = onnx.load(MODEL)
    cut = next(i for i, n in enumerate(model.graph.node) if n.op_type == "Reshape")
    del model.graph.node[cut:], model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in HEADS)
    image = image_of(2)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    maps = dict(zip(HEADS, (v[0].astype(np.float64) for v in session.run(HEADS, {"image": image})), strict=True))
    predictions = FloatReference(MODEL, threads=1).run({"image": image})["predictions"][0]
    assert predictions.shape == (4 + len(CLASS_NAMES) + 1, CELLS)
    row = 0
    for stride in STRIDES:
        boxes, classes, codes = (maps[f"{part}{stride}"] for part in PARTS)
        for y in range(IMAGE_SIZE // stride):
            for x in range(IMAGE_SIZE // stride):
                wanted = [(x + 0.5 + boxes[0, y, x]) * stride, (y + 0.5 + boxes[1, y, x]) * stride]
                wanted += list(np.exp(boxes[2:, y, x]) * stride)
                wanted += list(1 / (1 + np.exp(-classes[:, y, x])))
                np.testing.assert_allclose(predictions[:-1, row], wanted, rtol=1e-4, atol=1e-4)
                sine, cosine = codes[:, y, x] / np.hypot(*codes[:, y, x])
                angle = float(predictions[-1, row])
                assert -np.pi / 2 <= angle < np.pi / 2
                np.testing.assert_allclose([np.sin(2 * angle), np.cos(2 * angle)], [sine, cosine], atol=1e-4)
                row += 1


def test_finds_the_parts_of_a_scene() -> None:
    head = Head(load_preprocess(DATA / "oriented.yaml"))
    found = head.detect(FloatReference(MODEL, threads=1).run({"image": image_of(1)}))
    for part in render_scene(3, 1).annotations:
        boxes = [row[6:14].reshape(4, 2).astype(float) for row in found if row[5] == part.class_id]
        assert max(polygon_overlap(box, corners(oriented_box(part))) for box in boxes) > 0.5


def accuracy(folder: Path, count: int) -> dict[str, float]:
    """mAP50 of oriented boxes, float and device, on `count` unseen scenes; compiled for nf-b4096 with 16 calibration scenes."""
    calibration = sorted(write_folder(folder / "calibration", 100, 16).parent.glob("images/*.png"))
    scenes = write_folder(folder / "scenes", 3, count).parent
    record = load_preprocess(DATA / "oriented.yaml")
    compile_model(
        Options(MODEL, load("nf-b4096"), folder / "build", preprocess=record, calibration=calibration, mode="fine")
    )
    build = open_build(folder / "build")
    dataset = load_dataset(scenes / "images", scenes / "labels", record.class_names)
    metrics = evaluate_columns(build, dataset, [FLOAT, DEVICE], "sim", "auto", 2, lambda *_: None)
    return {column: m.map50 for column, m in metrics.items()}


@pytest.mark.parametrize("count", [24, pytest.param(100, marks=pytest.mark.full)])
def test_accuracy_of_float_and_device(count: int, tmp_path: Path) -> None:
    found = accuracy(tmp_path, count)
    assert found[FLOAT] >= GATE
    assert found[DEVICE] >= found[FLOAT] - 0.01
