"""Truth readers: the three formats give the same boxes; bad files are errors that name file and line."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from npuforge.compile.ir.errors import InputError, NpuforgeError
from npuforge.scripts.datasets import DatasetError, load_dataset

VOC = """<annotation>
  <size><width>200</width><height>100</height><depth>3</depth></size>
  <object><name>dog</name><bndbox><xmin>11</xmin><ymin>21</ymin><xmax>50</xmax><ymax>60</ymax></bndbox></object>
  <object><name>cat</name><difficult>1</difficult>
    <bndbox><xmin>1</xmin><ymin>1</ymin><xmax>200</xmax><ymax>100</ymax></bndbox></object>
</annotation>"""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        cv2.imwrite(str(folder / name), np.zeros((100, 200, 3), dtype=np.uint8))
    return folder


def coco() -> dict[str, Any]:
    return {
        "images": [
            {"id": 7, "file_name": "a.png", "width": 200, "height": 100},
            {"id": 9, "file_name": "sub/b.png", "width": 200, "height": 100},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 18, "bbox": [10, 20, 40, 40], "area": 900.5, "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 17, "bbox": [0, 0, 200, 100], "iscrowd": 1, "keypoints": [1, 2, 2]},
        ],
    }


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_coco(images: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(coco()))
    dataset = load_dataset(images, tmp_path / "t.json")
    assert dataset.class_names == ["dog", "cat"] and [i.path.name for i in dataset.images] == ["a.png", "b.png"]
    first = dataset.images[0]
    assert first.boxes.tolist() == [[10, 20, 50, 60], [0, 0, 200, 100]]
    assert (
        first.labels.tolist() == [0, 1]
        and first.areas.tolist() == [900.5, 20000]
        and first.ignore.tolist() == [False, True]
    )
    assert dataset.images[1].boxes.shape == (0, 4)


def test_yolo_text(images: Path, tmp_path: Path) -> None:
    truth = write(tmp_path / "labels", a__txt="0 0.15 0.4 0.2 0.4\n\n1 0.5 0.5 1 1\n")
    dataset = load_dataset(images, truth)
    np.testing.assert_allclose(dataset.images[0].boxes, [[10, 20, 50, 60], [0, 0, 200, 100]], atol=1e-9)
    assert dataset.images[0].labels.tolist() == [0, 1]
    assert len(dataset.images[1].boxes) == 0  # no file: no objects


def test_voc(images: Path, tmp_path: Path) -> None:
    truth = write(tmp_path / "xml", a__xml=VOC, b__xml="<annotation/>")
    dataset = load_dataset(images, truth)
    assert dataset.class_names == ["cat", "dog"]
    first = dataset.images[0]
    assert first.boxes.tolist() == [[10, 20, 50, 60], [0, 0, 200, 100]]  # 1-based inclusive corners
    assert first.labels.tolist() == [1, 0] and first.ignore.tolist() == [False, True]
    assert (dataset.images[1].width, dataset.images[1].height) == (200, 100)  # from the image where the XML is silent


def test_classes_are_matched_by_name(images: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(coco()))
    dataset = load_dataset(images, tmp_path / "t.json", ["bird", "cat", "dog"])
    assert dataset.images[0].labels.tolist() == [2, 1] and dataset.class_names == ["bird", "cat", "dog"]
    with pytest.raises(InputError, match="class_names of the preprocessing lacks: cat"):
        load_dataset(images, tmp_path / "t.json", ["dog"])
    truth = write(tmp_path / "labels", a__txt="3 0.5 0.5 0.1 0.1")
    with pytest.raises(InputError, match=r"uses class 3, but class_names of the preprocessing has 2 "):
        load_dataset(images, truth, ["x", "y"])
    assert load_dataset(images, truth, ["x", "y", "z", "w"]).images[0].labels.tolist() == [3]


def test_part_of_a_dataset(images: Path, tmp_path: Path) -> None:
    truth = write(tmp_path / "labels", a__txt="0 0.5 0.5 1 1")
    assert [i.path.name for i in load_dataset(images, truth).take(1).images] == ["b.png"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 0.5 0.5 1 1\n0 0.5 0.5 1", r"a\.txt:2: expected `class cx cy w h`, found 4 values"),
        ("0 0.1 0.1 0.2 0.1 0.2 0.2", r"a\.txt:1: expected `class cx cy w h`, found 7 values"),
        ("cat 0.5 0.5 1 1", r"a\.txt:1: expected an integer class"),
        ("0 0.5 0.5 1 x", r"a\.txt:1: expected an integer class and four numbers"),
        ("0 50 50 100 100", r"a\.txt:1: values must be relative"),
        ("0 nan 0.5 1 1", r"a\.txt:1: values must be relative"),
        ("-1 0.5 0.5 1 1", r"a\.txt:1: .*class at least 0"),
    ],
)
def test_bad_yolo_text(images: Path, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load_dataset(images, write(tmp_path / "labels", a__txt=text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation>\n<object>\n</annotation>", r"a\.xml:3: not valid XML: mismatched tag"),
        ("", r"a\.xml:1: not valid XML"),
        ("<html/>", r"a\.xml:1: expected <annotation> as the root, found <html>"),
        ("<annotation>\n<object/>\n</annotation>", r"a\.xml:2: <object> has no <name>"),
        ("<annotation>\n<object><name>x</name></object></annotation>", r"a\.xml:2: <object> `x` has no <bndbox>"),
        (VOC.replace("<xmax>50</xmax>", ""), r"a\.xml:3: <bndbox> has no <xmax>"),
        (VOC.replace("<xmax>50", "<xmax>wide"), r"a\.xml:3: <xmax> must be a number, found `wide`"),
        (VOC.replace("<xmax>50", "<xmax>5"), r"a\.xml:3: <bndbox> ends before it begins"),
        (VOC.replace("<xmax>50", "<xmax>inf"), r"a\.xml:3: <xmax> is out of range"),
        ('<!DOCTYPE a [<!ENTITY b "c">]>\n<annotation/>', r"a\.xml:1: entity declarations are not accepted"),
    ],
)
def test_bad_voc(images: Path, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load_dataset(images, write(tmp_path / "xml", a__xml=text, b__xml="<annotation/>"))


def test_voc_file_missing(images: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"b\.xml: missing"):
        load_dataset(images, write(tmp_path / "xml", a__xml=VOC))


def change(path: str, value: Any) -> str:
    data: Any = coco()
    at = data
    *parents, last = path.split(".")
    for key in parents:
        at = at[int(key) if key.isdigit() else key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"images": [,]}', r"t\.json:2: not valid JSON"),
        ("[]", r"expected a JSON object"),
        (change("annotations", None), r"`annotations` is missing"),
        (change("categories.1.id", 18), r"categories\[1\]: id 18 appears twice"),
        (change("images.0.width", "200"), r"images\[0\]: `width` must be int, found '200'"),
        (change("annotations.1.image_id", 8), r"annotations\[1\]: image_id 8 is not among the images"),
        (change("annotations.1.category_id", 1), r"annotations\[1\]: category_id 1 is not among the categories"),
        (change("annotations.0.bbox", [1, 2, 3]), r"annotations\[0\]: bbox must be"),
        (change("annotations.0.bbox", [1, 2, -3, 4]), r"annotations\[0\]: bbox must be"),
        (change("annotations.1.keypoints", [1, 2]), r"annotations\[1\]: keypoints must be triples"),
        (change("images.1.file_name", "c.png"), r"has no image entry for b\.png"),
    ],
)
def test_bad_coco(images: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(images, tmp_path / "t.json")
    assert "t.json" in str(caught.value) and "\n" not in str(caught.value)


def test_no_truth_at_all(images: Path, tmp_path: Path) -> None:
    with pytest.raises(NpuforgeError, match="no such truth"):
        load_dataset(images, tmp_path / "none.json")
    with pytest.raises(NpuforgeError, match=r"expected a COCO \.json file"):
        load_dataset(images, images)
    with pytest.raises(DatasetError, match="no label file for any of the 2 images"):
        load_dataset(images, write(tmp_path / "labels", other__txt="0 0.5 0.5 1 1"))
