"""The scales of constants that come from integers, followed through constant nodes (moves, products with constants) to the convolution that reads them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from npuforge.compile.ir.graph import Graph, Grid, Node

_MOVES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def keep_grid(graph: Graph, node: Node) -> None:
    """Enters the grid of the output of a node that was just folded, where its values are still whole multiples of known scales."""
    name = node.outputs[0]
    if node.op == "DequantizeLinear" and not node.attrs.get("block_size", 0):
        scale = graph.constants[node.inputs[1]].astype(np.float64).reshape(-1)
        zero = graph.constants[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else np.zeros(1)
        if graph.constants[node.inputs[0]].dtype.kind in "iu":
            graph.grids[name] = Grid(scale, zero.astype(np.int64).reshape(-1), node.attrs.get("axis", 1))
        return
    if node.op == "Mul" and node.inputs[0] not in graph.grids:
        node = replace(node, inputs=node.inputs[::-1])
    if not node.inputs or node.inputs[0] not in graph.grids or graph.constants[name].dtype.kind != "f":
        return
    found = _through(node, graph.grids[node.inputs[0]], graph)
    if found is not None:
        graph.grids[name] = found


def _through(node: Node, grid: Grid, graph: Graph) -> Grid | None:
    """The grid of what a node makes of a constant with `grid`; None where it is none."""
    before, after = graph.constants[node.inputs[0]].shape, graph.constants[node.outputs[0]].shape
    if node.op in ("Identity", "Cast"):
        return grid
    if node.op == "Transpose":
        perm = node.attrs.get("perm") or list(range(len(before)))[::-1]
        return replace(grid, axis=perm.index(grid.axis % len(before))) if before else grid
    if node.op in _MOVES:
        return _moved(grid, before, after)
    if node.op in ("Mul", "Div") and before == after:
        factor = graph.constants[node.inputs[1]].astype(np.float64)
        return _scaled(grid, 1 / factor if node.op == "Div" and (factor != 0).all() else factor, before)
    return None


def _wide(grid: Grid) -> bool:
    return max(grid.scale.size, grid.zero_point.size) > 1


def _moved(grid: Grid, before: tuple[int, ...], after: tuple[int, ...]) -> Grid | None:
    """Behind a reshape: the axis of the scales must stay one of its own."""
    if not _wide(grid):
        return grid
    axis = grid.axis % len(before)
    front = math.prod(before[:axis])
    places = [i for i, extent in enumerate(after) if extent == before[axis] and math.prod(after[:i]) == front]
    return replace(grid, axis=places[0]) if places else None


def _scaled(grid: Grid, factor: np.ndarray, shape: tuple[int, ...]) -> Grid | None:
    """Times positive constants, one for all or one along the axis of the scales."""
    if not (np.isfinite(factor).all() and (factor > 0).all()):
        return None
    if factor.size == 1:
        return replace(grid, scale=grid.scale * factor.reshape(-1))
    axis = grid.axis % len(shape)
    along = (1,) * (len(shape) - factor.ndim) + factor.shape
    if any(extent != (shape[axis] if i == axis else 1) for i, extent in enumerate(along)):
        return None
    return replace(grid, scale=grid.scale * factor.reshape(-1)) if _wide(grid) else None
