"""The quantiser: a float graph and its calibration statistics become the integer graph of DESIGN section 4."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.quantization import MoveParams, NodeParams, QGraph, TensorQuant
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.activations import is_curve
from npuforge.hw_kernels.arithmetic import round_half_up
from npuforge.quant import given, layers, stages
from npuforge.quant.balance import choose_alphas
from npuforge.quant.kernels import own_parameters
from npuforge.quant.range_labels import Labels, part_scales, range_labels
from npuforge.quant.ranges import CALIBRATORS, channel_ranges, largest_pre_activation
from npuforge.quant.regions import CONVOLUTIONS, Region, activation_inputs, channel_sources
from npuforge.quant.samples import SampleRun
from npuforge.quant.statistics import Statistics, TensorStatistics, pre_activation

MODES = ("fine", "pow2")
ALGORITHMS = ("weight_rounding", "bias_correction")  # each can be switched off
GIVEN = "the model's own scale"
PRE_ACTIVATION_MAX = 1024.0  # 16 bits with the fewest fraction bits of a table stage


def tensor_statistics(statistics: Statistics, tensor: str, node: str) -> TensorStatistics:
    """Statistics of `tensor`; QuantisationError naming the node if calibration did not see it."""
    known = statistics.tensors.get(tensor)
    if known is None:
        raise QuantisationError(
            f"node {node}: no calibration statistics of tensor {tensor}; calibrate this same graph again"
        )
    return known


def image_tensors(region: Region, preprocess: Preprocess | None) -> set[str]:
    """Tensors that can hold raw pixels: an image input that reaches only convolutions, directly or through pure moves of pixels."""
    if preprocess is None or not preprocess.takes_image:
        return set()
    outside = region.read_outside()
    found: set[str] = set()

    def foldable(tensor: str) -> bool:
        if tensor in outside:
            return False
        for node in region.readers.get(tensor, []):
            if node.op == "Conv":
                continue
            if node.op == "ChannelGather" and min(node.attrs["indices"]) < 0:
                return False
            if node.op not in ("SpaceToDepth", "ChannelGather") or not foldable(node.outputs[0]):
                return False
            if node.op == "ChannelGather" and len(set(node.attrs["indices"])) < len(node.attrs["indices"]):
                return False
        return bool(region.readers.get(tensor))

    def collect(tensor: str) -> None:
        found.add(tensor)
        for node in region.readers[tensor]:
            if node.op != "Conv":
                collect(node.outputs[0])

    for tensor in region.graph.inputs:
        channels = region.graph.tensors[tensor].shape[1:2]
        if (
            preprocess.input not in ("", tensor)
            or channels != (len(preprocess.mean),)
            or tensor not in region.readers
            or not foldable(tensor)
        ):
            continue
        if given.takes_pixels(region, preprocess):
            collect(tensor)
    return found


def image_quant(preprocess: Preprocess) -> TensorQuant:
    """Raw pixels: q = pixel - 128, real = (q + 128 - mean)/std; the border byte is clamp(round_half_up(mean) - 128)."""
    mean, std = np.asarray(preprocess.mean, np.float64), np.asarray(preprocess.std, np.float64)
    if not (std > 0).all():
        raise QuantisationError(f"preprocessing: std must be positive, found {std.tolist()}")
    border = np.clip(round_half_up(mean) - 128, -128, 127).astype(np.int32)
    return TensorQuant(1.0 / std, border, image_mean=mean)


def carried(node: Node, graph: Graph, quant: dict[str, TensorQuant]) -> TensorQuant:
    """Quantisation of the output of an operator that moves bytes. Channels of real 0 get a scale too small to matter, z = 0."""
    sources = channel_sources(node, graph)
    known = [quant[tensor].scale[channel] for tensor, channel in sources if channel >= 0]
    small = min(known, default=1.0) / stages.SCALE_RANGE
    scale = np.array([quant[t].scale[c] if c >= 0 else small for t, c in sources])
    zero = np.array([quant[t].zero_point[c] if c >= 0 else 0 for t, c in sources], np.int32)
    means = [quant[t].image_mean for t in activation_inputs(node, graph)]
    mean = None
    if any(m is not None for m in means):
        mean = np.array([np.asarray(quant[t].image_mean)[c] for t, c in sources])
    return TensorQuant(scale, zero, image_mean=mean)


def quantize(
    graph: Graph,
    statistics: Statistics,
    mode: str = "fine",
    calibrator: str = "minmax",
    alpha: float | None = None,
    preprocess: Preprocess | None = None,
    algorithms: Sequence[str] = ALGORITHMS,
) -> QGraph:
    """The integer graph.

    `alpha` is the exponent of the per-channel scales in `fine` mode, None for a choice per tensor. `preprocess` lets an image input enter as
    raw pixels (`fine` mode); without it every input is an ordinary quantised tensor.
    `algorithms` are the members of `ALGORITHMS` to use, where calibration gathered what they need (covariances, samples).
    """
    if mode not in MODES:
        raise QuantisationError(f"mode {mode} is not known; choose one of {', '.join(MODES)}")
    if calibrator not in CALIBRATORS:
        raise QuantisationError(f"calibrator {calibrator} is not known; choose one of {', '.join(CALIBRATORS)}")
    unknown = [a for a in algorithms if a not in ALGORITHMS]
    if unknown:
        raise QuantisationError(f"algorithm {unknown[0]} is not known; choose among {', '.join(ALGORITHMS)}")
    region = Region.of(graph)
    if mode == "pow2":
        from npuforge.quant.pow2 import quantize_pow2

        return quantize_pow2(region, statistics, calibrator, algorithms)
    return _quantize_fine(region, statistics, calibrator, alpha, preprocess, algorithms)


def _quantize_fine(
    region: Region,
    statistics: Statistics,
    calibrator: str,
    alpha: float | None,
    preprocess: Preprocess | None,
    algorithms: Sequence[str],
) -> QGraph:
    graph = region.graph
    qgraph = QGraph(graph, "fine")
    images = image_tensors(region, preprocess)
    ranges = _ranges(region, statistics, calibrator, images)
    labels: Labels = {}
    if alpha is not None:
        alphas = dict.fromkeys(ranges, alpha)
    elif graph.grids:
        alphas = dict.fromkeys(ranges, 0.0)  # one scale per tensor: given integer weights stay what they are
    else:
        image = None if preprocess is None else image_quant(preprocess)
        covariances = statistics.inputs if "weight_rounding" in algorithms else {}
        labels = range_labels(graph, statistics)
        alphas = choose_alphas(region, statistics, ranges, image, images, covariances, labels)
    for tensor in region.entries:
        if tensor in images:
            assert preprocess is not None
            qgraph.quant[tensor] = image_quant(preprocess)
        elif tensor in graph.grids:
            qgraph.quant[tensor] = given.tensor_quant(graph, tensor)
            qgraph.notes[tensor] = GIVEN
        else:
            low, high = ranges[tensor]
            scale = part_scales(low, high, alphas[tensor], labels.get(tensor))
            qgraph.quant[tensor] = TensorQuant(scale, stages.zero_points(low, scale))
            qgraph.notes[tensor] = f"alpha={alphas[tensor]:g}"
    samples = SampleRun(region, qgraph, statistics) if "bias_correction" in algorithms else None
    for node in region.nodes:
        output = node.outputs[0]
        if operator.get(node).moves_bytes:
            qgraph.params[node.name] = MoveParams()
            qgraph.quant[output] = carried(node, graph, qgraph.quant)
        else:
            if output in graph.grids:
                out = given.output(graph, node)
            else:
                low, high = ranges[output]
                out = layers.Output(part_scales(low, high, alphas[output], labels.get(output)), low)
                if is_curve(node.activation):
                    before = tensor_statistics(statistics, pre_activation(output), node.name)
                    out.largest_pre = largest_pre_activation(before, node.activation)
            chosen = layers.Algorithms()
            if node.op in CONVOLUTIONS:
                chosen.weight_rounding = statistics.inputs.get(node.name) if "weight_rounding" in algorithms else None
                chosen.bias_correction = samples.mean_shift(node.inputs[0]) if samples is not None else None
            qgraph.params[node.name], qgraph.quant[output] = layer(node, qgraph, out, chosen)
            qgraph.notes[node.name] = _note(node, out, qgraph.quant[output], alphas.get(output))
            if is_curve(node.activation) and out.largest_pre >= PRE_ACTIVATION_MAX:
                qgraph.notes[node.name] += (
                    f", pre-activation clipped at {PRE_ACTIVATION_MAX:g} (calibrated {out.largest_pre:g})"
                )
        if samples is not None:
            samples.run(node)
    return qgraph


def _note(node: Node, out: layers.Output, quant: TensorQuant, alpha: float | None) -> str:
    """What was chosen for the output, and whether the weights are the model's own."""
    text = GIVEN if alpha is None else f"alpha={alpha:g}"
    if alpha is None and (quant.scale != out.scale).any():
        text += ", raised to hold the requantisation factor"
    return text


