"""Ground truth in one common form: COCO JSON, YOLO text (oriented boxes too) and Pascal VOC XML become a `Dataset`. Errors name the file and line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import InputError, NpuforgeError
from npuforge.compile.ir.image import list_images, load_image
from npuforge.compile.ir.plain_text import DuplicateKeyError, parse_json
from npuforge.scripts.voc_xml import read_voc
from npuforge.scripts.yolo_text import YoloObject, read_yolo_text


class DatasetError(NpuforgeError):
    """A truth file is wrong. Names the file and the line or entry, what was expected and what was found."""


@dataclass
class ImageTruth:
    """One image and its true boxes: x1, y1, x2, y2 in image pixels. `ignore`: crowds (COCO) and difficult objects (VOC) count neither way.

    `keypoints` ([N, K, 3]: x, y, visibility) where the truth has them. `corners` of oriented boxes, around the box; `boxes` enclose them.
    """

    path: Path
    width: int
    height: int
    boxes: np.ndarray  # float64 [N, 4]
    labels: np.ndarray  # int64 [N]
    areas: np.ndarray  # float64 [N]
    ignore: np.ndarray  # bool [N]
    keypoints: np.ndarray | None = None
    corners: np.ndarray | None = None  # float64 [N, 4, 2]


@dataclass
class Dataset:
    """Images with truth, sorted by file name. `class_names` is empty where the format has none (YOLO text)."""

    format: str
    class_names: list[str]
    images: list[ImageTruth] = field(default_factory=list)

    @property
    def oriented(self) -> bool:
        """The boxes are oriented."""
        return any(image.corners is not None for image in self.images)

    def take(self, first: int, last: int | None = None) -> Dataset:
        """The images first..last (exclusive) by name."""
        return replace(self, images=self.images[first:last])

    def with_classes(self, class_names: Sequence[str]) -> Dataset:
        """Labels renumbered to the model's class list, by name; without names on one side the indices are taken as they are."""
        names = list(class_names)
        if not names:
            return self
        if not self.class_names:
            highest = max((int(i.labels.max()) for i in self.images if i.labels.size), default=-1)
            if highest >= len(names):
                raise InputError(
                    f"the truth uses class {highest}, but class_names of the preprocessing has {len(names)} (0..{len(names) - 1}); give a name for each class of the network"
                )
            return replace(self, class_names=names)
        used = sorted({int(label) for i in self.images for label in i.labels})
        missing = [self.class_names[k] for k in used if self.class_names[k] not in names]
        if missing:
            raise InputError(
                f"the truth has classes that class_names of the preprocessing lacks: {', '.join(missing[:5])}; it has "
                f"{', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
            )
        table = np.array([names.index(n) if n in names else -1 for n in self.class_names], dtype=np.int64)
        return replace(self, class_names=names, images=[replace(i, labels=table[i.labels]) for i in self.images])


def load_dataset(images: str | Path, truth: str | Path, class_names: Sequence[str] = ()) -> Dataset:
    """Truth for the images of a folder: a COCO `.json` file, or a folder of YOLO `.txt` or of VOC `.xml` files with the images' names.

    YOLO lines of nine values (`class x1 y1 … x4 y4`, YOLO-OBB) are oriented boxes.

    `class_names` is the model's list: VOC classes are numbered by it, COCO categories are matched to it by name.
    """
    truth = Path(truth)
    paths = list_images(images)
    if truth.is_file() and truth.suffix.lower() == ".json":
        dataset = _load_coco(paths, truth)
    elif truth.is_dir() and any(truth.glob("*.xml")):
        dataset = _load_voc(paths, truth)
    elif truth.is_dir() and any(truth.glob("*.txt")):
        dataset = _load_yolo(paths, truth)
    elif not truth.exists():
        raise DatasetError(f"{truth}: no such truth file or folder")
    else:
        raise DatasetError(f"{truth}: expected a COCO .json file, or a folder of YOLO .txt or Pascal VOC .xml files")
    return dataset.with_classes(class_names)


