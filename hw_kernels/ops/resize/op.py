"""Resize of height and width, nearest or linear, with ONNX's coordinate modes; the scale of every channel is carried."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.bf16 import resize
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.gradients import Linear
from npuforge.hw_kernels.operator import Case, Gradients, Shape, register
from npuforge.hw_kernels.ops.resize.program import RESIZE

COORDINATE_MODES = (
    *("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"),
    "tf_half_pixel_for_nn",
)
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def known_modes(node: Node, graph: Graph) -> bool:
    """mode is nearest or linear; coordinates half_pixel, pytorch_half_pixel, half_pixel_symmetric, tf_half_pixel_for_nn, align_corners or asymmetric; no antialias"""
    a = node.attrs
    return (
        a.get("mode", "nearest") in ("nearest", "linear")
        and a.get("coordinate_transformation_mode", "half_pixel") in COORDINATE_MODES
        and a.get("nearest_mode", "round_prefer_floor") in NEAREST_MODES
        and not a.get("antialias", 0)
    )


def _source(position: int, size: int, out: int, scale: Fraction, mode: str) -> Fraction:
    """ONNX's original coordinate of output `position`, exact."""
    if mode == "asymmetric":
        return position / scale
    if mode == "align_corners":
        return Fraction(position * (size - 1), out - 1) if out > 1 else Fraction(0)
    if mode == "pytorch_half_pixel" and out == 1:
        return Fraction(0)
    half = Fraction(1, 2)
    if mode == "tf_half_pixel_for_nn":
        return (position + half) / scale
    if mode == "half_pixel_symmetric":
        centre = Fraction(size, 2)
        return centre * (1 - Fraction(out) / (scale * size)) + (position + half) / scale - half
    return (position + half) / scale - half


