"""A folder of scenes: `images/0000.png` …, `annotations.json` in COCO form and `labels/0000.txt` … with oriented boxes. Command line: `python -m npuforge.scripts.scenes --help`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from npuforge.compile.ir.errors import UsageError
from npuforge.scripts.scenes.oriented import corners, oriented_box
from npuforge.scripts.scenes.parts import CLASS_NAMES
from npuforge.scripts.scenes.scene import Annotation, generate


def to_coco(names: Sequence[str], annotations: Sequence[Sequence[Annotation]], size: int) -> dict[str, Any]:
    """COCO detection JSON: category ids count from 1; `angle` (degrees) and `rotated_box` are additions of ours."""
    images = [{"id": i + 1, "file_name": name, "width": size, "height": size} for i, name in enumerate(names)]
    records: list[dict[str, Any]] = []
    for image_id, parts in enumerate(annotations, 1):
        for part in parts:
            x1, y1, x2, y2 = part.box
            record: dict[str, Any] = {
                "id": len(records) + 1,
                "image_id": image_id,
                "category_id": part.class_id + 1,
                "iscrowd": 0,
            }
            record |= {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": part.area}
            record |= {"angle": round(part.angle, 3), "rotated_box": [round(v, 3) for v in part.rotated_box]}
            records.append(record)
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(CLASS_NAMES)]
    return {"images": images, "annotations": records, "categories": categories}


def to_oriented_text(parts: Sequence[Annotation], size: int) -> str:
    """YOLO-OBB: a line `class x1 y1 x2 y2 x3 y3 x4 y4` per part, corners relative to the image."""
    rows = [(part.class_id, corners(oriented_box(part)).ravel() / size) for part in parts]
    return "".join(f"{label} {' '.join(f'{v:.6f}' for v in values)}\n" for label, values in rows)


def write_folder(folder: Path, seed: int, count: int, size: int = 256, suffix: str = ".png") -> Path:
    """Writes `count` scenes as images/0000.png …, annotations.json and labels/0000.txt …; returns the path of annotations.json."""
    if suffix not in (".png", ".jpg"):
        raise UsageError(f"suffix {suffix!r}: expected .png or .jpg")
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    names, annotations = [], []
    for i in range(count):
        images, parts = generate(seed, 1, size, start=i)
        names.append(f"{i:04d}{suffix}")
        options = [cv2.IMWRITE_JPEG_QUALITY, 95] if suffix == ".jpg" else []
        done, data = cv2.imencode(suffix, np.ascontiguousarray(images[0][..., ::-1]), options)
        if not done:
            raise UsageError(f"{names[-1]}: OpenCV cannot write {suffix} files")
        (folder / "images" / names[-1]).write_bytes(data.tobytes())
        (folder / "labels" / f"{i:04d}.txt").write_text(to_oriented_text(parts[0], size))
        annotations.append(parts[0])
    path = folder / "annotations.json"
    path.write_text(json.dumps(to_coco(names, annotations, size), indent=1) + "\n")
    return path
