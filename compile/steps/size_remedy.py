"""What to do where the shapes at a node do not fit: whether another image size would help, and which multiples the network's strides ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.steps.onnx_nodes import split_operator

SHRINKING = {"Conv", "MaxPool", "AveragePool", "LpPool", "ConvInteger", "QLinearConv"}
GROWING = {"ConvTranspose"}
Strides = tuple[float, float]  # image rows and columns for one of a map


def strides_above(node: Node, graph: Graph) -> tuple[int, int]:
    """The largest stride, in rows and columns of the image, among the maps that a node is made of: its products along every path, growing maps divide."""
    found = {name: (1.0, 1.0) for name in graph.inputs}
    largest: dict[str, Strides] = dict(found)
    for earlier in graph.nodes:
        if earlier is node:
            break
        reached = [found[t] for t in earlier.inputs if t in found]
        if not reached:
            continue
        down, across = _factor(earlier, graph)
        rows, columns = max(r for r, _ in reached) * down, max(c for _, c in reached) * across
        above = [largest[t] for t in earlier.inputs if t in largest]
        top = (max([rows, *(r for r, _ in above)]), max([columns, *(c for _, c in above)]))
        for name in earlier.outputs:
            found[name], largest[name] = (rows, columns), top
    tops = [largest[t] for t in node.inputs if t in largest] or [(1.0, 1.0)]
    return math.ceil(max(r for r, _ in tops)), math.ceil(max(c for _, c in tops))


def _factor(node: Node, graph: Graph) -> Strides:
    domain, op = split_operator(node.op)
    if domain:
        return 1.0, 1.0
    strides = node.attrs.get("strides")
    if op in SHRINKING | GROWING and isinstance(strides, Sequence) and len(strides) == 2 and min(strides) > 0:
        rows, columns = float(strides[0]), float(strides[1])
        return (1 / rows, 1 / columns) if op in GROWING else (rows, columns)
    block = node.attrs.get("blocksize", 1)
    if op in ("SpaceToDepth", "DepthToSpace") and isinstance(block, int) and block > 0:
        return (float(block),) * 2 if op == "SpaceToDepth" else (1.0 / block,) * 2
    if op in ("Resize", "Upsample"):
        before, after = (
            graph.tensors[t].shape if t in graph.tensors else () for t in (node.inputs[0], node.outputs[0])
        )
        if len(before) == len(after) == 4 and min(*before[2:], *after[2:]) > 0:
            return before[2] / after[2], before[3] / after[3]
    if (
        op == "Slice"
        and len(node.inputs) == 5
        and node.inputs[3] in graph.constants
        and node.inputs[4] in graph.constants
    ):
        axes, steps = graph.constants[node.inputs[3]].tolist(), graph.constants[node.inputs[4]].tolist()
        step = {a % 4: s for a, s in zip(axes, steps, strict=False)}
        return float(max(step.get(2, 1), 1)), float(max(step.get(3, 1), 1))
    return 1.0, 1.0


def shape_remedy(node: Node, graph: Graph) -> str:
    """One clause: pads below zero, the multiples that the image's size must have where it has not, else a new export."""
    pads = node.attrs.get("pads")
    if isinstance(pads, list) and any(isinstance(p, int) and p < 0 for p in pads):
        return f"its attribute pads is {pads[:8]}: cut the border off with a Slice instead, and export it again"
    again = f"export it again, without this {node.op} if it is no part of the network"
    rows, columns = strides_above(node, graph)
    for name in graph.inputs:
        shape = graph.tensors[name].shape
        if len(shape) != 4 or max(rows, columns) < 2:
            continue
        at = (1, 2) if shape[3] in (1, 3) and shape[1] not in (1, 3) else (2, 3)
        size = [shape[a] for a in at]
        if min(size) < 1 or (size[0] % rows == 0 and size[1] % columns == 0):
            continue
        fitting = list(shape)
        for axis, multiple in zip(at, (rows, columns), strict=True):
            fitting[axis] = -(-shape[axis] // multiple) * multiple
        return (
            f"the network's strides up to here ask for a height in multiples of {rows} and a width of {columns}, '{name}' has {size[0]} x {size[1]}: "
            f"where --shape gives the size, give for example --shape {name}={'x'.join(map(str, fitting))}; otherwise {again}"
        )
    if any(t in graph.constants for t in node.inputs):  # a size may be baked in
        return f"where --shape gives the size, give the one that the network was exported for; otherwise {again}"
    return again
