"""The float graph in bf16: weights rounded, everything else float32, no calibration. Parameters per channel; lanes are the code generator's."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.bf16 import Bf16AveragePoolParams, Bf16EltwiseParams
from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import ConvParams, MoveParams, NodeParams, QGraph, TensorQuant
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.bf16 import from_float32
from npuforge.hw_kernels.bf16_lanes import in_lanes
from npuforge.hw_kernels.bf16_stage import output_stage, rounded
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.dsl.tile import Dtype, LaneMap
from npuforge.hw_kernels.ops.average_pool.op import window_counts
from npuforge.quant.layers import convolution_weight
from npuforge.quant.regions import Region


def tensor_format(channels: int) -> TensorQuant:
    """A bf16 tensor: real values, no scale."""
    return TensorQuant(np.ones(channels), np.zeros(channels, np.int32), dtype="bf16")


def _params(node: Node, graph: Graph) -> NodeParams:
    if node.op in ("Conv", "ConvTranspose"):
        weight, bias = convolution_weight(node, graph)
        stage = output_stage(node.activation, bias)
        group = int(node.attrs.get("group", 1))
        inputs = weight.shape[3] * group
        zeros = np.zeros(len(bias), np.int32)
        return ConvParams(from_float32(rounded(weight)), zeros, np.zeros(inputs, np.uint16), stage)
    channels = graph.tensors[node.outputs[0]].shape[1]
    if node.op in ("Add", "Sub", "Mul"):
        return Bf16EltwiseParams(output_stage(node.activation, np.zeros(channels)))
    if node.op == "Affine":
        bias = np.asarray(node.attrs["bias"], np.float64)
        return Bf16EltwiseParams(output_stage(node.activation, bias), rounded(node.attrs["scale"]))
    if node.op == "AveragePool":
        return _average(node, graph)
    if operator.get(node).moves_bytes or isinstance(operator.get(node).program, KernelProgram):
        return MoveParams()  # a kernel's numbers are in its program
    raise QuantisationError(
        f"node {node.name}: operator {node.op} has no bf16 semantics; compile with --precision int8, or place it on the CPU partition"
    )


def _average(node: Node, graph: Graph) -> Bf16AveragePoolParams:
    """1/divisor by number of valid taps; a number that no window has gets 0."""
    _, _, h, w = graph.tensors[node.inputs[0]].shape
    valid, divisor = window_counts(node, h, w)
    counts = np.unique(valid)
    if len(counts) == 1:
        return Bf16AveragePoolParams(rounded(np.array([1.0 / divisor.flat[0]])), True)
    kernel_h, kernel_w = node.attrs["kernel_shape"]
    factor = np.zeros(kernel_h * kernel_w)
    for n in counts:
        factor[n - 1] = 1.0 / divisor[valid == n][0]
    return Bf16AveragePoolParams(rounded(factor), False)


def quantize_bf16(graph: Graph) -> QGraph:
    """Every NPU tensor and node of the partitioned graph in bf16."""
    region = Region.of(graph)
    qgraph = QGraph(graph, "bf16")
    for tensor in (*region.entries, *(t for n in region.nodes for t in n.outputs)):
        qgraph.quant[tensor] = tensor_format(graph.tensors[tensor].shape[1])
    for node in region.nodes:
        qgraph.params[node.name] = _params(node, graph)
    return qgraph


def run_node(node: Node, qgraph: QGraph, inputs: list[np.ndarray]) -> np.ndarray:
    """bf16 bits [1, H, W, C] of one node from those of its activation inputs, channel c in lane c."""
    graph = qgraph.graph
    _, channels, height, width = graph.tensors[node.outputs[0]].shape
    maps = [LaneMap.identity(x.shape[3]) for x in inputs]
    sizes = [(int(x.shape[1]), int(x.shape[2])) for x in inputs]
    out, size = LaneMap.identity(int(channels)), (int(height), int(width))
    work = Work(node, qgraph.params[node.name], maps, out, sizes, size, dtype=Dtype.BF16)
    lanes = [in_lanes(x[0], m) for x, m in zip(inputs, maps, strict=True)]
    return operator.get(node).bf16(work, lanes)[..., out.lanes][np.newaxis]
