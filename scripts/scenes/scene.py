"""One scene: background, parts at any rotation and scale, shadows, light, noise; and the exact boxes of the parts.

The box of a part is the axis-aligned bounding box of its own rotated mask (whole part, also where another part covers some of it):
x1, y1 = first column and row that belong to it, x2, y2 = one past the last. Everything follows from (seed, index) alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from npuforge.scripts.scenes.parts import BUILDERS, CANVAS, Part

MATERIALS = {  # base colour (R, G, B), strength of the highlight
    "steel": ((168, 172, 178), 0.75),
    "zinc": ((196, 200, 196), 0.5),
    "black_oxide": ((62, 62, 68), 0.5),
    "brass": ((190, 158, 84), 0.65),
    "copper": ((184, 116, 84), 0.6),
    "yellow_zinc": ((186, 178, 120), 0.55),
}
SIZE_RANGE = (15.0, 52.0)  # radius in pixels of a 256-pixel image
MAX_COVERED = 0.15  # at most this share of a part's box may lie in another part's box


@dataclass
class Annotation:
    """One part. box: x1, y1, x2, y2 in pixels. angle: clockwise in the image, degrees in [-180, 180); parts with rotational symmetry
    (nut 60°, washer and bearing any, gear one tooth) look the same at several angles. rotated_box: centre x, y, width, height before the rotation."""

    class_id: int
    box: tuple[int, int, int, int]
    angle: float
    rotated_box: tuple[float, float, float, float]
    area: int


@dataclass
class Scene:
    """image: uint8 RGB [size, size, 3]. masks: bool, one [size, size] per annotation (the whole part, not only what is visible)."""

    image: np.ndarray
    annotations: list[Annotation]
    masks: list[np.ndarray]


def _noise(rng: np.random.Generator, size: int, cells: tuple[int, int]) -> np.ndarray:
    """Smooth noise in [-1, 1] with `cells` cells per side."""
    grid = rng.uniform(-1, 1, (cells[1], cells[0])).astype(np.float32)
    return cv2.resize(grid, (size, size), interpolation=cv2.INTER_CUBIC)


def background(rng: np.random.Generator, size: int) -> np.ndarray:
    """float32 [size, size, 3] in 0..255: cloth, brushed sheet, wood, tiles, or cardboard-like speckle, each with its own colour."""
    base = np.array(rng.uniform(50, 205) + rng.uniform(-28, 28, 3), np.float32)
    kind = rng.integers(5)
    texture = 0.6 * _noise(rng, size, (4, 4)) + 0.4 * _noise(rng, size, (12, 12))
    if kind == 0:
        texture += 0.6 * _noise(rng, size, (max(2, size // 3), max(2, size // 3)))
    elif kind == 1:
        texture += 1.2 * _noise(rng, size, (3, size // 2))
    elif kind == 2:
        y = np.arange(size, dtype=np.float32)[:, None] / size
        texture += (
            np.sin((y * rng.uniform(10, 26) + 0.9 * _noise(rng, size, (3, 5))) * 2 * np.pi).astype(np.float32) * 0.8
        )
    elif kind == 3:
        pitch = int(rng.integers(20, 60))
        lines = np.zeros((size, size), np.float32)
        lines[int(rng.integers(pitch)) :: pitch] = -3
        lines[:, int(rng.integers(pitch)) :: pitch] = -3
        texture += cv2.GaussianBlur(lines, (0, 0), 0.8)
    else:
        texture += 0.9 * rng.standard_normal((size, size)).astype(np.float32)
    if rng.random() < 0.5:
        texture = texture.T.copy()
    image = base + texture[..., None] * np.float32(rng.uniform(6, 17)) * rng.uniform(0.8, 1.2, 3).astype(np.float32)
    for _ in range(int(rng.integers(0, 5))):  # scratches and chips: what is not a part
        start, reach = rng.uniform(0, size, 2), rng.uniform(-0.35, 0.35, 2) * size
        colour = [float(v) for v in np.clip(base + rng.uniform(-60, 60), 0, 255)]
        end = [int(v) for v in start + reach]
        cv2.line(image, [int(v) for v in start], end, colour, int(rng.integers(1, 3)), cv2.LINE_AA)
    for _ in range(int(rng.integers(0, 3))):
        centre = [int(v) for v in rng.uniform(0, size, 2)]
        axes = [int(v) for v in rng.uniform(2, size / 16, 2)]
        colour = [float(v) for v in np.clip(base + rng.uniform(-45, 45), 0, 255)]
        cv2.ellipse(image, centre, axes, float(rng.uniform(0, 180)), 0, 360, colour, -1, cv2.LINE_AA)
    return image


def place(part: Part, centre: np.ndarray, radius: float, angle: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Coverage in 0..1 and relief in pixels, [size, size], of the part rotated by `angle` degrees (clockwise in the image)."""
    factor = 2  # supersampling
    scale = radius * factor * 2 / CANVAS
    cos, sin = np.cos(np.radians(angle)) * scale, np.sin(np.radians(angle)) * scale
    middle = (CANVAS - 1) / 2
    target = centre * factor - 0.5
    matrix = np.array([[cos, -sin, target[0] - (cos - sin) * middle], [sin, cos, target[1] - (sin + cos) * middle]])
    side = size * factor
    coverage = cv2.warpAffine(part.mask, matrix, (side, side), flags=cv2.INTER_LINEAR)
    relief = cv2.warpAffine(part.relief * part.mask, matrix, (side, side), flags=cv2.INTER_LINEAR)
    coverage = cv2.resize(coverage, (size, size), interpolation=cv2.INTER_AREA)
    return coverage, cv2.resize(relief, (size, size), interpolation=cv2.INTER_AREA) * radius


