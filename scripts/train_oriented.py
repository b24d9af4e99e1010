"""Trains the bundled network for oriented boxes on synthetic scenes and writes it as ONNX. Needs the `train` extra (PyTorch), CPU only.

    python -m npuforge.scripts.train_oriented --out scripts/demo_data/oriented.onnx

Training scenes are the stream of seed 1, the unseen ones of seed 2. The boxes' loss is ProbIoU (Llerena and others, "Gaussian Bounding Boxes and
Probabilistic Intersection-over-Union for Object Detection", 2021), for which the double angle is all one needs; the angle's code has an L1 loss
besides. A class is trained towards the overlap its box reaches, so that the better of two boxes has the higher score.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from npuforge.scripts.layer_modules import (
    Network,
    change_colours,
    fit,
    to_input,
    training_options,
    weights_of,
    write_whole,
)
from npuforge.scripts.oriented_model import HEADS, IMAGE_SIZE, LAYERS, PARTS, STRIDES, build_onnx, cells
from npuforge.scripts.scenes import CLASS_NAMES, Annotation, generate
from npuforge.scripts.scenes.oriented import PERIODS, oriented_box

MAX_BOXES = 8
UNSEEN = 64  # scenes of the figures printed while training
FINE_BELOW, COARSE_FROM = 64.0, 48.0  # pixels of the longer side; between them both strides learn a part
REACH = 1.0  # a part is learnt by cells whose centre is nearer than so many strides, in x and in y


def make_network() -> Network:
    """Untrained: sizes near 3 strides, low scores, angle 0."""
    first: dict[str, float | np.ndarray] = {
        "boxes": np.array([0.0, 0.0, 1.0, 0.8]),
        "classes": -4.6,
        "codes": np.array([0.0, 0.7]),
    }
    return Network(LAYERS, HEADS, "Silu", {f"{p}{s}": first[p] for s in STRIDES for p in PARTS})


def pack(annotations: list[list[Annotation]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """boxes float64 [n, MAX_BOXES, 5] (centre, size, angle in degrees), labels [n, MAX_BOXES], counts [n]; rows past the count are dummies."""
    boxes = np.tile(np.array([0.0, 0.0, 1.0, 1.0, 0.0]), (len(annotations), MAX_BOXES, 1))
    labels = np.zeros((len(annotations), MAX_BOXES), np.int64)
    for i, scene in enumerate(annotations):
        for k, part in enumerate(scene):
            boxes[i, k], labels[i, k] = oriented_box(part), part.class_id
    return boxes, labels, np.array([len(scene) for scene in annotations])


def least_angles(labels: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """`scenes.oriented.least_angle` for arrays."""
    period = np.array([PERIODS[name] for name in CLASS_NAMES])[labels]
    return np.where(period > 0, np.mod(degrees + period / 2, np.maximum(period, 1.0)) - period / 2, 0.0)


def turn(
    images: np.ndarray, boxes: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Quarter turns and mirroring, exact for pixels and boxes."""
    turned, moved = np.empty_like(images), boxes.copy()
    for i in range(len(images)):
        image, box = images[i], moved[i]
        if rng.random() < 0.5:
            image = image[:, ::-1]
            box[:, 0], box[:, 4] = IMAGE_SIZE - box[:, 0], -box[:, 4]
        quarters = int(rng.integers(4))
        image = np.rot90(image, quarters)
        for _ in range(quarters):  # anticlockwise: (x, y) becomes (y, size - x)
            box[:, 0], box[:, 1] = box[:, 1].copy(), IMAGE_SIZE - box[:, 0]
        box[:, 4] = least_angles(labels[i], box[:, 4] - 90.0 * quarters)
        turned[i] = image
    return turned, moved


