"""Where RotatedRoiAlign reads, in float64: the places of a region's samples, and the pixels and weights of its bins."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node

Samples = tuple[np.ndarray, np.ndarray]  # flat map indices [bins, samples * 4], their weights


def places(roi: np.ndarray, node: Node) -> tuple[np.ndarray, np.ndarray, int, int]:
    """x and y [rows * samples, columns * samples] of the samples of one region, pixel centres being whole; samples along y and x of a bin."""
    scale, ratio = float(node.attrs.get("spatial_scale", 1.0)), int(node.attrs.get("sampling_ratio", 0))
    rows, columns = int(node.attrs.get("output_height", 1)), int(node.attrs.get("output_width", 1))
    x, y, w, h = (float(v) * scale for v in roi[1:5])
    x, y = x - 0.5, y - 0.5
    count_y = ratio if ratio > 0 else max(1, int(np.ceil(h / rows)))
    count_x = ratio if ratio > 0 else max(1, int(np.ceil(w / columns)))
    local_y = ((np.arange(rows * count_y) + 0.5) / (rows * count_y) - 0.5) * h
    local_x = ((np.arange(columns * count_x) + 0.5) / (columns * count_x) - 0.5) * w
    cosine, sine = np.cos(float(roi[5])), np.sin(float(roi[5]))
    at_x = x + local_x[None, :] * cosine - local_y[:, None] * sine
    at_y = y + local_x[None, :] * sine + local_y[:, None] * cosine
    return at_x, at_y, count_y, count_x


def sample_bins(roi: np.ndarray, node: Node, height: int, width: int) -> Samples:
    """For every bin of one region (batch, cx, cy, width, height, angle): which pixels its average reads, and with which weight.

    Pixel centres lie at half-integers, so sampling coordinates are the region's minus 1/2. A sample more than a pixel outside the map reads 0; within
    it is clamped to the border, as in ONNX's RoiAlign.
    """
    at_x, at_y, count_y, count_x = places(roi, node)
    rows, columns = len(at_y) // count_y, at_x.shape[1] // count_x
    outside = (at_x < -1.0) | (at_x > width) | (at_y < -1.0) | (at_y > height)
    indices, weights = [], []
    at_x, at_y = np.clip(at_x, 0.0, width - 1.0), np.clip(at_y, 0.0, height - 1.0)
    left, top = np.floor(at_x).astype(np.int64), np.floor(at_y).astype(np.int64)
    for dy, dx in np.ndindex(2, 2):
        px, py = np.minimum(left + dx, width - 1), np.minimum(top + dy, height - 1)
        share_x = (at_x - left) if dx else 1.0 - (at_x - left)
        share_y = (at_y - top) if dy else 1.0 - (at_y - top)
        indices.append(py * width + px)
        weights.append(np.where(outside, 0.0, share_x * share_y) / (count_x * count_y))

    def by_bin(values: list[np.ndarray]) -> np.ndarray:
        stacked = np.stack(values, -1).reshape(rows, count_y, columns, count_x, 4)
        return stacked.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)

    return by_bin(indices), by_bin(weights)
