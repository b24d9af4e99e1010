"""Image file → the network's input: raw pixels in the model's channel order, the float tensor, and the way back. Pure numpy and OpenCV.

Calibration, reference, simulator and board all use this module, so that there is one preprocessing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from npuforge.compile.ir.errors import CalibrationError, UsageError
from npuforge.compile.ir.preprocess import Preprocess

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_INTERPOLATIONS = {
    "linear": cv2.INTER_LINEAR,
    "nearest": cv2.INTER_NEAREST,
    "area": cv2.INTER_AREA,
    "cubic": cv2.INTER_CUBIC,
}


@dataclass(frozen=True)
class Geometry:
    """Where the image lies in the network's input: input pixel = image pixel * scale + pad (exact: the resized size over the image's)."""

    scale_x: float
    scale_y: float
    pad_x: float
    pad_y: float
    image_width: int
    image_height: int

    def as_tuple(self) -> tuple[float, float, float, float, float, float]:
        """The order that the C++ heads take."""
        return (self.scale_x, self.scale_y, self.pad_x, self.pad_y, float(self.image_width), float(self.image_height))


def list_images(folder: str | Path) -> list[Path]:
    """The image files of a folder (or the one file given), sorted by name. CalibrationError where there is none."""
    path = Path(folder)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise CalibrationError(f"{path}: no such image file or folder")
    files = sorted(
        (p for p in path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file()), key=lambda p: p.name
    )
    if not files:
        raise CalibrationError(
            f"{path}: holds no image, expected files named {', '.join('*' + s for s in IMAGE_SUFFIXES)}"
        )
    return files


def load_image(path: str | Path) -> np.ndarray:
    """An image file as uint8 [H, W, 3], BGR (OpenCV's order), EXIF rotation applied. CalibrationError where it cannot be read."""
    path = Path(path)
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from error
    level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # what is wrong is said in our own line
    try:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
    except cv2.error:
        image = None
    finally:
        cv2.utils.logging.setLogLevel(level)
    if image is None:
        raise CalibrationError(f"{path}: not an image that OpenCV can read ({data.size} bytes), replace or remove it")
    return image


def fit(image: np.ndarray, record: Preprocess) -> tuple[np.ndarray, Geometry]:
    """A BGR image as uint8 [height, width, channels] in the model's size and channel order, and where the image lies in it.

    `GRAY`: one channel, 0.299 red + 0.587 green + 0.114 blue as `cv2.cvtColor` rounds it, before the image is resized.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise UsageError(f"expected a uint8 image [height, width, 3], found {image.dtype} {list(image.shape)}")
    if record.width <= 0 or record.height <= 0:
        raise UsageError(f"preprocessing has no input size (width {record.width}, height {record.height})")
    height, width = image.shape[:2]
    if record.resize == "stretch":
        new_width, new_height = record.width, record.height
    elif record.resize in ("letterbox_topleft", "letterbox_center"):
        ratio = min(record.width / width, record.height / height)
        new_width = min(max(round(width * ratio), 1), record.width)
        new_height = min(max(round(height * ratio), 1), record.height)
    else:
        raise UsageError(f"unknown resize `{record.resize}`, expected stretch, letterbox_topleft or letterbox_center")
    left = top = 0
    if record.resize == "letterbox_center":
        left, top = (record.width - new_width) // 2, (record.height - new_height) // 2
    if record.interpolation not in _INTERPOLATIONS:
        raise UsageError(f"unknown interpolation `{record.interpolation}`, expected {', '.join(_INTERPOLATIONS)}")
    if record.color not in ("RGB", "BGR", "GRAY"):
        raise UsageError(f"unknown color `{record.color}`, expected RGB, BGR or GRAY")
    if record.color == "GRAY":
        image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    resized = image
    if (new_width, new_height) != (width, height):
        resized = cv2.resize(image, (new_width, new_height), interpolation=_INTERPOLATIONS[record.interpolation])
    resized = resized.reshape(new_height, new_width, record.channels)  # OpenCV drops a single channel's axis
    pixels = resized
    if (new_width, new_height) != (record.width, record.height):
        pixels = np.full((record.height, record.width, record.channels), record.pad_value, dtype=np.uint8)
        pixels[top : top + new_height, left : left + new_width] = resized
    if record.color == "RGB":
        pixels = pixels[:, :, ::-1]
    geometry = Geometry(new_width / width, new_height / height, float(left), float(top), width, height)
    return np.ascontiguousarray(pixels), geometry


def to_tensor(pixels: np.ndarray, record: Preprocess) -> np.ndarray:
    """Model-order pixels [H, W, C] → the network's input, (pixel - mean) / std as `dtype`, [1, C, H, W] or [1, H, W, C] by `layout`."""
    mean = np.asarray(record.mean, dtype=np.float64)
    std = np.asarray(record.std, dtype=np.float64)
    real = (pixels.astype(np.float64) - mean) / std
    if record.dtype == "float32":
        real = real.astype(np.float32)
    else:
        limits = np.iinfo(record.dtype)
        real = np.clip(np.floor(real + 0.5), limits.min, limits.max).astype(record.dtype)
    if record.layout == "NCHW":
        real = real.transpose(2, 0, 1)
    elif record.layout != "NHWC":
        raise UsageError(f"unknown layout `{record.layout}`, expected NCHW or NHWC")
    return np.ascontiguousarray(real[np.newaxis])


def prepare(path: str | Path, record: Preprocess) -> tuple[np.ndarray, np.ndarray, Geometry]:
    """An image file → (pixels, the network's input, geometry)."""
    pixels, geometry = fit(load_image(path), record)
    return pixels, to_tensor(pixels, record), geometry
