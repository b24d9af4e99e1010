"""A whole float network as one CPU partition: the `.bin` that the C++ executor runs without the NPU, ONNX Runtime or calibration.

`host_program(graph)` takes the graph behind any of the steps import, fold or fuse. The float side of conformance and of random-graph tests.
"""

from __future__ import annotations

import json
from pathlib import Path

import onnx

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Graph, Partition
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.generate import TOOL
from npuforge.compile.steps.host_types import check_types
from npuforge.compile.steps.import_onnx import Shapes, import_onnx
from npuforge.compile.steps.meta import constant_sections, cpu_node
from npuforge.compile.steps.partition import cpu_operators
from npuforge.compile.steps.verify import verify
from npuforge.hw_kernels import arch as arches
from npuforge.hw_kernels.isa.binfile import BinWriter, Dtype


def float_graph(source: str | Path | onnx.ModelProto, shapes: Shapes | None = None) -> Graph:
    """Import, fold and fuse, verified after each step: the network in canonical operators, still in float."""
    graph = import_onnx(source, shapes).graph
    verify(graph, "import")
    for step, name in ((fold, "fold"), (fuse, "fuse")):
        graph = step(graph)
        verify(graph, name)
    return graph


def host_program(graph: Graph) -> bytes:
    """The `.bin`. UnsupportedError names the first node that the C++ executor has no operator for, or not for its element types."""
    for node in graph.nodes:
        if node.op not in cpu_operators():
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}): the CPU partition has no {node.op}; export the network without it, or add "
                "hw_kernels/ops/<op>/cpu.hpp"
            )
        check_types(node, graph)
    graph.partitions = [Partition("CPU", [n.name for n in graph.nodes], list(graph.inputs), list(graph.outputs))]
    constants, sections = constant_sections(graph)
    arch = arches.load("nf-b1024")  # none of its engines is used; a file names one
    names = dict.fromkeys(t for t in (*graph.inputs, *graph.activations()) if t)
    meta = {
        "format": 1,
        "tool": TOOL,
        "name": graph.name,
        "mode": "fine",
        "arch": arch.to_json(),
        "fingerprint": arch.fingerprint,
        "pool_size": 0,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "tensors": {
            t: {"shape": [int(d) for d in graph.tensors[t].shape], "dtype": graph.tensors[t].dtype, "npu": None}
            for t in names
        },
        "input_layout": {t: graph.input_layout.get(t, "NCHW") for t in graph.inputs},
        "partitions": [
            {
                "device": "CPU",
                "inputs": list(graph.inputs),
                "outputs": list(graph.outputs),
                "nodes": [cpu_node(n) for n in graph.nodes],
            }
        ],
        "constants": constants,
        "layers": [],
    }
    writer = BinWriter()
    for name, dtype, data in sections:
        writer.add(name, dtype, data)
    writer.add("instructions", Dtype.INSTRUCTIONS, b"")
    writer.add("meta", Dtype.JSON, json.dumps(meta, allow_nan=False).encode())
    return writer.to_bytes()
