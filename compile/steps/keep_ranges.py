"""Keeps the ends of a quantised model's ranges where its nodes run in float. Owned by the partition step, which knows the devices.

A pair of QuantizeLinear and DequantizeLinear saturates, and quantisers delete the Relu, ReLU6 or Clip that the saturation replaces. On the NPU the integers
saturate alike; what a node writes on the CPU gets a Clip to [(q_min - zero point) * scale, (q_max - zero point) * scale].
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Grid, Node
from npuforge.compile.steps.rewrite import Editor
from npuforge.hw_kernels.activations import limits

CPU = "CPU"
REASON = "the quantised model saturates here; what it runs in float on the CPU keeps both ends of that range"
_MOVES = (
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)  # operators whose outputs hold nothing but values of their first input (of all inputs: Concat)


def keep_ranges(editor: Editor) -> list[tuple[Node, Node]]:
    """Adds the missing Clips to CPU nodes; (node, its Clip) in execution order."""
    graph, added = editor.graph, []
    for node in editor.ordered():
        if node.device != CPU:
            continue
        for tensor in [t for t in node.outputs if t in graph.grids and graph.tensors[t].dtype == "float32"]:
            grid = graph.grids[tensor]
            if not grid.saturates or grid.scale.size > 1:
                continue
            low, high = _ends(grid)
            if _within(editor, tensor, low, high):
                continue
            added.append((node, _clip(editor, node, tensor, low, high)))
    return added


def _ends(grid: Grid) -> tuple[float, float]:
    """Of the range, as the float32 that the Clip holds."""
    scale, zero = float(grid.scale[0]), int(grid.zero_point[0])
    return float(np.float32((-128 - zero) * scale)), float(np.float32((127 - zero) * scale))


def _within(editor: Editor, tensor: str, low: float, high: float) -> bool:
    """Whether the graph itself keeps `tensor` within [low, high]."""
    node = editor.producer(tensor)
    if node is None:
        return False
    if node.op == "Clip":
        ends = [editor.constant(t) if t else None for t in node.inputs[1:3]]
        return len(ends) == 2 and all(e is not None and low <= float(e.reshape(-1)[0]) <= high for e in ends)
    if node.activation.kind == "Clip":
        first, last = limits(node.activation)
        return low <= first and last <= high
    if node.activation.kind != "none" or node.op not in _MOVES:
        return False
    return all(_bounded(editor, t, low, high) for t in (node.inputs if node.op == "Concat" else node.inputs[:1]))


def _bounded(editor: Editor, tensor: str, low: float, high: float) -> bool:
    """Whether `tensor` saturates to a range inside [low, high] already."""
    grid = editor.graph.grids.get(tensor)
    if grid is not None and grid.saturates and grid.scale.size == 1:
        first, last = _ends(grid)
        return low <= first and last <= high
    return _within(editor, tensor, low, high)


def _clip(editor: Editor, node: Node, tensor: str, low: float, high: float) -> Node:
    """A Clip between `node` and the readers of `tensor`, which keeps its name."""
    free = editor.fresh_tensor(f"{tensor}/unclipped", editor.shape(tensor))
    editor.update(node, outputs=[free if t == tensor else t for t in node.outputs])
    ends = [
        editor.add_constant(f"{tensor}/{label}", np.asarray(v, np.float32))
        for label, v in (("low", low), ("high", high))
    ]
    clip = Node(editor.fresh_node(f"{node.name}/range"), "Clip", [free, *ends], [tensor], sources=list(node.sources))
    clip.device, clip.reason = CPU, REASON
    editor.add(clip, node)
    return clip
