"""Common to the tests of detection heads: random maps, cell grids, rows as the heads give them. Float64 numpy, nothing of the C++."""

from typing import Any

import numpy as np

from npuforge.board_runtime.heads import Head, Settings
from npuforge.compile.ir.preprocess import HeadSpec, Preprocess

RNG = np.random.default_rng(20240611)
Arrays = dict[str, np.ndarray]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def grid(height: int, width: int) -> np.ndarray:
    """[cells, 2] of x, y in row-major order."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float64)


def corners(centre: np.ndarray, size: np.ndarray) -> np.ndarray:
    return np.concatenate([centre - size / 2, centre + size / 2], axis=1)


def rows(boxes: np.ndarray, scores: np.ndarray, threshold: float, keypoints: np.ndarray | None = None) -> np.ndarray:
    """Multi-label rows in the order of cells, then classes."""
    cell, label = np.nonzero(scores > threshold)
    parts = [boxes[cell], scores[cell, label][:, None], label[:, None].astype(np.float64)]
    if keypoints is not None:
        parts.append(keypoints[cell])
    return np.concatenate(parts, axis=1)


def head(kind: str, width: int, height: int, options: dict[str, Any], **settings: Any) -> Head:
    record = Preprocess(width=width, height=height, head=HeadSpec(kind=kind, options=options))
    return Head(record, Settings(**settings))


def compare(found: np.ndarray, expected: np.ndarray) -> None:
    assert len(expected) > 5, "the case must produce detections"
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-3)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)
