"""Upper bounds of shapes that only the data decide (boxes that survive NonMaxSuppression): an .xmodel's tensors are static.

The runtime gives as many rows as there are; the file declares the most there can be, and `npuforge_open_shape` what is open.
"""

from __future__ import annotations

import math
from dataclasses import replace

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.steps.onnx_nodes import infer_node
from npuforge.hw_kernels import operator

OPEN = -1
Shape = tuple[int, ...]


def bounded(graph: Graph) -> Graph:
    """The graph with every open dimension replaced by its upper bound; the graph itself where there is none."""
    if not any(OPEN in t.shape for t in graph.tensors.values()):
        return graph
    tensors = dict(graph.tensors)
    for node in graph.nodes:
        if any(t and OPEN in tensors[t].shape for t in node.outputs):
            for name, shape in zip(node.outputs, _output_bounds(node, graph, tensors), strict=True):
                if name:
                    tensors[name] = replace(tensors[name], shape=shape)
    return replace(graph, tensors=tensors)


def _output_bounds(node: Node, graph: Graph, tensors: dict[str, TensorInfo]) -> list[Shape]:
    x = tensors[node.inputs[0]].shape
    if node.op == "NonMaxSuppression":
        batch, classes, boxes = tensors[node.inputs[1]].shape
        most = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        kept = boxes if most is None else min(boxes, int(most.reshape(-1)[0]))
        return [(batch * classes * max(kept, 1), 3)]
    if node.op == "NonZero":
        return [(max(len(x), 1), math.prod(x))]
    if node.op in ("Compress", "Unique"):
        return [tuple(math.prod(x) if d == OPEN else d for d in tensors[t].shape) if t else () for t in node.outputs]
    if "::" in node.op:
        found = operator.registry()[node.op].largest(node, [tensors[t].shape if t else () for t in node.inputs])
        return [_known(node, tensors, *pair) for pair in zip(node.outputs, found, strict=False)]
    result: list[Shape] = []
    for name, (shape, _) in zip(node.outputs, infer_node(node, tensors, graph.constants, graph.opset), strict=True):
        known = shape if shape is not None else tensors[name].shape if name else ()
        same_rank = len(known) == len(x)
        dims = tuple(
            int(d) if d is not None and d >= 0 else x[i] if same_rank and node.op in _AT_MOST_INPUT else OPEN
            for i, d in enumerate(known)
        )
        result.append(_known(node, tensors, name, dims))
    return result


def _known(node: Node, tensors: dict[str, TensorInfo], name: str, shape: Shape) -> Shape:
    """The shape; UnsupportedError where it still is open."""
    if OPEN in shape:
        raise UnsupportedError(
            f"node '{node.name}' ({node.op}): the shape {list(tensors[name].shape)} of its output '{name}' depends on the data without an upper "
            "bound, and an .xmodel holds static shapes; export the network without this node (post-processing is the runtime's head)"
        )
    return tuple(int(d) for d in shape)


_AT_MOST_INPUT = ("Slice", "TopK")  # along each axis no longer than the input
