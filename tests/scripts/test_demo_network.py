"""The bundled network: size, operators, domain, record, that its decode is the operator's, and (slow) its accuracy on unseen scenes."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.reference import FloatReference
from npuforge.scripts.demo_model import ANCHORS_PER_SCALE, HEADS, IMAGE_SIZE, LAYERS, STRIDES, build_onnx
from npuforge.scripts.layer_table import SLOPE
from npuforge.scripts.scenes import CLASS_NAMES, render_scene

DATA = Path(__file__).parents[2] / "scripts" / "demo_data"
MODEL = DATA / "demo.onnx"


def test_file_is_small_valid_and_has_the_custom_operator() -> None:
    assert MODEL.stat().st_size < 2_000_000
    model = onnx.load(MODEL)
    onnx.checker.check_model(model)
    assert {o.domain: o.version for o in model.opset_import} == {"": 13, "npuforge": 1}
    types = [n.op_type for n in model.graph.node]
    for op_type, number in {"ConvTranspose": 1, "Concat": 1, "Add": 4, "YoloDecode": 1}.items():
        assert types.count(op_type) == number
    assert types.count("BatchNormalization") == types.count("LeakyRelu") == types.count("Conv") - 2 + 1 > 15
    assert all(
        onnx.helper.get_attribute_value(a) == pytest.approx(SLOPE)
        for n in model.graph.node
        if n.op_type == "LeakyRelu"
        for a in n.attribute
    )
    decode = next(n for n in model.graph.node if n.op_type == "YoloDecode")
    assert decode.domain == "npuforge" and list(decode.input) == list(HEADS)
    values = {a.name: onnx.helper.get_attribute_value(a) for a in decode.attribute}
    assert list(values["strides"]) == list(STRIDES) and values["num_classes"] == len(CLASS_NAMES)
    assert len(values["anchors"]) == 2 * len(STRIDES) * ANCHORS_PER_SCALE


def test_record_fits_the_network() -> None:
    record = load_preprocess(DATA / "demo.yaml")
    assert (record.width, record.height, record.color, record.resize) == (IMAGE_SIZE, IMAGE_SIZE, "RGB", "stretch")
    assert record.mean == [0, 0, 0] and record.std == [255, 255, 255]
    assert record.class_names == CLASS_NAMES and record.head.kind == "yolodecode"


def test_layer_table_and_file_agree() -> None:
    """The file is what `build_onnx` makes of its own weights: nothing was edited by hand."""
    model = onnx.load(MODEL)
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    decode = model.graph.node[-1]
    anchors = next(onnx.helper.get_attribute_value(a) for a in decode.attribute if a.name == "anchors")
    shaped = np.array(anchors).reshape(len(STRIDES), ANCHORS_PER_SCALE, 2).tolist()
    assert build_onnx(weights, shaped).graph == model.graph
    assert len(weights) == sum({"conv": 5, "up": 5, "head": 2}.get(layer.kind, 0) for layer in LAYERS)


def test_finds_the_parts_of_a_scene() -> None:
    session = FloatReference(MODEL, threads=1, outputs=HEADS)
    scene = render_scene(3, 1)
    image = scene.image.astype(np.float32).transpose(2, 0, 1)[None] / 255
    result = session.run({"image": image})
    for part in scene.annotations:
        confident = result["scores"][0] > 0.3
        boxes = result["boxes"][0][confident & (result["classes"][0] == part.class_id)]
        x1, y1, x2, y2 = part.box
        width = np.minimum(boxes[:, 2], x2) - np.maximum(boxes[:, 0], x1)
        height = np.minimum(boxes[:, 3], y2) - np.maximum(boxes[:, 1], y1)
        shared = np.clip(width, 0, None) * np.clip(height, 0, None)
        union = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) + (x2 - x1) * (y2 - y1) - shared
        assert (shared / union).max() > 0.5


def test_heads_are_what_onnx_runtime_gives() -> None:
    """The custom node cut off by hand, the rest in one plain session."""
    model = onnx.load(MODEL)
    del model.graph.node[-1], model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in HEADS)
    image = np.random.default_rng(0).random((1, 3, 256, 256), np.float32)
    plain = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        list(HEADS), {"image": image}
    )
    result = FloatReference(MODEL, threads=1, outputs=HEADS).run({"image": image})
    for name, expected in zip(HEADS, plain, strict=True):
        np.testing.assert_allclose(result[name], expected, atol=1e-4)
    assert result["boxes"].shape == (1, 3 * (16 * 16 + 8 * 8), 4)


@pytest.mark.slow
def test_float_accuracy_on_unseen_scenes() -> None:
    native = pytest.importorskip("npuforge.board_runtime._native")
    if not hasattr(native, "heads"):
        pytest.skip("the native module is built without detection heads")
    from npuforge.scripts.evaluate_demo import evaluate_demo

    assert evaluate_demo(MODEL, count=100).map50 >= 0.9
