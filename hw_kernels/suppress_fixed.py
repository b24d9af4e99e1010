"""Non-maximum suppression of one class over integer scores: the normative result of hls/suppress.hpp; scores of the NPU's int8 and bf16 in their order
(hls/class_scores.hpp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.kernel_data import Stored, padded
from npuforge.hw_kernels.operator import UNWRITTEN, KernelCase


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


OVERLAP_BITS = 14
NAN_ORDER = -32768
Found = list[tuple[KernelCase, list[int]]]


def bf16_order(bits: np.ndarray) -> np.ndarray:
    """int64 in the order of the values; NaN below everything, denormals and zeros 0."""
    magnitude = np.asarray(bits, np.uint16).astype(np.int64) & 0x7FFF
    signed = np.where(np.asarray(bits, np.uint16) >> 15 != 0, -magnitude, magnitude)
    return np.where(magnitude > 0x7F80, NAN_ORDER, np.where(magnitude < 0x80, 0, signed))


def order_and_lowest(scores: Stored, lowest: float) -> tuple[np.ndarray, list[int]]:
    """Scores [..., C] as integers, and for each class the largest integer that is no score above `lowest`: exactly what the real scores say."""
    if scores.quant.dtype == "bf16":
        every = np.arange(65536, dtype=np.uint16)
        with np.errstate(invalid="ignore"):
            below = bf16.to_float32(every).astype(np.float64) <= lowest
        return bf16_order(scores.bits), [int(bf16_order(every[below]).max())] * scores.bits.shape[-1]
    steps = np.arange(-128, 128)[:, None]
    below = (steps - scores.quant.zero_point) * scores.quant.scale <= lowest
    return scores.bits.astype(np.int64), [int(v) for v in np.where(below, steps, -129).max(0)]


def overlap_threshold(threshold: float) -> int:
    """With 14 fraction bits, upwards by up to a unit; -1 below 0. Overlaps of int8 boxes are ratios of small integers and often equal a threshold: such ones
    are not above it, and what the corners lose must not make them so."""
    return -1 if threshold < 0 else min(int(np.floor(threshold * 2**OVERLAP_BITS)) + 1, 2**OVERLAP_BITS)


def kernel_calls(
    boxes: list[Any],
    scores: Stored,
    image: tuple[int, ...],
    exceeds: Callable[[int, int], bool],
    limits: tuple[int, float, int],
) -> Found:
    """One call and its kept boxes for each class. `boxes`: what the kernel takes for them; `image`: where in the scores [..., N, C]; `exceeds` takes two
    indices; `limits`: threshold as `overlap_threshold`, lowest score, most boxes."""
    threshold, lowest_score, most = limits
    order, lowest = order_and_lowest(scores, lowest_score)
    count, classes = scores.bits[image].shape
    found: Found = []
    for label in range(classes):
        chosen = suppress(order[image][:, label], exceeds, lowest[label], most)
        kept = np.full(count, UNWRITTEN, np.int32)  # what lies behind stays as it was
        kept[: len(chosen)] = chosen
        sizes = [count, classes, label, threshold, lowest[label], most]
        outputs = [np.full(count, UNWRITTEN, np.int32), np.zeros(1, np.int32)]
        call: list[Any] = [*boxes, padded(scores.bits[image]), *sizes, *outputs]
        found.append(((call, [kept, np.array([len(chosen)], np.int32)]), chosen))
    return found
