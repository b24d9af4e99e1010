"""The scales that a quantised model brings (`Graph.grids`, `Node.weight_scale`): which tensors lack one, and what the quantiser makes of the others."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.activations import curve, is_curve
from npuforge.quant import layers
from npuforge.quant.regions import Region

CURVE_MARGIN = 0.5  # a curve that tends to its argument reaches y at an argument below y + 0.5


def missing_scales(region: Region, images: set[str]) -> list[str]:
    """Tensors whose scales only calibration can tell, in order: neither given by the model, nor raw pixels, nor carried from another tensor."""
    wanted = [t for t in region.entries if t not in images]
    wanted += [n.outputs[0] for n in region.nodes if not operator.get(n).moves_bytes]
    return [t for t in wanted if t not in region.graph.grids]


def takes_pixels(region: Region, preprocess: Preprocess) -> bool:
    """Whether an image may enter as raw pixels: not where given integer weights would then differ between the colours."""
    given = any(n.weight_scale is not None for n in region.nodes)
    return not given or len(set(preprocess.std)) == 1


def tensor_quant(graph: Graph, tensor: str) -> TensorQuant:
    """Scales and zero points of a tensor in `graph.grids`, one per channel."""
    grid, channels = graph.grids[tensor], graph.tensors[tensor].shape[1]
    return TensorQuant(
        np.broadcast_to(grid.scale, (channels,)).copy(),
        np.broadcast_to(grid.zero_point, (channels,)).astype(np.int32),
    )


def output(graph: Graph, node: Node) -> layers.Output:
    """The wanted scales of a node's output. A curve's pre-activation must reach the largest output that the scales hold."""
    quant = tensor_quant(graph, node.outputs[0])
    found = layers.Output(quant.scale, (-128 - quant.zero_point) * quant.scale)
    if is_curve(node.activation):
        bent = curve(node.activation)
        found.largest_pre = bent.largest_tail
        if bent.high is None:
            highest = float(((127 - quant.zero_point) * quant.scale).max()) + CURVE_MARGIN
            found.largest_pre = max(highest, bent.largest_tail)
    return found