def assign(boxes: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(image, cell, box) of the cells that learn a part; of two parts that want a cell, the nearer one has it."""
    centres, steps = cells()
    index, cell, target = [], [], []
    for i, count in enumerate(counts):
        truth = boxes[i, :count]
        away = np.abs(truth[:, :2, None] - centres[None]) / steps  # [count, 2, cells]
        longer = truth[:, 2:4].max(1)[:, None]
        stride_fits = np.where(steps == STRIDES[0], longer < FINE_BELOW, longer >= COARSE_FROM)
        distance = np.where((away < REACH).all(1) & stride_fits, np.hypot(away[:, 0], away[:, 1]), np.inf)
        chosen = np.flatnonzero(np.isfinite(distance.min(0))) if count else np.zeros(0, np.int64)
        index.append(np.full(len(chosen), i))
        cell.append(chosen)
        target.append(distance[:, chosen].argmin(0) if count else chosen)
    return np.concatenate(index), np.concatenate(cell), np.concatenate(target)


def rows(maps: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The heads' maps as [batch, cells, channels], by part."""
    flat = {name: value.flatten(2).transpose(1, 2) for name, value in zip(HEADS, maps, strict=True)}
    return {part: torch.cat([flat[f"{part}{stride}"] for stride in STRIDES], 1) for part in PARTS}


def hellinger(
    centre: torch.Tensor, size: torch.Tensor, code: torch.Tensor, truth: torch.Tensor, truth_code: torch.Tensor
) -> torch.Tensor:
    """1 - ProbIoU of boxes pairwise: the Hellinger distance of the Gaussians that have the boxes' centres and variances.

    centre, size [n, 2]; code, truth_code [n, 2] = (sin 2a, cos 2a) of length 1; truth [n, 4] = centre and size.
    """

    def covariance(extent: torch.Tensor, turned: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        a, b = extent[:, 0] ** 2 / 12, extent[:, 1] ** 2 / 12
        middle, half = (a + b) / 2, (a - b) / 2
        return middle + half * turned[:, 1], middle - half * turned[:, 1], half * turned[:, 0]

    xx, yy, xy = (u + v for u, v in zip(covariance(size, code), covariance(truth[:, 2:], truth_code), strict=True))
    dx, dy = (centre - truth[:, :2]).unbind(1)
    determinant = xx * yy - xy**2
    apart = 0.25 * (yy * dx**2 - 2 * xy * dx * dy + xx * dy**2) / determinant
    spread = 0.5 * torch.log(determinant / (4 * size.prod(1) * truth[:, 2:].prod(1) / 144))
    return torch.sqrt(1 - torch.exp(-(apart + spread).clamp(1e-4, 100)))


def oriented_loss(
    maps: list[torch.Tensor], boxes: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss per learning cell, 3·(1 - ProbIoU) + |code - its truth| + binary cross-entropy of the classes, and the mean of 1 - ProbIoU."""
    found = rows(maps)
    i, n, t = assign(boxes, counts)
    origin, steps = cells()
    centres = torch.from_numpy(origin.T[n])
    stride = torch.from_numpy(steps[n])[:, None]
    box, code = found["boxes"][i, n], found["codes"][i, n]
    truth = torch.from_numpy(boxes[i, t].astype(np.float32))
    twice = 2 * torch.deg2rad(truth[:, 4])
    truth_code = torch.stack([twice.sin(), twice.cos()], 1)
    size = box[:, 2:].clamp(-3, 3).exp() * stride
    distance = hellinger(centres + box[:, :2] * stride, size, F.normalize(code), truth[:, :4], truth_code)
    wanted = torch.zeros_like(found["classes"])
    wanted[i, n, labels[i, t]] = 1 - distance.detach()
    named = F.binary_cross_entropy_with_logits(found["classes"], wanted, reduction="sum")
    total = 3 * distance.sum() + (code - truth_code).abs().sum() + named
    return total / max(1, len(i)), distance.mean()


def main() -> None:
    """Command line."""
    options = training_options(
        "Train the bundled network for oriented boxes on synthetic scenes (CPU, under 30 minutes on two cores).",
        "scripts/demo_data/oriented.onnx",
        epochs=18,
    )

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    begun = time.monotonic()
    images, annotations = generate(options.seed, options.scenes, IMAGE_SIZE)
    unseen, unseen_truth = generate(2, UNSEEN, IMAGE_SIZE)
    boxes, labels, counts = pack(annotations)
    unseen_packed = pack(unseen_truth)
    print(f"{len(images)} scenes, {counts.sum()} parts, {time.monotonic() - begun:.0f} s", flush=True)
    network = make_network().to(memory_format=torch.channels_last)
    print(f"{sum(p.numel() for p in network.parameters())} parameters", flush=True)

    def loss_of(chosen: np.ndarray) -> torch.Tensor:
        turned, moved = turn(images[chosen], boxes[chosen], labels[chosen], rng)
        return oriented_loss(network(change_colours(to_input(turned), rng)), moved, labels[chosen], counts[chosen])[0]

    def after_epoch(average: nn.Module, epoch: int) -> str:
        write_whole(build_onnx(weights_of(average)), options.out)
        average.eval()
        with torch.no_grad():
            loss, distance = oriented_loss(average(to_input(unseen)), *unseen_packed)
        return f"unseen scenes: loss {float(loss):.3f} 1 - ProbIoU {float(distance):.3f}"

    fit(network, len(images), loss_of, after_epoch, rng, epochs=options.epochs, batch=options.batch, rate=options.rate)


if __name__ == "__main__":
    main()
