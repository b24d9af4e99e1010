"""Which nodes that other hardware than our NPU takes stay in float on the CPU all the same: what decodes a head's outputs. Asked by the partition step."""

from __future__ import annotations

from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.rewrite import Editor

CPU = "CPU"
TAIL_REASON = (
    "no convolution follows: behind the last one only pools, sums, products, concatenations, resizes and their ReLU are taken, of values that the DPU computed; "
    "all else runs in float on the CPU, so that scores and boxes keep their resolution"
)
FLOAT_REASON = "no convolution follows, and it reads what the CPU computes in float, whose resolution it keeps"
DISTRIBUTION_REASON = "a head's decode written as a convolution, the mean of a distribution: in float on the CPU boxes keep their resolution"
_ARRANGING = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")


def decode_reason(node: Node, editor: Editor, in_tail: bool) -> str:
    """Why a node that other hardware takes belongs to a float decode on the CPU. `in_tail`: of Editor.tail."""
    if in_tail:
        from_cpu = any((p := editor.producer(t)) is not None and p.device == CPU for t in node.inputs)
        return FLOAT_REASON if from_cpu else ""
    if node.op != "Conv" or editor.shape(node.outputs[0])[1] != 1:
        return ""
    producer = editor.producer(node.inputs[0])
    while producer is not None and producer.op in _ARRANGING:
        producer = editor.producer(producer.inputs[0])
    return DISTRIBUTION_REASON if producer is not None and producer.op == "Softmax" else ""
