"""Draws detections on images: boxes, class names, scores and keypoints, one colour per class."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from npuforge.compile.ir.errors import WriteError

Colour = tuple[int, int, int]  # BGR


def class_colour(label: int) -> Colour:
    """A strong colour that depends on the class only; neighbouring classes are far apart (golden angle)."""
    hue = (0.33 + label * 0.61803398875) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, 0.92)
    return (round(255 * blue), round(255 * green), round(255 * red))


def class_name(label: int, class_names: Sequence[str]) -> str:
    """The class's name; its number where it has none, or one that OpenCV's built-in font cannot write."""
    if 0 <= label < len(class_names) and class_names[label].isascii():
        return class_names[label]
    return f"class {label}"


def draw_detections(
    image: np.ndarray,
    detections: np.ndarray,
    class_names: Sequence[str] = (),
    *,
    truth: np.ndarray | None = None,
    scores: bool = True,
    oriented: bool = False,
) -> np.ndarray:
    """A copy of the BGR image with rows [x1, y1, x2, y2, score, class, keypoints ...] on it, the best on top; `truth` in thin white.

    `oriented`: the four keypoints are the box's corners. `truth`: rows [x1, y1, x2, y2, class], of oriented boxes with the four corners behind.
    """
    canvas = np.ascontiguousarray(image).copy()
    scale = max(canvas.shape[:2]) / 640
    line = max(1, round(2 * scale))
    for box in np.zeros((0, 4)) if truth is None else truth:
        corners = box[5:13] if len(box) == 13 else box[[0, 1, 2, 1, 2, 3, 0, 3]]
        around = np.round(corners.reshape(4, 2)).astype(np.int32)
        cv2.polylines(canvas, [around], True, (0, 0, 0), line + 2)
        cv2.polylines(canvas, [around], True, (255, 255, 255), max(1, line // 2))
    for row in sorted(detections, key=lambda r: float(r[4])):
        _draw_one(canvas, row, class_names, line, scale, scores, oriented)
    return canvas


def check_formats(paths: Sequence[Path]) -> None:
    """Refuses, before the work, names of images that `save_image` could not write."""
    for path in paths:
        if not path.suffix or not cv2.haveImageWriter(path.name):
            raise WriteError(
                f"{path}: an image of this type can be read but not drawn; expected .jpg, .png, .bmp or .webp"
            )


def save_image(path: str | Path, image: np.ndarray) -> None:
    """Writes the image in the format of the suffix. WriteError where that is not possible."""
    path = Path(path)
    try:
        ok, data = cv2.imencode(path.suffix or ".", image)
    except cv2.error:
        ok = False
    if not ok:
        raise WriteError(f"{path}: cannot write an image of this type, expected .jpg, .png, .bmp or .webp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.tobytes())
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from error


def _draw_one(
    canvas: np.ndarray,
    row: np.ndarray,
    class_names: Sequence[str],
    line: int,
    scale: float,
    scores: bool,
    oriented: bool,
) -> None:
    label = int(row[5])
    colour = class_colour(label)
    x1, y1, x2, y2 = (round(float(v)) for v in row[:4])
    if oriented:
        corners = np.round(row[6:14].reshape(4, 2)).astype(np.int32)
        cv2.polylines(canvas, [corners], True, colour, line, cv2.LINE_AA)
        x1, y1 = (int(v) for v in corners[np.argmin(corners[:, 1])])
    else:
        cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, line)
    text = class_name(label, class_names) + (f" {row[4]:.2f}" if scores else "")
    size = max(0.35, 0.45 * scale)
    weight = max(1, round(scale))
    (width, height), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, size, weight)
    top = y1 - height - base if y1 - height - base >= 0 else y1
    left = max(0, min(x1, canvas.shape[1] - width))
    cv2.rectangle(canvas, (left, top), (left + width, top + height + base), colour, cv2.FILLED)
    bright = 0.114 * colour[0] + 0.587 * colour[1] + 0.299 * colour[2] > 140
    ink = (0, 0, 0) if bright else (255, 255, 255)
    cv2.putText(
        canvas, text, (left, top + height + base // 2), cv2.FONT_HERSHEY_SIMPLEX, size, ink, weight, cv2.LINE_AA
    )
    for x, y in row[14 if oriented else 6 :].reshape(-1, 2):
        centre = (round(float(x)), round(float(y)))
        cv2.circle(canvas, centre, max(2, round(3 * scale)), (255, 255, 255), cv2.FILLED, cv2.LINE_AA)
        cv2.circle(canvas, centre, max(1, round(2 * scale)), colour, cv2.FILLED, cv2.LINE_AA)
