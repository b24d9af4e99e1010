"""Runs a detector over a dataset and scores it. A detector is any callable: BGR image → rows [x1, y1, x2, y2, score, class, ...]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuforge.board_runtime.heads import Head, Settings
from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.image import fit, load_image, to_tensor
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.reference import FloatReference
from npuforge.scripts.datasets import Dataset
from npuforge.scripts.mean_average_precision import Metrics, mean_average_precision

Detector = Callable[[np.ndarray], np.ndarray]
Progress = Callable[[int, int], None]


@dataclass
class Evaluation:
    """Metrics and the detections they came from, one array per image in the dataset's order."""

    metrics: Metrics
    detections: list[np.ndarray]


def evaluate(detector: Detector, dataset: Dataset, progress: Progress | None = None) -> Evaluation:
    """Detections of every image and their mean average precision. `progress(done, total)` is called after each image."""
    detections = []
    for done, truth in enumerate(dataset.images, start=1):
        detections.append(detector(load_image(truth.path)))
        if progress is not None:
            progress(done, len(dataset.images))
    return Evaluation(mean_average_precision(dataset, detections), detections)


class OnnxDetector:
    """The float network in ONNX Runtime with the record's preprocessing and head: the reference column.

    With `COCO_SETTINGS` it gives the detections that mAP is computed from.
    """

    def __init__(
        self,
        model: str | Path,
        record: Preprocess,
        *,
        settings: Settings | None = None,
        threads: int = 0,
        providers: list[str] | None = None,
    ) -> None:
        self._network = FloatReference(model, threads=threads, providers=providers or ["CPUExecutionProvider"])
        inputs = self._network.input_names
        if len(inputs) != 1:
            raise ModelError(f"{model}: expected one image input, found {len(inputs)}: {', '.join(inputs)}")
        self.record = record
        self.head = Head(record, settings)

    @property
    def provider(self) -> str:
        """The execution provider in use."""
        return self._network.provider

    def outputs(self, tensor: np.ndarray) -> dict[str, np.ndarray]:
        """The network's outputs by name."""
        return self._network.run({self._network.input_names[0]: tensor})

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Detections of one BGR image in its own pixels."""
        pixels, geometry = fit(image, self.record)
        return self.head.detect(self.outputs(to_tensor(pixels, self.record)), geometry)