def shade(rng: np.random.Generator, relief: np.ndarray, light: np.ndarray) -> np.ndarray:
    """float32 RGB [h, w, 3] of a relief lit from `light` (unit vector), in a random material."""
    colour, gloss = MATERIALS[list(MATERIALS)[int(rng.integers(len(MATERIALS)))]]
    slope_x, slope_y = (
        cv2.Sobel(relief, cv2.CV_32F, 1, 0, scale=0.125),
        cv2.Sobel(relief, cv2.CV_32F, 0, 1, scale=0.125),
    )
    length = np.sqrt(slope_x**2 + slope_y**2 + 1)
    facing = (light[2] - slope_x * light[0] - slope_y * light[1]) / length
    half = light + np.array([0, 0, 1.0])
    half /= np.linalg.norm(half)
    mirror = np.clip((half[2] - slope_x * half[0] - slope_y * half[1]) / length, 0, 1)
    diffuse = 0.35 + 0.75 * np.clip(facing, 0, 1)
    brushed = 1 + 0.05 * rng.standard_normal(relief.shape).astype(np.float32)
    tint = np.array(colour, np.float32) * rng.uniform(0.85, 1.12, 3).astype(np.float32)
    rendered = tint * (diffuse * brushed)[..., None] + 255 * gloss * (mirror**24)[..., None] * 0.6
    return rendered.astype(np.float32)