def _truth(
    path: Path, width: int, height: int, rows: list[tuple[float, ...]], keypoints: list[Any] | None = None
) -> ImageTruth:
    """Rows are x1, y1, x2, y2, label, area, ignore."""
    table = np.array(rows, dtype=np.float64).reshape(-1, 7)
    points = np.array(keypoints, dtype=np.float64) if keypoints else None
    return ImageTruth(
        path,
        width,
        height,
        table[:, :4].copy(),
        table[:, 4].astype(np.int64),
        table[:, 5].copy(),
        table[:, 6].astype(bool),
        points,
    )


def _image_size(path: Path) -> tuple[int, int]:
    image = load_image(path)
    return image.shape[1], image.shape[0]


# --- COCO JSON ---------------------------------------------------------------------------------------------------------------------------
def _load_coco(paths: list[Path], truth: Path) -> Dataset:
    try:
        data = parse_json(truth.read_text(encoding="utf-8"), str(truth))
    except DuplicateKeyError as error:
        raise DatasetError(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{truth}: cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise DatasetError(f"{truth}:{error.lineno}: not valid JSON: {error.msg} (column {error.colno})") from error
    if not isinstance(data, dict):
        raise DatasetError(f"{truth}: expected a JSON object with images, annotations and categories")
    for key in ("images", "annotations", "categories"):
        if not isinstance(data.get(key), list):
            raise DatasetError(
                f"{truth}: `{key}` is missing or not a list, expected COCO's images, annotations and categories"
            )
    names: list[str] = []
    label_of: dict[int, int] = {}
    for i, category in enumerate(data["categories"]):
        where = f"{truth}: categories[{i}]"
        identifier, name = _member(category, "id", int, where), _member(category, "name", str, where)
        if identifier in label_of:
            raise DatasetError(f"{where}: id {identifier} appears twice")
        label_of[identifier] = len(names)
        names.append(name)
    image_of: dict[str, dict[str, Any]] = {}
    for i, image in enumerate(data["images"]):
        where = f"{truth}: images[{i}]"
        file_name = Path(_member(image, "file_name", str, where)).name
        for key in ("id", "width", "height"):
            _member(image, key, int, where)
        image_of[file_name] = image
    identifiers = {image["id"] for image in image_of.values()}
    rows: dict[int, list[tuple[float, ...]]] = {}
    points: dict[int, list[Any]] = {}
    for i, annotation in enumerate(data["annotations"]):
        _read_coco_annotation(annotation, f"{truth}: annotations[{i}]", label_of, identifiers, rows, points)
    dataset = Dataset("COCO JSON", names)
    for path in paths:
        if path.name not in image_of:
            raise DatasetError(f"{truth}: has no image entry for {path.name}")
        entry = image_of[path.name]
        found = rows.get(entry["id"], [])
        keypoints = points.get(entry["id"], [])
        whole = (
            keypoints if keypoints and len(keypoints) == len(found) and len({len(k) for k in keypoints}) == 1 else None
        )
        dataset.images.append(_truth(path, entry["width"], entry["height"], found, whole))
    return dataset


def _read_coco_annotation(
    annotation: Any,
    where: str,
    label_of: dict[int, int],
    images: set[int],
    rows: dict[int, list[Any]],
    points: dict[int, list[Any]],
) -> None:
    image_id, category = _member(annotation, "image_id", int, where), _member(annotation, "category_id", int, where)
    if image_id not in images:
        raise DatasetError(f"{where}: image_id {image_id} is not among the images")
    if category not in label_of:
        raise DatasetError(f"{where}: category_id {category} is not among the categories")
    box = _member(annotation, "bbox", list, where)
    if len(box) != 4 or not all(isinstance(v, (int, float)) and abs(v) < 1e9 for v in box) or box[2] < 0 or box[3] < 0:
        raise DatasetError(f"{where}: bbox must be [x, y, width, height] with a size of at least 0, found {box}")
    x, y, w, h = (float(v) for v in box)
    area, crowd = annotation.get("area", w * h), annotation.get("iscrowd", 0)
    if isinstance(area, bool) or not isinstance(area, (int, float)) or not 0 <= area < 1e18:
        raise DatasetError(f"{where}: area must be a number of at least 0, found {area!r}")
    if crowd not in (0, 1):
        raise DatasetError(f"{where}: iscrowd must be 0 or 1, found {crowd!r}")
    rows.setdefault(image_id, []).append((x, y, x + w, y + h, label_of[category], float(area), bool(crowd)))
    keypoints = annotation.get("keypoints")
    if keypoints is not None:
        if not isinstance(keypoints, list) or not all(isinstance(k, (int, float)) for k in keypoints):
            raise DatasetError(f"{where}: keypoints must be a list of numbers, found {str(keypoints)[:60]}")
        if len(keypoints) % 3:
            raise DatasetError(f"{where}: keypoints must be triples x, y, visibility, found {len(keypoints)} numbers")
        points.setdefault(image_id, []).append(np.asarray(keypoints, dtype=np.float64).reshape(-1, 3))


def _member(entry: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(entry, dict):
        raise DatasetError(f"{where}: expected an object, found {type(entry).__name__}")
    value = entry.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DatasetError(f"{where}: `{key}` must be {kind.__name__}, found {value!r}")
    return value


# --- YOLO text ---------------------------------------------------------------------------------------------------------------------------
def _load_yolo(paths: list[Path], folder: Path) -> Dataset:
    """Upright or oriented boxes (`yolo_text.py`). An image without a text file has no objects, as the format's own tools have it."""
    labels = {path: folder / f"{path.stem}.txt" for path in paths}
    if not any(text.is_file() for text in labels.values()):
        raise DatasetError(
            f"{folder}: holds no label file for any of the {len(paths)} images, expected for example {paths[0].stem}.txt"
        )
    parsed: list[tuple[Path, tuple[int, int], list[YoloObject]]] = []
    upright = oriented = ""  # the first line of each sort
    for path, text in labels.items():
        size = _image_size(path)
        try:
            objects = read_yolo_text(text, *size) if text.is_file() else []
        except ValueError as error:
            raise DatasetError(str(error)) from error
        for found in objects:
            upright = upright or ("" if found.oriented else f"{text}:{found.line}")
            oriented = oriented or (f"{text}:{found.line}" if found.oriented else "")
        parsed.append((path, size, objects))
    if upright and oriented:
        raise DatasetError(
            f"{upright}: an upright box of five values, but {oriented} is an oriented one of nine; expected one sort throughout"
        )
    dataset = Dataset("YOLO oriented text" if oriented else "YOLO text", [])
    for path, (width, height), objects in parsed:
        corners = np.array([o.corners for o in objects]).reshape(-1, 4, 2)
        boxes = np.concatenate([corners.min(1), corners.max(1)], 1) if objects else np.zeros((0, 4))
        entry = _truth(path, width, height, [(*b, o.label, o.area, False) for b, o in zip(boxes, objects, strict=True)])
        dataset.images.append(replace(entry, corners=corners if oriented else None))
    return dataset


# --- Pascal VOC XML ----------------------------------------------------------------------------------------------------------------------
def _load_voc(paths: list[Path], folder: Path) -> Dataset:
    """VOC corners are 1-based and inclusive: x1 = xmin - 1, x2 = xmax. Classes are numbered alphabetically."""
    parsed = []
    for path in paths:
        xml = folder / f"{path.stem}.xml"
        if not xml.is_file():
            raise DatasetError(f"{xml}: missing, expected one .xml per image")
        try:
            parsed.append((path, read_voc(xml)))
        except ValueError as error:
            raise DatasetError(str(error)) from error
    names = sorted({obj.name for _, annotation in parsed for obj in annotation.objects})
    dataset = Dataset("Pascal VOC XML", names)
    for path, annotation in parsed:
        width, height = (annotation.width, annotation.height) if annotation.width else _image_size(path)
        rows: list[tuple[float, ...]] = []
        for obj in annotation.objects:
            x1, y1 = max(obj.x_min - 1.0, 0.0), max(obj.y_min - 1.0, 0.0)
            area = (obj.x_max - x1) * (obj.y_max - y1)
            rows.append((x1, y1, obj.x_max, obj.y_max, names.index(obj.name), area, obj.difficult))
        dataset.images.append(_truth(path, width, height, rows))
    return dataset