def _nearest(x: Fraction, mode: str) -> int:
    floor = x.numerator // x.denominator
    if mode == "floor":
        return floor
    if mode == "ceil":
        return -((-x.numerator) // x.denominator)
    twice = 2 * (x - floor)
    return floor + (1 if twice > 1 or (twice == 1 and mode == "round_prefer_ceil") else 0)


def source_positions(
    size: int, out: int, scale: float, mode: str, coordinates: str, nearest_mode: str
) -> list[tuple[int, int, Fraction]]:
    """Per output position along one axis: two source positions and the exact weight of the second (0 for nearest)."""
    # A scale that is the sizes' quotient rounded to float is taken as the exact quotient.
    exact = Fraction(out, size) if abs(scale * size - out) <= 1e-4 * out else Fraction(scale)
    result = []
    for position in range(out):
        x = _source(position, size, out, exact, coordinates)
        if mode == "nearest":
            source = min(max(_nearest(x, nearest_mode), 0), size - 1)
            result.append((source, source, Fraction(0)))
            continue
        x = min(max(x, Fraction(0)), Fraction(size - 1))
        low = x.numerator // x.denominator
        result.append((low, min(low + 1, size - 1), x - low))
    return result


def axes(node: Node, h: int, w: int) -> list[list[tuple[int, int, Fraction]]]:
    """`source_positions` of the rows and of the columns."""
    a = node.attrs
    modes = (
        a.get("mode", "nearest"),
        a.get("coordinate_transformation_mode", "half_pixel"),
        a.get("nearest_mode", "round_prefer_floor"),
    )
    return [
        source_positions(size, int(out), float(scale), *modes)
        for size, out, scale in zip((h, w), a["sizes"], a["scales"], strict=True)
    ]


def tables(node: Node, h: int, w: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows, columns: i0, i1 and w1 = round_half_up(fraction*256), int64 (RESIZE_RECORD)."""
    result = []
    for axis in axes(node, h, w):
        weights = [(2 * 256 * f.numerator + f.denominator) // (2 * f.denominator) for _, _, f in axis]
        result.append((np.array([a for a, _, _ in axis]), np.array([b for _, b, _ in axis]), np.array(weights)))
    return result


def float_tables(node: Node, h: int, w: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows, columns: i0, i1 (int64) and the weight of i1 as float32 (RESIZE_BF16_RECORD)."""
    return [
        (
            np.array([a for a, _, _ in axis]),
            np.array([b for _, b, _ in axis]),
            np.array([float(f) for *_, f in axis], np.float32),
        )
        for axis in axes(node, h, w)
    ]


@register
class Resize(Linear):
    """y = x at ONNX's source coordinates"""

    names = ("Resize",)
    program = RESIZE
    cost = RESIZE.cost
    onnx = ("Resize", "Upsample")
    called_with = (
        (
            "Upsample",
            "sizes=[height, width] of the result, scales=[vertical, horizontal], coordinate_transformation_mode='asymmetric', nearest_mode='floor'",
        ),
    )
    moves_bytes = True
    constraints = (c.feature_maps, c.map_sizes, known_modes, c.no_activation)
    cases = (
        Case(
            [(1, 16, 4, 5)],
            {
                "mode": "nearest",
                "coordinate_transformation_mode": "asymmetric",
                "nearest_mode": "floor",
                "scales": [2.0, 2.0],
                "sizes": [8, 10],
            },
        ),
        Case(
            [(1, 5, 6, 4)],
            {"mode": "linear", "coordinate_transformation_mode": "half_pixel", "scales": [2.0, 2.0], "sizes": [12, 8]},
        ),
        Case(
            [(1, 18, 5, 5)],
            {
                "mode": "linear",
                "coordinate_transformation_mode": "align_corners",
                "scales": [2.2, 1.4],
                "sizes": [11, 7],
            },
            why="sizes that are no multiple",
        ),
        Case(
            [(1, 3, 8, 8)],
            {"mode": "nearest", "nearest_mode": "round_prefer_floor", "scales": [0.5, 1.25], "sizes": [4, 10]},
            why="shrinking",
        ),
    )

    def host_types_of(self, node: Node, position: int) -> tuple[str, ...]:
        return ("float32",) if position == 0 and node.attrs.get("mode", "nearest") != "nearest" else ()

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        n, channels, _, _ = shapes[0]
        return [(n, channels, int(node.attrs["sizes"][0]), int(node.attrs["sizes"][1]))]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        x = inputs[0].astype(np.float64)
        for axis, positions in zip((2, 3), axes(node, x.shape[2], x.shape[3]), strict=True):
            weight = np.array([float(f) for _, _, f in positions]).reshape((-1, 1) if axis == 2 else (-1,))
            first, second = x.take([p[0] for p in positions], axis), x.take([p[1] for p in positions], axis)
            x = (
                first if not weight.any() else first * (1.0 - weight) + second * weight
            )  # nearest copies, infinities too
        return [x]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """The interpolation's weights, transposed, axis by axis."""
        dx = np.asarray(output_gradients[0], np.float64)
        height, width = inputs[0].shape[2:]
        for axis, size, positions in zip((2, 3), (height, width), axes(node, height, width), strict=True):
            matrix = np.zeros((len(positions), size))
            for row, (first, second, fraction) in enumerate(positions):
                matrix[row, first] += 1.0 - float(fraction)
                matrix[row, second] += float(fraction)
            dx = np.moveaxis(np.tensordot(dx, matrix, axes=([axis], [0])), -1, axis)
        return [dx]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        q = inputs[0]
        (y0, y1, wy), (x0, x1, wx) = tables(node, q.shape[1], q.shape[2])
        if not wy.any() and not wx.any():
            return q[:, y0][:, :, x0]  # (65536*q + 2^15) >> 16 = q
        wide = q.astype(np.int64)
        rows = wide[:, y0] * (256 - wy)[:, None, None] + wide[:, y1] * wy[:, None, None]
        total = rows[:, :, x0] * (256 - wx)[:, None] + rows[:, :, x1] * wx[:, None]
        return ((total + (1 << 15)) >> 16).astype(np.int8)

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        rows, cols = float_tables(work.node, *inputs[0].shape[:2])
        return resize(inputs[0], rows, cols)

    def source_channels(self, node: Node, channels: list[int]) -> list[tuple[int, int]]:
        return [(0, i) for i in range(channels[0])]
