"""Which element types the CPU partition computes in: what the C++ would refuse when a network starts is refused here. Used by the partition step."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.hw_kernels import operator as operators

RUNTIME_TYPES = ("float32", "int64", "int32", "bool", "uint8", "int8")  # board_runtime/include/npuforge/cpu.hpp, Type
_WIDER = {"int16": "int32", "uint16": "int32", "int4": "int8", "uint4": "uint8"}


def check_types(node: Node, graph: Graph) -> None:
    """UnsupportedError naming node, tensor and type where the CPU partition cannot run `node` for an element type."""
    for tensor in [t for t in (*node.inputs, *node.outputs) if t]:
        found = _type(tensor, graph)
        if found not in RUNTIME_TYPES:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}): tensor '{tensor}' is {found}; the CPU partition computes in {', '.join(RUNTIME_TYPES[:-1])} "
                f"and {RUNTIME_TYPES[-1]}; export the network with {_WIDER.get(found, 'int64')} there"
            )
    operator = operators.find(node.op)
    for position, tensor in enumerate(node.inputs):
        takes = operator.host_types_of(node, position) if operator is not None and tensor else ()
        if takes and _type(tensor, graph) not in takes:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}): tensor '{tensor}' is {_type(tensor, graph)}; the CPU partition computes this {node.op} in "
                f"{' or '.join(takes)}; export the network with a Cast to {takes[0]} in front of the node, and one back behind it where the type matters"
            )
    if node.activation.kind != "none" and graph.tensors[node.outputs[0]].dtype != "float32":
        raise UnsupportedError(
            f"node '{node.name}' ({node.op}): {node.activation.kind} of tensor '{node.outputs[0]}', which is {graph.tensors[node.outputs[0]].dtype}; the CPU "
            "partition computes it in float32; export the network with a Cast to float32 in front of the node"
        )


def _type(tensor: str, graph: Graph) -> str:
    """numpy name of an element type; floats of constants are stored as float32."""
    value = graph.constants.get(tensor)
    if value is None:
        return graph.tensors[tensor].dtype
    return "float32" if np.issubdtype(value.dtype, np.floating) else value.dtype.name
