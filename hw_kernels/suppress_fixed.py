"""Non-maximum suppression of one class over integer scores: the normative result of hls/suppress.hpp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuforge.hw_kernels.operator import KernelCase


def suppress(scores: np.ndarray, exceeds: Callable[[int, int], bool], lowest: int, limit: int) -> list[int]:
    """Indices of kept boxes, best first, ties by index: a box stays if no kept one exceeds the threshold with it."""
    kept: list[int] = []
    for i in np.argsort(-scores.astype(np.int64), kind="stable"):
        if len(kept) >= limit or scores[i] <= lowest:
            break
        if not any(exceeds(j, int(i)) for j in kept):
            kept.append(int(i))
    return kept


def kernel_case(boxes: np.ndarray, exceeds: Callable[[int, int, int], bool], random: np.random.Generator) -> KernelCase:
    """Arguments and results of a kernel around `suppress`; `exceeds` takes two indices and the threshold."""
    count = len(boxes)
    scores = random.integers(0, int(random.choice([4, 16384])), count).astype(np.int16)  # 4: many ties
    threshold, lowest = int(random.integers(0, 16385)), int(random.choice([-1, 0, 5000]))
    limit = int(random.choice([0, 1, 3, count]))
    found = suppress(scores, lambda i, j: exceeds(i, j, threshold), lowest, limit)
    kept = np.zeros(count, np.int32)
    kept[: len(found)] = found
    outputs = [np.zeros(count, np.int32), np.zeros(1, np.int32)]
    return [boxes, scores, count, threshold, lowest, limit, *outputs], [kept, np.array([len(found)], np.int32)]
