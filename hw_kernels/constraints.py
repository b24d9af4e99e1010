"""Placement constraints shared by several operators. A constraint's docstring is the message a user sees and the line in SUPPORTED_OPS."""

from __future__ import annotations

from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels.activations import is_supported


def _shapes(node: Node, graph: Graph) -> list[tuple[int, ...]]:
    return [
        graph.tensors[t].shape for t in (*node.inputs, *node.outputs) if t in graph.tensors and t not in graph.constants
    ]


def feature_maps(node: Node, graph: Graph) -> bool:
    """inputs and outputs are 4-dimensional float feature maps (N, C, H, W) with N = 1"""
    tensors = [
        graph.tensors[t] for t in (*node.inputs, *node.outputs) if t in graph.tensors and t not in graph.constants
    ]
    return all(len(t.shape) == 4 and t.shape[0] == 1 and t.dtype == "float32" for t in tensors)


def map_sizes(node: Node, graph: Graph) -> bool:
    """height, width and channels are between 1 and 65535"""
    return all(1 <= size <= 65535 for shape in _shapes(node, graph) for size in shape[1:])


def window_sizes(node: Node, graph: Graph) -> bool:
    """kernel height and width are at most 65535, strides and dilations at most 255, pads at most 32767"""
    attrs = node.attrs
    return (
        all(1 <= k <= 65535 for k in attrs["kernel_shape"])
        and all(1 <= s <= 255 for s in attrs.get("strides", [1, 1]))
        and all(1 <= d <= 255 for d in attrs.get("dilations", [1, 1]))
        and all(0 <= p <= 32767 for p in attrs.get("pads", [0, 0, 0, 0]))
    )


def constant_weights(node: Node, graph: Graph) -> bool:
    """weights and bias are constants"""
    return len(node.inputs) == 3 and all(t in graph.constants for t in node.inputs[1:])


def known_activation(node: Node, graph: Graph) -> bool:
    """the fused activation is piecewise-linear or a curve that is constant or the argument itself outside [-8, 8) (Elu: alpha up to 15)"""
    return is_supported(node.activation)


def no_activation(node: Node, graph: Graph) -> bool:
    """no activation is fused behind the operator"""
    return node.activation.kind == "none"
