"""Preprocessing, decoding and scoring are right when the float networks reach the published table (mAP50-95 / mAP50, percent) of the data's README."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from npuforge.board_runtime.heads import COCO_SETTINGS, Settings
from npuforge.compile.ir.image import load_image
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.scripts.datasets import load_dataset
from npuforge.scripts.evaluation import OnnxDetector, evaluate

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
TRUTH = {
    "coco128": ("coco128/images/train2017", "coco128/labels/train2017"),
    "tiny_coco": ("tiny_coco/train2017", "tiny_coco/annotations/instances_train2017.json"),
}
TABLE = {
    "yolox_nano": ("yolox_nano_kazuhito", {"coco128": (33.2, 50.7), "tiny_coco": (28.4, 43.0)}),
    "yolo_fastest_1.1": ("yolo_fastest_1.1", {"coco128": (16.2, 32.3), "tiny_coco": (13.1, 26.8)}),
    "fastestdet": ("fastestdet", {"coco128": (18.7, 33.2), "tiny_coco": (16.7, 28.8)}),
    "nanodet_m": ("nanodet_m", {"coco128": (30.0, 47.2), "tiny_coco": (23.4, 36.3)}),
}
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent"),
]


@pytest.mark.slow
@pytest.mark.parametrize("images", ["tiny_coco", pytest.param("coco128", marks=pytest.mark.full)])
@pytest.mark.parametrize("preset", TABLE)
def test_float_map_is_the_published_one(preset: str, images: str) -> None:
    model, figures = TABLE[preset]
    record = load_preprocess(preset)
    dataset = load_dataset(DATA / TRUTH[images][0], DATA / TRUTH[images][1], record.class_names)
    detector = OnnxDetector(DATA / "models" / f"{model}.onnx", record, settings=COCO_SETTINGS, threads=2)
    metrics = evaluate(detector, dataset).metrics
    assert (100 * metrics.map, 100 * metrics.map50) == pytest.approx(figures[images], abs=0.5)


def _faces(preset: str, model: str) -> tuple[int, int, list[float]]:
    """Faces of at least 12 pixels between the eyes with eyes and nose visible: how many, how many found, keypoint errors in eye distances."""
    dataset = load_dataset(DATA / "tiny_coco/train2017", DATA / "tiny_coco/annotations/person_keypoints_train2017.json")
    detector = OnnxDetector(DATA / "models" / model, load_preprocess(preset), threads=2)
    total = found = 0
    errors: list[float] = []
    for truth in dataset.images:
        points = [] if truth.keypoints is None else truth.keypoints[:, :3]
        faces = [p for p in points if (p[:, 2] == 2).all() and np.linalg.norm(p[1, :2] - p[2, :2]) >= 12]
        rows = detector(load_image(truth.path)) if faces else np.zeros((0, 6))
        for nose, left_eye, right_eye in (face[:, :2] for face in faces):
            total += 1
            eyes = float(np.linalg.norm(left_eye - right_eye))
            centre = (nose + left_eye + right_eye) / 3
            hits = [r for r in rows if (r[:2] <= centre).all() and (centre <= r[2:4]).all() and r[2] - r[0] < 6 * eyes]
            if not hits:
                continue
            found += 1
            keypoints = hits[0][6:].reshape(-1, 2)
            errors += [
                float(np.linalg.norm(a - b)) / eyes
                for a, b in zip(keypoints, (right_eye, left_eye, nose), strict=False)
            ]
    return total, found, errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "model", "share"),
    [
        ("yunet", "yunet_n_320_320.onnx", 0.8),
        ("ultraface", "ultraface_RFB-320.onnx", 0.8),
        ("ultraface_raw", "ultraface_RFB-320_simplified.onnx", 0.8),
        ("blazeface", "blazeface_front_128x128.onnx", 0.3),  # sees large faces only
    ],
)
def test_faces_are_found_and_eyes_and_nose_are_where_people_marked_them(preset: str, model: str, share: float) -> None:
    total, found, errors = _faces(preset, model)
    assert total >= 5 and found >= share * total
    if errors:  # swapped eyes would give about one eye distance
        assert np.median(errors) < 0.3


def test_both_exports_of_ultraface_agree() -> None:
    """One decodes its boxes in the graph, the other leaves it to our priors."""
    image = load_image(sorted((DATA / "tiny_coco/train2017").iterdir())[2])
    wide = Settings(score_threshold=0.05)
    decoded = OnnxDetector(DATA / "models/ultraface_RFB-320.onnx", load_preprocess("ultraface"), settings=wide)(image)
    raw = OnnxDetector(
        DATA / "models/ultraface_RFB-320_simplified.onnx", load_preprocess("ultraface_raw"), settings=wide
    )(image)
    assert len(raw) > 0
    np.testing.assert_allclose(raw, decoded, rtol=1e-3, atol=0.05)


def test_yunet_equals_opencvs_own_decoder() -> None:
    """OpenCV ships an implementation of the same network's decoding: corners and keypoints must agree on the same 320x320 image."""
    model = DATA / "models/yunet_n_320_320.onnx"
    theirs = cv2.FaceDetectorYN.create(str(model), "", (320, 320), 0.6, 0.3, 5000)
    ours = OnnxDetector(model, load_preprocess("yunet"), threads=2)
    compared = 0
    for path in sorted((DATA / "tiny_coco/train2017").iterdir())[:20]:
        image = cv2.resize(load_image(path), (320, 320))
        faces = theirs.detect(image)[1]
        rows = ours(image)
        assert len(rows) == (0 if faces is None else len(faces))
        if faces is None:
            continue
        faces = faces[np.argsort(-faces[:, -1])]  # x, y, width, height, five keypoints, score
        boxes = np.concatenate([faces[:, :2], faces[:, :2] + faces[:, 2:4]], axis=1)
        np.testing.assert_allclose(rows[:, :4], boxes.clip(0, 320), atol=0.05)
        np.testing.assert_allclose(rows[:, 6:], faces[:, 4:14], atol=0.05)
        np.testing.assert_allclose(rows[:, 4], faces[:, 14], atol=1e-3)
        compared += len(faces)
    assert compared >= 5
