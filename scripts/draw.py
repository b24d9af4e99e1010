"""Draws detections on images: boxes, class names, scores and keypoints, one colour per class."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from npuforge.compile.ir.errors import WriteError

Colour = tuple[int, int, int]  # BGR
Rectangle = tuple[int, int, int, int]  # left, top, right, bottom, pixels


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
    best_first = sorted(detections, key=lambda r: -float(r[4]))
    for row in reversed(best_first):
        _draw_box(canvas, row, line, scale, oriented)
    taken: list[Rectangle] = []
    labels = [_place_label(canvas, row, class_names, scale, scores, oriented, taken) for row in best_first]
    for row, label in zip(reversed(best_first), reversed(labels), strict=True):
        _draw_label(canvas, label, class_colour(int(row[5])), scale)
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


def _draw_box(canvas: np.ndarray, row: np.ndarray, line: int, scale: float, oriented: bool) -> None:
    """The box and its keypoints."""
    colour = class_colour(int(row[5]))
    x1, y1, x2, y2 = (round(float(v)) for v in row[:4])
    if oriented:
        cv2.polylines(canvas, [_corners(row)], True, colour, line, cv2.LINE_AA)
    else:
        cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, line)
    for x, y in row[14 if oriented else 6 :].reshape(-1, 2):
        centre = (round(float(x)), round(float(y)))
        cv2.circle(canvas, centre, max(2, round(3 * scale)), (255, 255, 255), cv2.FILLED, cv2.LINE_AA)
        cv2.circle(canvas, centre, max(1, round(2 * scale)), colour, cv2.FILLED, cv2.LINE_AA)


def _corners(row: np.ndarray) -> np.ndarray:
    return np.round(row[6:14].reshape(4, 2)).astype(np.int32)


def _font(scale: float) -> tuple[float, int]:
    """Size and weight of the labels' letters."""
    return max(0.35, 0.45 * scale), max(1, round(scale))


def _place_label(
    canvas: np.ndarray,
    row: np.ndarray,
    class_names: Sequence[str],
    scale: float,
    scores: bool,
    oriented: bool,
    taken: list[Rectangle],
) -> tuple[str, Rectangle, int]:
    """Text, place and the letters' base line of a label: on top of its box, else the nearest of the places below and beside it that covers none
    of `taken` (which it joins). Where everything is taken, on top."""
    x1, y1 = round(float(row[0])), round(float(row[1]))
    if oriented:
        corners = _corners(row)
        x1, y1 = (int(v) for v in corners[np.argmin(corners[:, 1])])
    text = class_name(int(row[5]), class_names) + (f" {row[4]:.2f}" if scores else "")
    (width, height), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, *_font(scale))
    high = height + base
    top = y1 - high if y1 - high >= 0 else y1
    lefts = [max(0, min(x1 + k * width, canvas.shape[1] - width)) for k in (0, 1, -1)]
    tops = [top, *range(max(y1 + 1, 0), canvas.shape[0] - high, high + 1)]
    places = [(left, y, left + width, y + high) for left in lefts for y in tops]
    places.sort(key=lambda p: abs(p[0] - lefts[0]) + abs(p[1] - top))
    place = next((p for p in places if not any(_meet(p, other) for other in taken)), places[0])
    taken.append(place)
    return text, place, place[1] + height + base // 2


def _meet(a: Rectangle, b: Rectangle) -> bool:
    """Whether rectangles (their borders are painted) share a pixel."""
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


def _draw_label(canvas: np.ndarray, label: tuple[str, Rectangle, int], colour: Colour, scale: float) -> None:
    text, (left, top, right, bottom), letters = label
    cv2.rectangle(canvas, (left, top), (right, bottom), colour, cv2.FILLED)
    bright = 0.114 * colour[0] + 0.587 * colour[1] + 0.299 * colour[2] > 140
    size, weight = _font(scale)
    ink = (0, 0, 0) if bright else (255, 255, 255)
    cv2.putText(canvas, text, (left, letters), cv2.FONT_HERSHEY_SIMPLEX, size, ink, weight, cv2.LINE_AA)
