"""YoloDecode of maps as the NPU leaves them, int8 or bf16 in NHWC-16: logits to 12 fraction bits, then fixed.py's integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels.edges import entering, fixed_of_bf16, fixed_of_int8
from npuforge.hw_kernels.kernel_data import Stored, store
from npuforge.hw_kernels.operator import UNWRITTEN, KernelCase, KernelForm, KernelRun, get
from npuforge.hw_kernels.ops.yolo_decode.attributes import Attributes
from npuforge.hw_kernels.ops.yolo_decode.fixed import (
    BITS,
    INFINITE,
    LOGIT_MAX,
    MAX_CLASSES,
    MAX_SIDE,
    NAN,
    PIXEL_BITS,
    SCORE_BITS,
    SCORE_NAN,
    decode_map,
)


def bf16_logits(bits: np.ndarray) -> np.ndarray:
    """int64 with 12 fraction bits, clamped to +-128; NaN stays one."""
    return np.where((bits & 0x7FFF) > 0x7F80, NAN, fixed_of_bf16(bits, BITS, LOGIT_MAX))


def int8_logits(bits: np.ndarray, quant: TensorQuant) -> tuple[np.ndarray, list[Any]]:
    """The same of int8 channels, and what the kernel takes for it: the records to 12 - shift fraction bits, and the shift, which is 0 for scales below 8."""
    shift = int(np.clip(BITS - np.floor(np.log2(32767 / quant.scale.max())), 0, 31))
    scale = np.minimum(quant.scale.astype(np.float64), 32767 * 2.0 ** (shift - BITS))  # beyond it every step is clamped
    edge = entering(scale, quant.zero_point, BITS - shift)
    return np.clip(fixed_of_int8(bits, edge) << shift, -LOGIT_MAX, LOGIT_MAX), [edge.records, shift]


def corners(box: np.ndarray) -> np.ndarray:
    """Pixels of int32 corners."""
    real = np.where(np.abs(box.astype(np.int64)) == INFINITE, np.copysign(np.inf, box), box / 2**PIXEL_BITS)
    return np.where(box == NAN, np.nan, real)


def kernel_run(attributes: Attributes, inputs: list[Any], mode: str) -> KernelRun:
    """One call for each map of each image that has a pixel; boxes have 4 fraction bits, scores 14, whatever came in."""
    maps = [store(x, 1, mode) for x in inputs]
    runs = [_image(attributes, [_one(x, n) for x in maps], mode) for n in range(len(inputs[0]))]
    results = [np.concatenate(v) for v in zip(*(r.results for r in runs), strict=True)]
    bounds = [np.concatenate(v) for v in zip(*(r.bounds for r in runs), strict=True)]
    return KernelRun([c for r in runs for c in r.calls], [x.real for x in maps], results, bounds)


def _one(x: Stored, image: int) -> Stored:
    """One image of stored maps."""
    return replace(x, bits=x.bits[image : image + 1])


def _image(attributes: Attributes, maps: list[Stored], mode: str) -> KernelRun:
    threshold = round(attributes.score_threshold * 2**SCORE_BITS) if attributes.score_threshold > 0 else -1
    classes = attributes.num_classes
    calls: list[KernelCase] = []
    found: list[tuple[np.ndarray, ...]] = [(np.zeros((0, 4)), np.zeros(0), np.zeros(0))]
    bounds: list[tuple[np.ndarray, ...]] = found.copy()
    for x, pairs, stride in zip(maps, attributes.anchors, attributes.strides, strict=True):
        if not x.bits.size:
            continue
        lanes = x.lanes
        _, height, width, depth = lanes.shape
        anchors = np.round(pairs * 2**PIXEL_BITS).astype(np.int32)
        records: list[Any] = []
        if mode == "bf16":
            logits = bf16_logits(x.bits)
        else:
            logits, records = int8_logits(x.bits, x.quant)
        rows = decode_map(logits[0], [(int(w), int(h)) for w, h in anchors], stride, classes, threshold)
        limit = height * width * len(anchors)
        shapes = (((limit, 4), np.int32), (limit, np.int16), (limit, np.int32))
        expected = [np.full(shape, UNWRITTEN, dtype) for shape, dtype in shapes]
        for array, values in zip(expected, rows, strict=True):
            array[: len(values)] = values  # what lies behind stays as it was
        sizes = [height, width, depth, anchors, len(anchors), stride, classes, threshold, limit]
        outputs = [*(np.full_like(e, UNWRITTEN) for e in expected), np.zeros(1, np.int32)]
        calls.append(([lanes, *records, *sizes, *outputs], [*expected, np.array([len(rows[0])], np.int32)]))
        scores = np.where(rows[1] == SCORE_NAN, np.nan, rows[1] / 2**SCORE_BITS)
        found.append((corners(rows[0]), scores, rows[2].astype(np.float64)))
        bits = BITS - (records[1] if records else 0)
        bounds.append(_bounds(x, pairs, stride, classes, logits[0], threshold, bits))
    results = [np.concatenate(v)[None] for v in zip(*found, strict=True)]
    return KernelRun(
        calls, [x.real for x in maps], results, [np.concatenate(v)[None] for v in zip(*bounds, strict=True)]
    )


def _bounds(
    x: Stored, pairs: np.ndarray, stride: int, classes: int, logits: np.ndarray, threshold: int, bits: int
) -> tuple[np.ndarray, ...]:
    """Of the rows that stay, in pixels and probabilities; a logit is off by d: half a unit of 2^-bits (12, fewer for scales beyond 8), in int8 also 2^-15 of itself by its multiplier.

    A centre moves by stride (d/4 + 2^-15) and half a unit, a half size by (e^d - 1 + 2^-14) of itself, half a unit, and what an anchor lost to 4 fraction bits.
    A score by d/2 + 1.5 units. The class is the first of those that are largest in 12 fraction bits; it is exact where no two are that near.
    """
    height, width = logits.shape[:2]
    t = x.real[0].reshape(len(pairs), 5 + classes, height, width).transpose(2, 3, 0, 1)
    of_multiplier = 0.0 if x.quant.dtype == "bf16" else 2.0**-15
    off = 2.0 ** -(bits + 1) + of_multiplier * np.abs(t)
    unit = 2.0**-PIXEL_BITS
    centre = stride * (off[..., :2] / 4 + 2.0**-15) + unit / 2
    lost = np.abs(np.round(pairs / unit) * unit - pairs)
    with np.errstate(all="ignore"):
        size = np.exp(t[..., 2:4])
    half = size * (pairs / 2 * (np.expm1(off[..., 2:4]) + 2.0**-14) + lost) + unit / 2
    box = np.concatenate([centre + half] * 2, -1).reshape(-1, 4)
    score = (off[..., 4] / 4 + off[..., 5:].max(-1) / 4 + 1.5 * 2.0**-SCORE_BITS).reshape(-1)
    anchors = [(int(w), int(h)) for w, h in np.round(pairs / unit)]
    every = decode_map(logits, anchors, stride, classes)[1]
    kept = (every > threshold) | (threshold < 0)
    return box[kept], score[kept], np.zeros(int(kept.sum()))


def _run(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    get(node).infer(node, [np.shape(x) for x in inputs])  # refuses what are no maps of one image
    return kernel_run(Attributes.of(node, len(inputs)), inputs, mode)


def _form(element: str, name: str, records: tuple[str, ...]) -> KernelForm:
    shift = len(records)
    bounds = {
        1: (0, 257),
        2: (0, 257),
        3: (0, 2**30),
        5: (0, 17),
        6: (0, 257),
        7: (0, 129),
        8: (-2, 16385),
        9: (-1, 2**21),
    }
    outputs = ("int32_t*", "int16_t*", "int32_t*", "int32_t*")
    sizes = ("int32_t", "int32_t", "int32_t", "const int32_t*", *["int32_t"] * 5)
    return KernelForm(
        f"{name}<{MAX_SIDE}, {MAX_CLASSES}>",
        (f"const {element}*", *records, *sizes, *outputs),
        _run,
        {position + shift: values for position, values in bounds.items()},
    )


KERNEL_INT8 = _form("int8_t", "yolo_decode_int8", ("const int32_t*", "int32_t"))
KERNEL_BF16 = _form("uint16_t", "yolo_decode_bf16", ())
