"""Runs a detector over a dataset and scores it. A detector is any callable: BGR image → rows [x1, y1, x2, y2, score, class, ...]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuforge.board_runtime.heads import Head, Settings
from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.image import fit, load_image, to_float
from npuforge.compile.ir.preprocess import Preprocess
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
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                str(model), options, providers=providers or ["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has no common base of its exceptions
            raise ModelError(f"{model}: ONNX Runtime cannot load it: {' '.join(str(error).split())}") from error
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise ModelError(
                f"{model}: expected one image input, found {len(inputs)}: {', '.join(i.name for i in inputs)}"
            )
        self._input = inputs[0].name
        self._outputs = [o.name for o in self._session.get_outputs()]
        self.record = record
        self.head = Head(record, settings)

    @property
    def provider(self) -> str:
        """The execution provider in use."""
        return str(self._session.get_providers()[0])

    def outputs(self, tensor: np.ndarray) -> dict[str, np.ndarray]:
        """The network's outputs by name."""
        return dict(zip(self._outputs, self._session.run(self._outputs, {self._input: tensor}), strict=True))

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Detections of one BGR image in its own pixels."""
        pixels, geometry = fit(image, self.record)
        return self.head.detect(self.outputs(to_float(pixels, self.record)), geometry)
