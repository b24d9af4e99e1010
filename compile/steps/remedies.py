"""What to change in a model so that a node comes over to the NPU: one sentence for every node that the partition step leaves on the CPU."""

from __future__ import annotations

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.steps.keep_ranges import REASON as SATURATES
from npuforge.compile.steps.partition import (
    CONSTANT_REASON,
    FLOAT_REASON,
    HEAD_REASON,
    UNLIKE_REASON,
    concatenates_channels,
    is_canonical,
    is_worth_the_npu,
)
from npuforge.compile.steps.reasons import REMEDIES

# What the NPU has instead of an operator that it lacks.
INSTEAD = {
    "ArgMax": "leave it out and take the largest class on the application's side",
    "BatchNormalization": "put it directly behind a convolution, into which it is folded",
    "Cast": "give the network an input of real numbers; the application then hands over the same values",
    "DequantizeLinear": "give the network an input of real numbers and keep a pair of QuantizeLinear and DequantizeLinear behind it",
    "DepthToSpace": "give it fewer channels (2,600 at most), or use Resize (nearest) and a convolution",
    "Div": "multiply by a constant instead of dividing by a computed tensor",
    "Einsum": "write it as 1 x 1 convolutions where one factor is constant",
    "Exp": "move it behind the last convolution (into the head), or use an activation of `npuforge ops` instead",
    "Gemm": "give it constant weights, or use a 1 x 1 convolution on a 1 x 1 map",
    "GroupNormalization": "train with BatchNormalization behind the convolutions",
    "InstanceNormalization": "train with BatchNormalization behind the convolutions",
    "LayerNormalization": "train with BatchNormalization behind the convolutions",
    "LpNormalization": "move it behind the last convolution",
    "MatMul": "give one factor constant weights (a 1 x 1 convolution); products of two computed tensors (attention) stay on the CPU",
    "Max": "use Relu or Clip where one side is constant",
    "Min": "use Clip where one side is constant",
    "Pad": "pad with zeros in front of a convolution, which takes the pad over",
    "Pow": "use Mul of the tensor with itself for squares",
    "ReduceMean": "use GlobalAveragePool over height and width",
    "Reduce": "use GlobalAveragePool over height and width",
    "Reshape": "keep feature maps as N, C, H, W up to the last convolution (channel shuffles by split and concat are recognised)",
    "Slice": "cut the image before it is given, or give the convolution in front smaller pads (slices of channels, and every second pixel, are the NPU's)",
    "Softmax": "move it behind the last convolution, or use a Sigmoid gate",
    "TopK": "move it behind the last convolution",
    "Transpose": "keep feature maps as N, C, H, W up to the last convolution",
}
HEAD = (
    "nothing, it is kept in float on purpose; to shorten the CPU's part, export the network without its decoding and declare the head "
    "(docs/heads.md)"
)


def remedy(node: Node, graph: Graph) -> str:
    """Empty for a node on the NPU."""
    if node.device != "CPU":
        return ""
    if node.reason == HEAD_REASON:
        return HEAD
    if node.reason == FLOAT_REASON:
        return "nothing in the model: give calibration images (--calib)"
    if node.reason == UNLIKE_REASON:
        return "quantise with --mode fine, which has a scale per channel; or give boxes and scores outputs of their own"
    if node.reason.startswith(_text(is_worth_the_npu)):
        return "nothing, the CPU is faster here; it comes over once the CPU nodes around it do"
    if node.reason == _text(concatenates_channels):
        return "concatenate along the channels (axis 1)"
    if node.reason == SATURATES:
        return "nothing, it stands for the activation or the range that the quantiser put into a pair's scale"
    for beginning, text in REMEDIES.items():
        if node.reason.startswith(beginning):
            return text
    if node.op == "MatMul" and any(t in graph.constants for t in node.inputs):
        return "nothing where its products are few (the CPU is quicker); else a 1 x 1 convolution on a map N, C, H, W"
    if node.reason.startswith(CONSTANT_REASON):
        return "keep feature maps as N, C, H, W, or put it directly behind a product with constant weights"
    if node.op in INSTEAD:
        return INSTEAD[node.op]
    if node.reason == _text(is_canonical):
        return "make its parameters constants of the model, one value or one per channel"
    if node.reason.startswith("the NPU has no operator"):
        return f"replace {node.op} by operators of `npuforge ops`, or move it behind the last convolution"
    return f"change the node so that {node.reason}"


def _text(constraint: object) -> str:
    return " ".join((constraint.__doc__ or "").split())
