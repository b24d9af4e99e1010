"""Tries the usual mistakes of a preprocessing record on the float network (colour order, scale, mean and std, letterbox) and says which other setting
detects clearly better.

Without truth a setting is judged by its detections on each image and on its mirror image: a network that sees what it was trained on finds the same
objects in both, with high scores; one that does not finds little, or noise that does not agree. With truth, detections are matched to that instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from npuforge.board_runtime.heads import Head
from npuforge.compile.ir.errors import InputError
from npuforge.compile.ir.image import fit, to_tensor
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.samples import Inputs, Sample
from npuforge.compile.reference import FloatReference
from npuforge.scripts.datasets import Dataset

COUNTED_SCORE = 0.2  # detections below it say little; a head's own threshold counts where it is lower
MATCH_IOU = 0.5
LEAST_AGREEMENT = (
    0.5  # share of the score that the mirror image confirms; below it detections are noise and count nothing
)
CLEAR_GAIN = 1.1  # better by this factor in at least 99 of 100 draws of the images
# Swapped colours cost a robust network a few per cent, and no right record is better with them: less will do. (Another letterbox may well be a little better.)
COLOUR_GAIN = 1.02
DRAWS = 1000
ROUNDS = 3
MOST_IMAGES = 64
SCALES = {
    "pixels as they are (0..255)": (0.0, 1.0),
    "pixels / 255": (0.0, 255.0),
    "(pixels - 127.5) / 127.5": (127.5, 127.5),
}
IMAGENET = "ImageNet's mean and std"
IMAGENET_MEAN, IMAGENET_STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]  # RGB
RESIZES = ("stretch", "letterbox_topleft", "letterbox_center")
Progress = Callable[[str, int, int], None]


@dataclass
class Setting:
    """One record and what it found. `evidence`: per image, matched score times the share of the score that is matched."""

    label: str
    record: Preprocess
    evidence: np.ndarray = field(default_factory=lambda: np.zeros(0))
    agreement: float = 0.0
    detections: float = 0.0  # per image
    gain: float = 1.0  # over the setting it was compared with, in 99 of 100 draws at least

    @property
    def changes(self) -> str:
        """The YAML lines that make this setting."""
        r = self.record
        return f"color: {r.color}, mean: {_numbers(r.mean)}, std: {_numbers(r.std)}, resize: {r.resize}"


@dataclass
class Check:
    """The declared setting, all that were tried, and the best where it is clearly better than the declared one."""

    declared: Setting
    tried: list[Setting]
    better: Setting | None

    def notice(self) -> str:
        """One line; empty where the declared setting stands."""
        if self.better is None:
            return ""
        return (
            f"the float network detects clearly better with {self.better.label} (at least {self.better.gain:.2f} times the evidence); "
            f"probably the preprocessing record is wrong: try {self.better.changes}"
        )


def _numbers(values: list[float]) -> str:
    return "[" + ", ".join(f"{v:g}" for v in values) + "]"


def variations(record: Preprocess) -> Iterator[tuple[str, Preprocess]]:
    """Every record that differs from `record` in one usual mistake."""
    scales = {label: ([mean] * record.channels, [std] * record.channels) for label, (mean, std) in SCALES.items()}
    if record.channels == 3:
        other = "BGR" if record.color == "RGB" else "RGB"
        yield f"color {other}", replace(record, color=other, mean=record.mean[::-1], std=record.std[::-1])
        turned = record.color == "BGR"
        scales[IMAGENET] = (IMAGENET_MEAN[::-1], IMAGENET_STD[::-1]) if turned else (IMAGENET_MEAN, IMAGENET_STD)
    for label, (mean, std) in scales.items() if record.dtype == "float32" else ():  # integers are the pixels
        if not (np.allclose(mean, record.mean, atol=1.0) and np.allclose(std, record.std, rtol=0.02)):
            yield label, replace(record, mean=list(mean), std=list(std))
    for resize in RESIZES:
        if resize != record.resize:
            yield f"resize {resize}", replace(record, resize=resize)


def overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU of rows [x1, y1, x2, y2, …]: [len(a), len(b)]."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:4], b[None, :, 2:4])
    both = np.prod(np.clip(high - low, 0, None), axis=2)
    areas = [np.prod(np.clip(r[:, 2:4] - r[:, :2], 0, None), axis=1) for r in (a, b)]
    return both / np.maximum(areas[0][:, None] + areas[1][None] - both, 1e-9)


def matched_score(found: np.ndarray, partners: np.ndarray) -> float:
    """The score of detections that have a partner of their class (IoU at least 0.5, each used once, best first); the lower score of the two."""
    if not len(found) or not len(partners):
        return 0.0
    table = overlaps(found, partners) * (found[:, None, 5] == partners[None, :, 5])
    total = 0.0
    for row in np.argsort(-found[:, 4], kind="stable"):
        best = int(table[row].argmax())
        if table[row, best] >= MATCH_IOU:
            total += min(float(found[row, 4]), float(partners[best, 4]))
            table[:, best] = 0.0
    return total


def clear_gain(evidence: np.ndarray, base: np.ndarray) -> float:
    """The factor by which `evidence` exceeds `base` in at least 99 of 100 draws of the images with replacement (seeded)."""
    draws = np.random.default_rng(0).integers(0, len(base), (DRAWS, len(base)))
    floor = 1e-3  # so that nothing against nothing is no gain
    ratios = (evidence[draws].mean(axis=1) + floor) / (base[draws].mean(axis=1) + floor)
    return float(np.quantile(ratios, 0.01))


def needed_gain(base: Preprocess, other: Preprocess) -> float:
    """What `other` must gain over `base` to be called clearly better."""
    swapped = replace(base, color=other.color, mean=base.mean[::-1], std=base.std[::-1])
    return COLOUR_GAIN if other.color != base.color and other == swapped else CLEAR_GAIN


class Judge:
    """Runs settings on the images; remembers what it ran."""

    def __init__(self, model: Path, images: Sequence[Sample], truth: Dataset | None) -> None:
        self._network = FloatReference(model)
        self._images = [sample.picture for sample in images]
        self._inputs = [sample.inputs for sample in images]
        self._truth = (
            None
            if truth is None
            else [np.column_stack([t.boxes, np.ones(len(t.boxes)), t.labels]) for t in truth.images]
        )
        self._known: dict[str, Setting] = {}

    def __call__(self, label: str, record: Preprocess) -> Setting:
        setting = Setting(label, record)
        key = setting.changes
        if key not in self._known:
            self._known[key] = self._run(setting)
        return replace(self._known[key], label=label)

    def _run(self, setting: Setting) -> Setting:
        head, evidence, shares, count = Head(setting.record), [], [], 0
        lowest = min(COUNTED_SCORE, setting.record.head.score_threshold)

        def detect(image: np.ndarray, inputs: Inputs) -> np.ndarray:
            pixels, geometry = fit(image, setting.record)
            outputs = self._network.run(
                {**inputs, setting.record.input or self._network.input_names[0]: to_tensor(pixels, setting.record)}
            )
            rows = head.detect(outputs, geometry)
            return rows[rows[:, 4] > lowest]

        for number, (image, inputs) in enumerate(zip(self._images, self._inputs, strict=True)):
            found = detect(image, inputs)
            if self._truth is None:
                partners = detect(np.ascontiguousarray(image[:, ::-1]), inputs)
                partners[:, [0, 2]] = image.shape[1] - partners[:, [2, 0]]
                total = (float(found[:, 4].sum()) + float(partners[:, 4].sum())) / 2
            else:
                partners = self._truth[number]
                total = float(found[:, 4].sum())
            matched = matched_score(found, partners)
            evidence.append(matched * matched / total if total else 0.0)
            shares.append((matched, total))
            count += len(found)
        sums = np.array(shares).sum(axis=0)
        setting.agreement = float(sums[0] / sums[1]) if sums[1] else 0.0
        noise = self._truth is None and setting.agreement < LEAST_AGREEMENT
        setting.evidence = np.zeros(len(evidence)) if noise else np.array(evidence)
        setting.detections = count / len(self._images)
        return setting


def check_preprocess(
    model: Path,
    record: Preprocess,
    images: Sequence[Sample],
    truth: Dataset | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Check:
    """On the first 64 images, up to three rounds: every single change of the best setting so far; the one with the clearest gain becomes the next one's base."""
    if record.head.kind == "none":
        raise InputError("--check-preprocess needs a detection head in the preprocessing record (head.kind)")
    judge = Judge(model, images[:MOST_IMAGES], None if truth is None else truth.take(0, MOST_IMAGES))
    declared = best = judge("the declared setting", record)
    tried: dict[str, Setting] = {}
    for number in range(1, ROUNDS + 1):
        candidates = []
        changed = "" if best is declared else f"{best.label} and "
        for label, other in variations(best.record):
            setting = judge(changed + label, other)
            setting.gain = clear_gain(setting.evidence, best.evidence)
            tried.setdefault(setting.changes, setting)
            if setting.gain > needed_gain(best.record, other):
                candidates.append(setting)
        progress("check preprocessing", number, ROUNDS)
        if not candidates:
            break
        best = max(candidates, key=lambda s: s.gain)
    if best is declared:
        return Check(declared, list(tried.values()), None)
    best.gain = clear_gain(best.evidence, declared.evidence)
    clear = best.gain > needed_gain(declared.record, best.record)
    return Check(declared, list(tried.values()), best if clear else None)
