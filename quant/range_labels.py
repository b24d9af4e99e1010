"""In `fine` mode: which channels of a tensor come from which part of a concatenation of unlike ranges, and the scales of such parts.

A tensor's scales lie between its range R and every channel's own. Beside boxes to 640 that leaves scores to 0.05 next to nothing, and the choice of alpha
does not see it: it weighs noise over all channels, nearly all of which is the boxes'. A part that would keep fewer than `FEWEST_STEPS` steps
gets the scales that it would have as a tensor by itself.
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels import operator
from npuforge.quant import stages
from npuforge.quant.layers import convolution_weight, per_output
from npuforge.quant.mixed_ranges import FEW_STEPS, ROUNDING, UNLIKE, largest, like_groups
from npuforge.quant.regions import CONVOLUTIONS, PAIRS, activation_inputs, channel_sources
from npuforge.quant.statistics import Statistics, TensorStatistics, pre_activation

FEWEST_STEPS = 128  # of 255: a part left with fewer of the common scales gets its own; where ranges are unlike by 4 (alpha 0.5) to 16 (0.75)

Labels = dict[str, np.ndarray]  # tensor: int64 [C], equal for channels of one part; tensors of one part are not in it


def range_labels(graph: Graph, statistics: Statistics) -> Labels:
    """The labels of every tensor that joins unlike ranges, or that such a tensor reaches channel by channel. Behind other CPU operators the measured ranges of
    the channels say which are one part."""
    labels: Labels = {}
    joined: set[str] = set()  # what the CPU computes of tensors with labels, or of a concatenation of its own
    for node in graph.nodes:
        found = _output_labels(node, graph, statistics, labels)
        if node.device == "CPU" and (node.op == "Concat" or any(t in labels or t in joined for t in node.inputs)):
            joined.update(t for t in node.outputs if t)
            for tensor in node.outputs if found is None else ():
                _keep(labels, tensor, _measured(tensor, statistics))
        _keep(labels, node.outputs[0], found)
    return labels


def _keep(labels: Labels, tensor: str, found: np.ndarray | None) -> None:
    if found is not None and np.ptp(found) > 0:
        labels[tensor] = found


def _measured(tensor: str, statistics: Statistics) -> np.ndarray | None:
    """Channels of a tensor that enters the NPU, in groups of like ranges; None where nothing was measured."""
    seen = statistics.tensors.get(tensor)
    return None if seen is None else _grouped([float(v) for v in largest(seen)])


def _grouped(sizes: list[float]) -> np.ndarray:
    """The number of its group of like ranges, for every position."""
    found = np.zeros(len(sizes), np.int64)
    for label, group in enumerate(like_groups(sizes)):
        found[group] = label
    return found


def _output_labels(node: Node, graph: Graph, statistics: Statistics, labels: Labels) -> np.ndarray | None:
    """Labels of a node's output, None where it has none or the operator mixes channels in a way that no rule here knows."""
    if node.op == "Concat":
        return _joined(node, graph, statistics, labels)
    inputs = activation_inputs(node, graph)
    if not any(t in labels for t in inputs):
        return None
    if node.op in CONVOLUTIONS:
        return _read_by(node, graph, labels[inputs[0]]) if all(t in graph.constants for t in node.inputs[1:]) else None
    if node.op in PAIRS:
        channels = graph.tensors[node.outputs[0]].shape[1]
        known = [labels[t] for t in inputs if t in labels]
        return _combined(np.stack(known, axis=1)) if all(len(k) == channels for k in known) else None
    if node.op in ("AveragePool", "Affine"):
        return labels[inputs[0]]
    known_operator = operator.find(node.op)
    if known_operator is not None and known_operator.moves_bytes:
        return np.array([labels[t][c] if c >= 0 and t in labels else -1 for t, c in channel_sources(node, graph)])
    return None


def _combined(rows: np.ndarray) -> np.ndarray:
    """The number of every row [C, k] among the distinct ones."""
    return np.reshape(np.unique(rows, axis=0, return_inverse=True)[1], -1)