def _covered(box: tuple[int, int, int, int], others: list[tuple[int, int, int, int]]) -> bool:
    """Whether the box and one of the others cover too much of each other."""
    for other in others:
        width = min(box[2], other[2]) - max(box[0], other[0])
        height = min(box[3], other[3]) - max(box[1], other[1])
        if width <= 0 or height <= 0:
            continue
        smaller = min((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
        if width * height > MAX_COVERED * smaller:
            return True
    return False


def bounds(mask: np.ndarray) -> tuple[int, int, int, int]:
    """x1, y1, x2, y2 of the true pixels; x2, y2 exclusive."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def render_scene(seed: int, index: int, size: int = 256) -> Scene:
    """Scene number `index` of the stream `seed`."""
    rng = np.random.default_rng([seed, index])
    image = background(rng, size)
    azimuth, elevation = rng.uniform(0, 2 * np.pi), rng.uniform(0.6, 1.2)
    light = np.array([np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)])
    annotations: list[Annotation] = []
    masks: list[np.ndarray] = []
    wanted = int(rng.integers(2, 8))
    for _ in range(wanted * 4):  # places that overlap too much are drawn again, a bounded number of times
        if len(annotations) == wanted:
            break
        class_id = int(rng.integers(len(BUILDERS)))
        part = BUILDERS[class_id](rng)
        low, high = (r * size / 256 for r in SIZE_RANGE)
        radius = float(np.exp(rng.uniform(np.log(low), np.log(high))))
        if class_id in (1, 5):
            radius = max(radius, low * 1.4)  # slender parts
        angle = float(rng.uniform(-180, 180))
        centre = rng.uniform(radius + 2, size - radius - 2, 2)
        coverage, relief = place(part, centre, radius, angle, size)
        mask = coverage >= 0.5
        box = bounds(mask)
        if _covered(box, [a.box for a in annotations]):
            continue
        image = _draw(rng, image, coverage, relief, box, light, radius)
        extent = part.outline.max(axis=0) - part.outline.min(axis=0)
        rotated = (float(centre[0]), float(centre[1]), float(extent[0] * radius), float(extent[1] * radius))
        annotations.append(Annotation(class_id, box, angle, rotated, int(mask.sum())))
        masks.append(mask)
    return Scene(_camera(rng, image), annotations, masks)


def _draw(
    rng: np.random.Generator,
    image: np.ndarray,
    coverage: np.ndarray,
    relief: np.ndarray,
    box: tuple[int, int, int, int],
    light: np.ndarray,
    radius: float,
) -> np.ndarray:
    """The image with the part's shadow and the part on it."""
    size = image.shape[0]
    lift = radius * rng.uniform(0.1, 0.3)
    shift = np.array([[1, 0, -light[0] / light[2] * lift], [0, 1, -light[1] / light[2] * lift]])
    shadow = cv2.GaussianBlur(cv2.warpAffine(coverage, shift, (size, size)), (0, 0), float(rng.uniform(1.0, 3.0)))
    image = image * (1 - np.float32(rng.uniform(0.25, 0.6)) * shadow)[..., None]
    x1, y1, x2, y2 = max(box[0] - 2, 0), max(box[1] - 2, 0), box[2] + 2, box[3] + 2
    alpha = coverage[y1:y2, x1:x2, None]
    patch = shade(rng, relief[y1:y2, x1:x2], light)
    image[y1:y2, x1:x2] = image[y1:y2, x1:x2] * (1 - alpha) + patch * alpha
    return image


def _camera(rng: np.random.Generator, image: np.ndarray) -> np.ndarray:
    """Uneven light, blur, colour cast, sensor noise; uint8."""
    size = image.shape[0]
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    direction, slope = rng.uniform(0, 2 * np.pi), rng.uniform(0, 0.35)
    gradient = 1 + slope * (np.cos(direction) * axis[None, :] + np.sin(direction) * axis[:, None])
    image = (
        image
        * (gradient * np.float32(rng.uniform(0.75, 1.2)))[..., None]
        * rng.uniform(0.93, 1.07, 3).astype(np.float32)
    )
    if rng.random() < 0.5:
        image = cv2.GaussianBlur(image, (0, 0), float(rng.uniform(0.3, 0.9)))
    image = image + rng.standard_normal(image.shape).astype(np.float32) * np.float32(rng.uniform(1, 7))
    return np.clip(np.round(image), 0, 255).astype(np.uint8)


def generate(seed: int, count: int, size: int = 256, start: int = 0) -> tuple[np.ndarray, list[list[Annotation]]]:
    """Images uint8 [count, size, size, 3] (RGB) and their annotations. Scene i depends on (seed, start + i) only."""
    images = np.empty((count, size, size, 3), np.uint8)
    annotations = []
    for i in range(count):
        scene = render_scene(seed, start + i, size)
        images[i] = scene.image
        annotations.append(scene.annotations)
    return images, annotations
