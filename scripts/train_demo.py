"""Trains the bundled network on synthetic scenes and writes it as ONNX. Needs the `train` extra (PyTorch), CPU only.

    python -m npuforge.scripts.train_demo --out scripts/demo_data/demo.onnx

Training scenes are the stream of seed 1, the unseen ones of seed 2. The loss is complete-IoU for boxes, binary cross-entropy for objectness and
classes. What is written is the exponential moving average of the weights.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from npuforge.scripts.demo_model import ANCHORS_PER_SCALE, HEADS, IMAGE_SIZE, LAYERS, STRIDES, build_onnx
from npuforge.scripts.layer_modules import (
    Network,
    change_colours,
    fit,
    to_input,
    training_options,
    weights_of,
    write_whole,
)
from npuforge.scripts.scenes import CLASS_NAMES, Annotation, generate

CLASSES = len(CLASS_NAMES)
MAX_BOXES = 8


def make_network() -> Network:
    """Untrained: few cells hold a part."""
    bias = np.zeros((ANCHORS_PER_SCALE, 5 + CLASSES))
    bias[:, 4], bias[:, 5:] = -5.0, -1.5
    return Network(LAYERS, HEADS, "LeakyRelu", {name: bias.ravel() for name in HEADS})


def cluster_anchors(annotations: list[list[Annotation]], rng: np.random.Generator) -> np.ndarray:
    """[scale, anchor, 2]: k-means over box sizes with 1 − IoU as the distance, sorted by area, rounded to whole pixels."""
    sizes = np.array([[a.box[2] - a.box[0], a.box[3] - a.box[1]] for scene in annotations for a in scene], np.float64)
    centres = sizes[rng.choice(len(sizes), len(STRIDES) * ANCHORS_PER_SCALE, replace=False)]
    for _ in range(50):
        nearest = shape_iou(sizes, centres).argmax(1)
        centres = np.array(
            [
                np.median(sizes[nearest == k], axis=0) if (nearest == k).any() else centres[k]
                for k in range(len(centres))
            ]
        )
    centres = np.round(centres[np.argsort(centres.prod(1))])
    return centres.reshape(len(STRIDES), ANCHORS_PER_SCALE, 2)


def shape_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU of boxes that share a centre: [len(a), len(b)]."""
    shared = np.minimum(a[:, None, 0], b[None, :, 0]) * np.minimum(a[:, None, 1], b[None, :, 1])
    return shared / (a.prod(1)[:, None] + b.prod(1)[None, :] - shared)


def augment(images: np.ndarray, boxes: np.ndarray, rng: np.random.Generator) -> tuple[torch.Tensor, np.ndarray]:
    """Quarter turns, mirroring, brightness and contrast. boxes [B, MAX_BOXES, 4] are turned exactly with the pixels."""
    turned, moved = np.empty_like(images), boxes.copy()
    for i in range(len(images)):
        image, box = images[i], moved[i]
        if rng.random() < 0.5:
            image, box = (
                image[:, ::-1],
                np.stack([IMAGE_SIZE - box[:, 2], box[:, 1], IMAGE_SIZE - box[:, 0], box[:, 3]], 1),
            )
        for _ in range(int(rng.integers(4))):  # anticlockwise: (x, y) becomes (y, size − x)
            image, box = (
                np.rot90(image),
                np.stack([box[:, 1], IMAGE_SIZE - box[:, 2], box[:, 3], IMAGE_SIZE - box[:, 0]], 1),
            )
        turned[i], moved[i] = image, box
    return change_colours(to_input(turned), rng), moved