def _ranges(
    region: Region, statistics: Statistics, calibrator: str, images: set[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Channel ranges of every tensor that has scales of its own."""
    sources = [(t, region.readers[t][0].name) for t in region.entries]
    sources += [(n.outputs[0], n.name) for n in region.nodes if not operator.get(n).moves_bytes]
    return {
        tensor: channel_ranges(tensor_statistics(statistics, tensor, owner), tensor, calibrator)
        for tensor, owner in sources
        if tensor not in images and tensor not in region.graph.grids
    }


def layer(
    node: Node, qgraph: QGraph, out: layers.Output, algorithms: layers.Algorithms
) -> tuple[NodeParams, TensorQuant]:
    """Parameters of a node that computes."""
    graph = qgraph.graph
    inputs = [qgraph.quant[t] for t in activation_inputs(node, graph)]
    if node.op in ("Conv", "ConvTranspose"):
        return layers.convolution(node, graph, inputs[0], out, algorithms)
    if node.op in ("Add", "Sub", "Mul"):
        return layers.two_operands(node, inputs[0], inputs[1], out)
    if node.op == "Affine":
        return layers.affine(node, inputs[0], out)
    if node.op == "AveragePool":
        return layers.average_pool(node, graph, inputs[0], out)
    return own_parameters(node, inputs, TensorQuant(out.scale, stages.zero_points(out.low, out.scale)), qgraph)
