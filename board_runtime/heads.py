"""Detections from a network's outputs: the C++ heads behind one small class. Needs numpy and the native module only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import npuforge.board_runtime._native as _native
import numpy as np

from npuforge.compile.ir.errors import HeadError, InputError, UsageError
from npuforge.compile.ir.image import Geometry
from npuforge.compile.ir.preprocess import Preprocess


@dataclass(frozen=True)
class Settings:
    """How candidates become detections. None: the threshold that the preprocessing record declares.

    A score must be above `score_threshold`; within a class, a box that overlaps a better one by more than `nms_threshold` goes.
    `clip` cuts boxes at the image's border.
    """

    score_threshold: float | None = None
    nms_threshold: float | None = None
    max_candidates: int = 3000
    max_detections: int = 100
    clip: bool = True


CLASS_NUMBERS = ("detections", "yolodecode")  # kinds whose outputs hold the class's number

# COCO's way of scoring: everything that could matter to the precision-recall curve, boxes as the network gives them.
COCO_SETTINGS = Settings(score_threshold=0.01, clip=False)


class Head:
    """The head that a preprocessing record declares. Detections are float32 rows [x1, y1, x2, y2, score, class, keypoint x, y, ...].

    Any number of threads may share one.
    """

    def __init__(self, record: Preprocess, settings: Settings | None = None) -> None:
        head = record.head
        if head.kind == "none":
            raise InputError("the preprocessing record declares no detection head (head.kind is none)")
        if head.kind == "auto":
            raise InputError(
                "the preprocessing record leaves the head to be recognised (head.kind auto): use the record of a build, or declare the kind"
            )
        self.record = record
        self.settings = settings or Settings()
        given = self.settings
        self._score_threshold = head.score_threshold if given.score_threshold is None else given.score_threshold
        self._nms_threshold = head.nms_threshold if given.nms_threshold is None else given.nms_threshold
        self._decoder = _native.heads.Decoder(
            head.kind, json.dumps(head.options), int(record.width), int(record.height)
        )

    @property
    def oriented(self) -> bool:
        """Boxes are oriented: the four keypoints of a row are the box's corners, in order around it; x1 … y2 enclose them."""
        return bool(self._decoder.oriented)

    def candidates(self, outputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Everything above the score threshold before NMS, in network input pixels."""
        with _fitting():
            return self._decoder.decode(_named(outputs), self._score_threshold)

    def detect(self, outputs: Mapping[str, np.ndarray], geometry: Geometry | None = None) -> np.ndarray:
        """Decode, the best candidates, class-aware NMS, best first; in image pixels with `geometry`, else in network input pixels.

        HeadError where the outputs are not those that the head decodes.
        """
        with _fitting():
            return self._decoder.detect(
                _named(outputs),
                self._score_threshold,
                self._nms_threshold,
                self.settings.max_candidates,
                self.settings.max_detections,
                None if geometry is None else geometry.as_tuple(),
                self.settings.clip,
            )

    def class_count(self, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
        """How many classes outputs of these shapes have; None for kinds whose outputs hold class numbers. HeadError where they do not fit.

        Decodes values that grow along every axis: the last class has the largest score everywhere, whatever the layout.
        """
        kind, options = self.record.head.kind, dict(self.record.head.options)
        if kind in CLASS_NUMBERS:
            return None
        if "multi_label" in _native.heads.option_names(kind):
            options["multi_label"] = False
        decoder = _native.heads.Decoder(kind, json.dumps(options), int(self.record.width), int(self.record.height))
        with _fitting():
            rows = decoder.decode(_named({name: _growing(shape) for name, shape in shapes.items()}), -1.0)
        return int(rows[:, 5].max()) + 1 if len(rows) else None


@contextmanager
def _fitting() -> Iterator[None]:
    """The decoder's refusal of its outputs, typed."""
    try:
        yield
    except UsageError as error:
        raise HeadError(str(error)) from None


def _growing(shape: tuple[int, ...]) -> np.ndarray:
    """Float32 of `shape`, within each axis from nearly 0 upwards, at most the number of axes."""
    value = np.zeros(shape, np.float32)
    for axis, extent in enumerate(shape):
        value += (np.arange(1, extent + 1, dtype=np.float32) / max(extent, 1)).reshape(
            -1, *[1] * (len(shape) - axis - 1)
        )
    return value


def _named(outputs: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(name, np.ascontiguousarray(array, dtype=np.float32)) for name, array in outputs.items()]


def nms(
    detections: np.ndarray,
    nms_threshold: float,
    max_candidates: int = 3000,
    max_detections: int = 100,
    oriented: bool = False,
    gaussians: bool = False,
) -> np.ndarray:
    """Class-aware NMS of rows [x1, y1, x2, y2, score, class, ...], best first.

    Greedy. `oriented`: overlap of the corners, values 6..13. `gaussians`, of oriented rows: ProbIoU and fast NMS, as the heads of oriented boxes do it
    (a box goes where any better one of its class reaches the threshold, kept or not).
    """
    overlap = "gaussians" if gaussians else "corners" if oriented else "boxes"
    return _native.heads.select(
        np.ascontiguousarray(detections, dtype=np.float32), nms_threshold, max_candidates, max_detections, overlap
    )


def map_to_image(detections: np.ndarray, geometry: Geometry, clip: bool = True) -> np.ndarray:
    """Network input pixels → image pixels; boxes are clipped to the image with `clip`."""
    return _native.heads.map_to_image(np.ascontiguousarray(detections, dtype=np.float32), geometry.as_tuple(), clip)