def _joined(node: Node, graph: Graph, statistics: Statistics, labels: Labels) -> np.ndarray | None:
    """Inputs of a concatenation, or the parts of those that have several, in groups of like ranges."""
    seen = statistics.tensors.get(node.outputs[0])
    if seen is None or node.attrs.get("axis") != 1 or any(t in graph.constants for t in node.inputs):
        return None
    size, start = largest(seen), 0
    pieces: list[np.ndarray] = []
    for tensor in node.inputs:
        own = labels.get(tensor, np.zeros(graph.tensors[tensor].shape[1], np.int64))
        pieces += [start + np.flatnonzero(own == label) for label in np.unique(own)]
        start += len(own)
    found = np.zeros(start, np.int64)
    groups = _grouped([float(size[channels].max(initial=0.0)) for channels in pieces])
    for channels, label in zip(pieces, groups, strict=True):
        found[channels] = label
    return found


def _read_by(node: Node, graph: Graph, labels: np.ndarray) -> np.ndarray:
    """Outputs of a convolution are of one part where they read (have weights other than 0 for) the same parts."""
    weight, bias = convolution_weight(node, graph)
    read = weight.any(axis=(1, 2))  # [O, I/group]
    own = per_output(labels, len(bias), int(node.attrs.get("group", 1)))
    return _combined(np.stack([(read & (own == label)).any(axis=1) for label in np.unique(labels)], axis=1))


def part_scales(low: np.ndarray, high: np.ndarray, alpha: float, labels: np.ndarray | None) -> np.ndarray:
    """Scales [C] of a tensor's channels; parts (`labels`, int64 [C]) left with few steps at their widest channel have those of a tensor by itself."""
    scale = stages.channel_scales(low, high, alpha)
    if labels is None:
        return scale
    width, result = high - low, scale.copy()
    for label in np.unique(labels):
        channels = np.flatnonzero(labels == label)
        widest = channels[np.argmax(width[channels])]
        if 0.0 < width[widest] < FEWEST_STEPS * scale[widest]:
            result[channels] = stages.channel_scales(low[channels], high[channels], alpha)
    return result


def flattened_parts(qgraph: QGraph, statistics: Statistics, alpha: float | None) -> list[str]:
    """One notice with its remedy per part that keeps fewer than `FEW_STEPS` steps all the same, in the order of the nodes. `alpha`: the user's."""
    notices: list[str] = []
    labels = range_labels(qgraph.graph, statistics)
    for node in qgraph.graph.nodes:
        output = node.outputs[0]
        if output not in labels or output not in qgraph.quant:
            continue
        on_npu = node.device == "NPU"
        if on_npu and operator.get(node).moves_bytes:
            continue
        remedy = "--precision bf16 keeps them"
        if output in qgraph.graph.grids:
            remedy = "the scales are the model's own: quantise the float model with this kit"
        elif alpha is not None:
            remedy = f"leave out --alpha {alpha:g}, so that every part has scales of its own"
        notices += _few_steps(node, statistics.tensors.get(output), labels[output], qgraph.quant[output].scale, remedy)
        stage = getattr(qgraph.params[node.name], "stage", None) if on_npu else None
        if stage is not None and stage.kind == "table":
            step = np.full(len(labels[output]), 2.0**-stage.fraction_bits)
            remedy = "a curve's 16 bits in front of it serve all channels: apply it before the concatenation, or take --precision bf16"
            notices += _few_steps(node, statistics.tensors.get(pre_activation(output)), labels[output], step, remedy)
    return notices


def _few_steps(
    node: Node, seen: TensorStatistics | None, labels: np.ndarray, scale: np.ndarray, remedy: str
) -> list[str]:
    if seen is None:
        return []
    width = np.maximum(seen.high, 0.0) - np.minimum(seen.low, 0.0)
    notices = []
    for label in np.unique(labels):
        channels = np.flatnonzero(labels == label)
        widest = channels[np.argmax(width[channels])]
        steps = int(width[widest] / scale[widest])
        if 0.0 < width[widest] * UNLIKE * ROUNDING < width.max() and steps < FEW_STEPS:
            notices.append(
                f"node '{node.name}': {len(channels)} of its channels (first {channels[0]}), which a concatenation joined with a range of "
                f"{width.max():.4g}, span {width[widest]:.4g} and keep {steps} steps; {remedy}"
            )
    return notices
