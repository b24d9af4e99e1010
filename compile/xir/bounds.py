"""Upper bounds of shapes that only the data decide (boxes that survive NonMaxSuppression): an .xmodel's tensors are static.

The runtime gives as many rows as there are; the file declares the most there can be, and `npuforge_open_shape` what is open.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.steps.onnx_nodes import infer_node
from npuforge.compile.xir.builder import BOOL
from npuforge.compile.xir.model import XModel
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
            for name, shape in zip(node.outputs, output_bounds(node, graph, tensors), strict=True):
                if name:
                    tensors[name] = replace(tensors[name], shape=shape)
    return replace(graph, tensors=tensors)


def output_bounds(node: Node, graph: Graph, tensors: dict[str, TensorInfo]) -> list[Shape]:
    """The most that a node's outputs can have where `tensors` has its inputs' bounds; `graph`: the network's own shapes. UnsupportedError: there is none."""
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
    if node.op in ("Slice", "Split"):
        _refuse_from_the_end(node, graph, x)
    if "::" in node.op:
        found = operator.registry()[node.op].largest(node, [tensors[t].shape if t else () for t in node.inputs])
        return [_known(node, tensors, *pair) for pair in zip(node.outputs, found, strict=False)]
    result: list[Shape] = []
    try:
        inferred = infer_node(node, tensors, graph.constants, graph.opset)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise UnsupportedError(
            f"node '{node.name}' ({node.op}): the most rows that its inputs can have do not fit each other ({first}); export the network without this node "
            "(post-processing is the runtime's head)"
        ) from error
    for name, (shape, _) in zip(node.outputs, inferred, strict=True):
        known = shape if shape is not None else tensors[name].shape if name else ()
        same_rank = len(known) == len(x)
        dims = tuple(
            int(d) if d is not None and d >= 0 else x[i] if same_rank and node.op in _AT_MOST_INPUT else OPEN
            for i, d in enumerate(known)
        )
        result.append(_known(node, tensors, name, dims))
    return result


def _refuse_from_the_end(node: Node, graph: Graph, x: Shape) -> None:
    """UnsupportedError where a node cuts rows that the data decide so that fewer rows may leave more than the most there can be (limits from the end), or by
    sizes that only some numbers of rows have."""
    given = graph.tensors[node.inputs[0]].shape
    values = [graph.constants.get(t) for t in node.inputs[1:]]
    if node.op == "Split":
        axis = int(node.attrs.get("axis", 0)) % len(x)
        sizes = node.attrs.get("split") if not values else values[0]
        wrong = given[axis] == OPEN and sizes is not None and int(np.sum(sizes)) != x[axis]
    else:
        starts, ends, axes, steps = (
            [int(v) for v in np.ravel(p)] if p is not None else None for p in [*values, None, None][:4]
        )
        limits = zip(
            range(len(x)) if axes is None else axes, starts or [], ends or [], steps or [1] * len(x), strict=False
        )
        cuts = {a % len(x): slice(start, end, step) for a, start, end, step in limits}
        left = {
            a: [len(range(*cut.indices(n))) for n in range(x[a] + 1)] for a, cut in cuts.items() if given[a] == OPEN
        }
        wrong = any(max(counts) != counts[-1] for counts in left.values())
    if wrong:
        raise UnsupportedError(
            f"node '{node.name}' ({node.op}): cuts rows whose number the data decide, up to {list(x)}, from their end or into fixed parts; "
            "export the network without this node (post-processing is the runtime's head)"
        )


def _known(node: Node, tensors: dict[str, TensorInfo], name: str, shape: Shape) -> Shape:
    """The shape; UnsupportedError where it still is open."""
    if OPEN in shape:
        raise UnsupportedError(
            f"node '{node.name}' ({node.op}): the shape {list(tensors[name].shape)} of its output '{name}' depends on the data without an upper "
            "bound, and an .xmodel holds static shapes; export the network without this node (post-processing is the runtime's head)"
        )
    return tuple(int(d) for d in shape)


_AT_MOST_INPUT = ("Slice", "TopK")  # along each axis no longer than the input


def untold_rows(model: XModel) -> list[str]:
    """Notices where the plug-ins cannot tell the rows that are there by what a tensor holds: 8-bit integers, all values of which a row may hold; two open axes,
    one of which is empty."""
    eight = [
        f"'{op.tensor.name}' ({op.tensor.dtype.lower().removeprefix('x')})"
        for op in model.ops
        if "npuforge_open_shape" in op.attrs and op.tensor.bit_width == 8 and BOOL not in op.tensor.attrs
    ]
    two = [f"'{op.tensor.name}'" for op in model.ops if list(op.get("npuforge_open_shape", [])).count(OPEN) > 1]
    notices = []
    if two:
        notices.append(
            f"the data decide two axes of {', '.join(two)}: through VART, where one of them is empty, the other's size is lost; npuforge's own session has it"
        )
    return notices + [
        f"rows of {', '.join(eight)}, whose number the data decide, are told by what they hold: through VART last rows of nothing but 0 (int8: -1) are lost; "
        "use int32 or int64 there, or run the network by npuforge"
    ] * bool(eight)
