"""GridSample on the CPU partition: two or three spatial axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


def _cubic(x: np.ndarray) -> np.ndarray:
    x, a = np.abs(x), -0.75
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.asarray(np.where(x <= 1, near, np.where(x < 2, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, 0.0)))


def _mirror(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Reflection at both ends: a triangle wave."""
    if high <= low:
        return np.zeros_like(x)
    wave = np.mod(x - low, 2 * (high - low))
    return np.asarray(low + np.minimum(wave, 2 * (high - low) - wave))


@register
class GridSample(Deployed):
    """y[p] = x at the normalised coordinates grid[p], interpolated (mode), outside as padding_mode says"""

    names = ("GridSample",)
    host_types = ("float32",)
    onnx = ("GridSample",)
    cases = tuple(
        Case(
            [(2, 3, 4, 5), (2, 3, 2, 2)],
            {"mode": mode, "padding_mode": padding, "align_corners": align},
            values=lambda random: [random.normal(size=(2, 3, 4, 5)), random.uniform(-1.6, 1.6, (2, 3, 2, 2))],
        )
        for mode in ("linear", "nearest", "cubic")
        for padding, align in (("zeros", 0), ("border", 1), ("reflection", 0), ("reflection", 1))
    )

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [(*shapes[0][:2], *shapes[1][1:-1])]

    def _axis(self, node: Node, coordinate: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions (-1: a zero) and weights of the neighbours, [..., taps]."""
        mode, padding, align = (
            node.attrs.get(k, d) for k, d in (("mode", "linear"), ("padding_mode", "zeros"), ("align_corners", 0))
        )
        x = (coordinate + 1) / 2 * (size - 1) if align else ((coordinate + 1) * size - 1) / 2
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        cubic = mode in ("cubic", "bicubic")
        if not cubic and padding != "zeros":
            outside = (x < 0) | (x > size - 1)
            x = np.where(outside, np.clip(x, 0, size - 1) if padding == "border" else _mirror(x, low, high), x)
        first = np.rint(x) if mode == "nearest" else np.floor(x)
        steps = np.arange(-1, 3) if cubic else np.arange(1 if mode == "nearest" else 2)
        at = first[..., None] + steps
        away = x[..., None] - at
        weight = np.ones_like(at) if mode == "nearest" else (_cubic(away) if cubic else 1 - np.abs(away))
        if padding == "reflection":
            at = np.where((at < low) | (at > high), _mirror(at, low, high), at)
        inside = (at >= 0) & (at <= size - 1)
        at = np.where(inside | (padding != "zeros"), np.clip(np.trunc(at), 0, size - 1), -1)
        return at.astype(np.int64), weight

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, grid = inputs
        spatial = x.ndim - 2
        axes = [self._axis(node, grid[..., spatial - 1 - d], x.shape[2 + d]) for d in range(spatial)]
        y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
        batch = np.arange(x.shape[0]).reshape(-1, *[1] * spatial)
        for taps in np.ndindex(*(at.shape[-1] for at, _ in axes)):
            places = [at[..., t] for (at, _), t in zip(axes, taps, strict=True)]
            weight = np.prod([w[..., t] for (_, w), t in zip(axes, taps, strict=True)], axis=0)
            valid = np.all([p >= 0 for p in places], axis=0)
            y += np.moveaxis(x[(batch, slice(None), *places)], -1, 1) * (weight * valid)[:, None]
        return [y]