def assign(boxes: np.ndarray, counts: np.ndarray, anchors: np.ndarray) -> list[np.ndarray]:
    """Per scale rows (image, anchor, y, x, index of the box): the cell of the box's centre, every anchor with IoU over 0.45 and the best one."""
    rows: list[list[tuple[int, int, int, int, int]]] = [[] for _ in STRIDES]
    flat = anchors.reshape(-1, 2)
    for i, count in enumerate(counts):
        size = boxes[i, :count, 2:] - boxes[i, :count, :2]
        centre = (boxes[i, :count, 2:] + boxes[i, :count, :2]) / 2
        overlap = shape_iou(size, flat)
        chosen = overlap > 0.45
        chosen[np.arange(count), overlap.argmax(1)] = True
        for box, anchor in zip(*np.nonzero(chosen), strict=True):
            scale, a = divmod(int(anchor), ANCHORS_PER_SCALE)
            x, y = (int(v) for v in centre[box] // STRIDES[scale])
            rows[scale].append((i, a, y, x, int(box)))
    return [np.array(r, np.int64).reshape(-1, 5) for r in rows]


def decode(maps: list[torch.Tensor], anchors: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes [B, N, 4] and logits [B, N, 1 + classes] in the order scale, y, x, anchor (YoloDecode's)."""
    boxes, logits = [], []
    for scale, raw in enumerate(maps):
        batch, _, height, width = raw.shape
        t = raw.view(batch, ANCHORS_PER_SCALE, 5 + CLASSES, height, width).permute(0, 3, 4, 1, 2)
        cell = torch.stack(torch.meshgrid(torch.arange(width), torch.arange(height), indexing="xy"), -1)[
            None, :, :, None
        ]
        centre = (t[..., :2].sigmoid() + cell) * STRIDES[scale]
        half = t[..., 2:4].clamp(max=6).exp() * torch.from_numpy(anchors[scale].astype(np.float32)) / 2
        boxes.append(torch.cat([centre - half, centre + half], -1).reshape(batch, -1, 4))
        logits.append(t[..., 4:].reshape(batch, -1, 1 + CLASSES))
    return torch.cat(boxes, 1), torch.cat(logits, 1)


def complete_iou(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """IoU and complete IoU (with centre distance and aspect terms) of boxes pairwise along the last axis."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    size_a, size_b = a[..., 2:] - a[..., :2], b[..., 2:] - b[..., :2]
    iou = shared / (size_a.prod(-1) + size_b.prod(-1) - shared + 1e-7)
    hull = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    apart = ((a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) ** 2).sum(-1) / 4
    aspect = (
        torch.atan(size_a[..., 0] / (size_a[..., 1] + 1e-7)) - torch.atan(size_b[..., 0] / (size_b[..., 1] + 1e-7))
    ) ** 2
    aspect = aspect * (4 / np.pi**2)
    weight = (aspect / (1 - iou + aspect + 1e-7)).detach()
    return iou, iou - apart / ((hull**2).sum(-1) + 1e-7) - weight * aspect


def yolo_loss(
    maps: list[torch.Tensor], boxes: np.ndarray, labels: np.ndarray, counts: np.ndarray, anchors: np.ndarray
) -> torch.Tensor:
    """Sum over positives / their number: 3·(1 − CIoU) + BCE of objectness (all cells) + BCE of classes."""
    predicted, logits = decode(maps, anchors)
    index, image, target = [], [], []
    offset = 0
    for rows, raw in zip(assign(boxes, counts, anchors), maps, strict=True):
        height, width = raw.shape[2:]
        index.append(offset + (rows[:, 2] * width + rows[:, 3]) * ANCHORS_PER_SCALE + rows[:, 1])
        image.append(rows[:, 0])
        target.append(rows[:, 4])
        offset += height * width * ANCHORS_PER_SCALE
    i, n, t = (np.concatenate(v) for v in (image, index, target))
    truth = torch.from_numpy(boxes.astype(np.float32))
    positive = predicted[i, n]
    _, complete = complete_iou(positive, truth[i, t])
    objectness = torch.zeros(logits.shape[:2])
    objectness[i, n] = 1.0
    with torch.no_grad():
        present = torch.arange(MAX_BOXES)[None, :] < torch.from_numpy(counts)[:, None]
        overlap, _ = complete_iou(predicted[:, :, None], truth[:, None])
        ignored = ((overlap * present[:, None]).amax(2) > 0.6) & (objectness == 0)
    every = F.binary_cross_entropy_with_logits(logits[..., 0], objectness, reduction="none")
    classes = F.one_hot(torch.from_numpy(labels[i, t]), CLASSES).to(torch.float32)
    named = F.binary_cross_entropy_with_logits(logits[i, n, 1:], classes, reduction="sum")
    return (3 * (1 - complete).sum() + every[~ignored].sum() + named) / max(1, len(i))


def pack(annotations: list[list[Annotation]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """boxes [n, MAX_BOXES, 4], labels [n, MAX_BOXES], counts [n]; rows past the count are dummies."""
    boxes = np.tile(np.array([0.0, 0.0, 1.0, 1.0]), (len(annotations), MAX_BOXES, 1))
    labels = np.zeros((len(annotations), MAX_BOXES), np.int64)
    for i, scene in enumerate(annotations):
        for k, part in enumerate(scene):
            boxes[i, k], labels[i, k] = part.box, part.class_id
    return boxes, labels, np.array([len(scene) for scene in annotations])


def average_precision(
    network: nn.Module, images: np.ndarray, annotations: list[list[Annotation]], anchors: np.ndarray
) -> float:
    """mAP at IoU 0.5 (area under the precision envelope); a quick figure while training, `evaluate_demo` has the standard one."""
    found: list[list[tuple[float, bool]]] = [[] for _ in range(CLASSES)]
    total = np.zeros(CLASSES)
    network.eval()
    for begin in range(0, len(images), 32):
        x = to_input(images[begin : begin + 32])
        with torch.no_grad():
            boxes, logits = decode(network(x), anchors)
        best, label = logits[..., 1:].sigmoid().max(-1)
        scores = best * logits[..., 0].sigmoid()
        for i in range(len(x)):
            truth = annotations[begin + i]
            for c in range(CLASSES):
                wanted = torch.tensor([a.box for a in truth if a.class_id == c], dtype=torch.float32).reshape(-1, 4)
                total[c] += len(wanted)
                keep = ((label[i] == c) & (scores[i] > 0.01)).nonzero()[:, 0]
                order = keep[scores[i, keep].argsort(descending=True)]
                taken = np.zeros(len(wanted), bool)
                while len(order):
                    box, score = boxes[i, order[0]], float(scores[i, order[0]])
                    overlap = complete_iou(box[None], wanted)[0].numpy() * ~taken if len(wanted) else np.zeros(1)
                    hit = bool(overlap.max() > 0.5)
                    if hit:
                        taken[overlap.argmax()] = True
                    found[c].append((score, hit))
                    order = order[1:][complete_iou(box[None], boxes[i, order[1:]])[0] < 0.5]
    results = []
    for c in range(CLASSES):
        hits = np.array([h for _, h in sorted(found[c], key=lambda f: -f[0])], float)
        recall, precision = hits.cumsum() / max(1, total[c]), hits.cumsum() / np.arange(1, len(hits) + 1)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        results.append(float((np.diff(np.concatenate([[0.0], recall])) * envelope).sum()))
    return float(np.mean(results))


def main() -> None:
    """Command line."""
    options = training_options(
        "Train the bundled network on synthetic scenes (CPU, under 30 minutes on two cores).",
        "scripts/demo_data/demo.onnx",
        epochs=24,
    )

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    begun = time.monotonic()
    images, annotations = generate(options.seed, options.scenes, IMAGE_SIZE)
    unseen, unseen_truth = generate(2, 200, IMAGE_SIZE)
    boxes, labels, counts = pack(annotations)
    anchors = cluster_anchors(annotations, rng)
    print(
        f"{len(images)} scenes, {counts.sum()} parts, anchors {anchors.tolist()}, {time.monotonic() - begun:.0f} s",
        flush=True,
    )

    network = make_network().to(memory_format=torch.channels_last)
    print(f"{sum(p.numel() for p in network.parameters())} parameters", flush=True)

    def loss_of(chosen: np.ndarray) -> torch.Tensor:
        x, turned = augment(images[chosen], boxes[chosen], rng)
        return yolo_loss(network(x), turned, labels[chosen], counts[chosen], anchors)

    def after_epoch(average: nn.Module, epoch: int) -> str:
        if epoch % 3 and epoch != options.epochs:
            return ""
        write_whole(build_onnx(weights_of(average), anchors.tolist()), options.out)
        return f"mAP50 on unseen scenes {average_precision(average, unseen, unseen_truth, anchors):.4f}"

    fit(network, len(images), loss_of, after_epoch, rng, epochs=options.epochs, batch=options.batch, rate=options.rate)


if __name__ == "__main__":
    main()
