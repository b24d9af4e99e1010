"""Output channels by what they mean (box, objectness, classes …), and what quantisation left of each group: errors and distinct values.

One figure for a whole tensor hides a lost group: with boxes to 640 and scores to 1 under one scale, scores that are all 0 still give a cosine of
0.9996. Groups come from the head where it is known, else from jumps in the channels' ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuforge.compile.ir.preprocess import HeadSpec
from npuforge.scripts.report.data import ChannelGroup

JUMP = 16.0  # neighbouring channels whose ranges differ by more belong to different groups
MOST_GROUPS = 8
FEW = 16  # distinct values: fewer, where the float network has many, is a group that quantisation has flattened
ANGLE = "angle"  # radians; a box turned by pi is the same box
ANCHORED = ("darknet", "yolov2", "yolov5")

Groups = list[tuple[str, np.ndarray]]  # name and channel numbers


def channel_axis(shape: tuple[int, ...], kind: str = "none") -> int:
    """Where the channels of an output lie: axis 1 of maps (the last one of Yolo-FastestV2's), the shorter axis of rows, else the last."""
    if len(shape) == 4 and kind != "yolo_fastest_v2":
        return 1
    if len(shape) == 3 and kind in ("none", "yolo_rows"):
        return 1 if shape[1] < shape[2] else 2
    return len(shape) - 1


def head_groups(head: HeadSpec, output: str, channels: int, rank: int) -> Groups:
    """What the head says about an output's channels; empty where it says nothing."""
    options = head.options
    roles = {
        name: role
        for role, names in options.get("outputs", {}).items()
        for name in ([names] if isinstance(names, str) else names)
    }
    role = roles.get(output, "" if roles else "predictions")
    all_ = np.arange(channels)
    if head.kind in ANCHORED and role in ("maps", "predictions"):
        anchors = 1 if rank == 5 else len(options["anchors"][0])
        within = all_ % (channels // anchors)
        return [("box", all_[within < 4]), ("objectness", all_[within == 4]), ("classes", all_[within > 4])]
    if head.kind == "fastestdet":
        return [("objectness", all_[:1]), ("box", all_[1:5]), ("classes", all_[5:])]
    if head.kind in ("yolox", "yolo_rows") and role == "predictions":
        objectness = 1 if options.get("objectness", True) else 0
        angle = 1 if options.get("angle", False) else 0
        groups = [("box", all_[:4]), ("objectness", all_[4 : 4 + objectness])]
        groups += [("classes", all_[4 + objectness : channels - angle]), (ANGLE, all_[channels - angle :])]
        return [g for g in groups if len(g[1])]
    if head.kind == "nanodet_plus":
        classes = channels - 4 * options.get("bins", 8)
        return [("classes", all_[:classes]), ("distances", all_[classes:])]
    if head.kind in ("yolov8", "yolov8_obb") and role in ("maps", "predictions"):
        distances = 4 * options.get("bins", 16)
        return [("distances", all_[:distances]), ("classes", all_[distances:])]
    return [(role, all_)] if roles and role else []


def range_groups(ranges: np.ndarray) -> Groups:
    """Runs of channels whose ranges (largest magnitude, [channels]) are alike; one group where there would be too many."""
    size = np.maximum(ranges, ranges.max(initial=0.0) * 1e-9 + 1e-30)
    cuts = np.flatnonzero(np.abs(np.log(size[1:] / size[:-1])) > np.log(JUMP)) + 1
    if len(cuts) >= MOST_GROUPS:
        cuts = cuts[:0]
    parts = np.split(np.arange(len(ranges)), cuts)
    return [(f"channels {p[0]}–{p[-1]}" if len(p) > 1 else f"channel {p[0]}", p) for p in parts if len(p)]


def _turned(difference: np.ndarray) -> np.ndarray:
    """How far one box must be turned to lie as the other, in [-pi/2, pi/2); infinite and not-a-number stay not-a-number."""
    return np.mod(difference + np.pi / 2, np.pi) - np.pi / 2


@dataclass
class _Meter:
    channels: np.ndarray
    low: float = np.inf
    high: float = -np.inf
    largest: float = 0.0
    total: float = 0.0
    count: int = 0
    distinct: tuple[int, int] = (0, 0)  # float, device; of the image with the most values of the float network


@dataclass
class GroupMeter:
    """Accumulates the figures of all outputs over images."""

    head: HeadSpec
    _meters: dict[str, tuple[int, list[tuple[str, _Meter]]]] = field(default_factory=dict)

    def add(self, output: str, reference: np.ndarray, found: np.ndarray) -> None:
        """One output of one image, float network and device; outputs of different shapes (numbers of detections) are left out."""
        if reference.shape != found.shape or reference.size == 0 or reference.ndim == 0:
            return
        if output not in self._meters:
            self._meters[output] = self._groups(output, reference)
        axis, meters = self._meters[output]
        a = np.moveaxis(reference.astype(np.float64), axis, 0)
        b = np.moveaxis(found.astype(np.float64), axis, 0)
        for name, meter in meters:
            x, y = a[meter.channels], b[meter.channels]
            error = np.abs(_turned(x - y) if name == ANGLE else x - y)
            meter.low, meter.high = min(meter.low, float(x.min())), max(meter.high, float(x.max()))
            meter.largest = max(meter.largest, float(error.max()))
            meter.total += float(error.sum())
            meter.count += error.size
            meter.distinct = max(meter.distinct, (len(np.unique(x)), len(np.unique(y))))

    def _groups(self, output: str, reference: np.ndarray) -> tuple[int, list[tuple[str, _Meter]]]:
        axis = channel_axis(reference.shape, self.head.kind)
        channels = reference.shape[axis]
        groups = head_groups(self.head, output, channels, reference.ndim)
        if not groups:
            others = tuple(i for i in range(reference.ndim) if i != axis)
            groups = range_groups(np.abs(reference.astype(np.float64)).max(axis=others))
        return axis, [(name, _Meter(numbers)) for name, numbers in groups]

    def result(self) -> list[ChannelGroup]:
        """All groups in the order of the outputs."""
        return [
            ChannelGroup(
                output,
                name,
                len(m.channels),
                m.low,
                m.high,
                m.largest,
                m.total / m.count,
                m.distinct[0],
                m.distinct[1],
                flattened=m.distinct[1] < min(FEW, m.distinct[0] / 4),
            )
            for output, (_, meters) in self._meters.items()
            for name, m in meters
        ]
