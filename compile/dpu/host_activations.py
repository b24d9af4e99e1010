"""Activations alone, as a DPU build leaves them to the CPU, in the file: operators of XIR that the vendor's own CPU runner knows, in place of an Affine, which only our
plug-in does. SiLU is x · sigmoid(x). The integer graph keeps its Affine; both compute the same."""

from __future__ import annotations

from dataclasses import replace

from npuforge.compile.dpu.limits import activation_word, is_plain
from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo


def in_xir_terms(graph: Graph) -> Graph:
    """The graph with those nodes on the CPU written out; nodes are new objects where they change."""
    tensors, nodes = dict(graph.tensors), list[Node]()
    for node in graph.nodes:
        word = activation_word(node.activation)
        if node.device == "NPU" or node.op != "Affine" or not is_plain(node):
            nodes.append(node)
        elif word == "Silu":
            output, gate = node.outputs[0], f"{node.outputs[0]}/gate"
            tensors[gate] = TensorInfo(gate, graph.tensors[output].shape, graph.tensors[output].dtype)
            nodes.append(_alone(node, "Sigmoid", f"{node.name}/sigmoid", list(node.inputs), gate))
            nodes.append(_alone(node, "Mul", node.name, [*node.inputs, gate], output))
        elif word in ("Sigmoid", "Tanh", "Relu"):
            nodes.append(_alone(node, word, node.name, list(node.inputs), node.outputs[0]))
        elif word == "LeakyRelu":
            alone = _alone(node, word, node.name, list(node.inputs), node.outputs[0])
            nodes.append(replace(alone, attrs={"alpha": float(node.activation.alpha)}))
        else:
            nodes.append(node)
    return replace(graph, nodes=nodes, tensors=tensors)


def _alone(node: Node, op: str, name: str, inputs: list[str], output: str) -> Node:
    return replace(node, op=op, name=name, inputs=inputs, outputs=[output], attrs={}, activation=Activation())
