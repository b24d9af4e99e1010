"""Why a node of an operator that the NPU has is not in the form that it takes: the reason that `inspect` shows, and what to change."""

from __future__ import annotations

from npuforge.compile.ir.graph import Graph, Node
from npuforge.quant.regions import CONVOLUTIONS

RESIZE = "the NPU resizes height and width by nearest or linear"
AXES = "the NPU works over height and width of one map N, C, H, W"
WEIGHTS = "the NPU takes constant weights and biases"
POSITIONS = "the NPU gives the largest values alone"
JOINS = "the NPU joins computed tensors"

# By beginning of the reason.
REMEDIES = {
    RESIZE: "export it with mode nearest or linear and the sizes or scales of height and width, without antialias or a region",
    AXES: "use the two-dimensional operator (one-dimensional ones are taken as such of height 1); further axes stay on the CPU",
    WEIGHTS: "make its weights and bias constants of the model (export in eval mode, with constants folded)",
    POSITIONS: "leave out the second output (return_indices), or the unpooling that reads it",
    JOINS: "leave the constant out and add its share behind the next convolution, or give it as a further input of the network",
}


def not_canonical(node: Node, graph: Graph) -> str:
    """The reason of a Conv, pool, Concat or Resize; empty where the operator's own text says it."""
    tensors = graph.tensors
    if node.op in (*CONVOLUTIONS, "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"):
        shape = list(tensors[node.inputs[0]].shape)
        if len(shape) != 4:
            return f"{AXES}; this one reads {shape}"
        if any(node.outputs[1:]):
            return f"{POSITIONS}; this one gives where they stood as well"
        computed = [t for t in node.inputs[1:] if t and t not in graph.constants]
        return f"{WEIGHTS}; '{computed[0]}' of this one is computed" if computed else ""
    if node.op == "Concat":
        given = [t for t in node.inputs if t in graph.constants]
        return f"{JOINS}; '{given[0]}' of this one is a constant" if given else ""
    if node.op == "Resize":
        return f"{RESIZE}; this one asks for {_resize_wish(node, graph)}"
    return ""


def _resize_wish(node: Node, graph: Graph) -> str:
    attrs = node.attrs
    before, after = (list(graph.tensors[t].shape) for t in (node.inputs[0], node.outputs[0]))
    if attrs.get("mode", "nearest") not in ("nearest", "linear"):
        return f"mode {attrs['mode']}"
    if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return "a region of the map (tf_crop_and_resize)"
    if attrs.get("antialias", 0):
        return "antialias"
    if len(before) != 4 or before[:2] != after[:2]:
        return f"{after} from {before}"
    return "sizes by axes or by an aspect ratio policy"
