"""The choice of alpha per tensor in `fine` mode.

A tensor's scales cost twice: rounding the activations adds noise of variance s^2/12 per channel, and absorbing the scales makes the consumer's
weights unlike, so that rounding them to 8 bits costs more. Both are estimated per consumer from the calibration moments, as a share of the
consumer's output power, and alpha is the member of `CANDIDATES` with the least sum; tensors are visited in order, twice. Candidates above 0.75 lower the average noise a little but
leave a channel no room above its calibrated range, and cost detections: values beyond it belong to objects that calibration has not seen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.hw_kernels import operator
from npuforge.quant import layers
from npuforge.quant.range_labels import Labels, part_scales
from npuforge.quant.regions import CONVOLUTIONS, Region, activation_inputs, channel_sources
from npuforge.quant.rounding import InputCovariance, residual_variance
from npuforge.quant.statistics import Statistics, pre_activation

CANDIDATES = (0.5, 0.625, 0.75)
DEFAULT = 0.75
SWEEPS = 2


def _power(statistics: Statistics, tensor: str) -> np.ndarray:
    """Variance per channel of a tensor, of its pre-activation where known; at least a tiny positive number."""
    known = statistics.tensors.get(pre_activation(tensor)) or statistics.tensors[tensor]
    return np.maximum(known.square - known.mean**2, 1e-12)


class _ConvolutionCost:
    """Noise of one convolution's output as a function of its input's scales. `levels` [O, I/group]: power that a weight step of 1 costs."""

    def __init__(self, node: Node, graph: Graph, levels: np.ndarray, power: np.ndarray) -> None:
        weight, _ = layers.convolution_weight(node, graph)
        self.outputs, self.group = len(weight), int(node.attrs.get("group", 1))
        self.energy = (weight**2).sum(axis=(1, 2))  # [O, I/group]
        self.largest = np.abs(weight).max(axis=(1, 2))
        self.levels, self.power = levels, power

    def __call__(self, scale: np.ndarray) -> float:
        spread = layers.per_output(scale, self.outputs, self.group)
        activation = (self.energy * spread**2).sum(axis=1) / 12.0
        acc_scale = (self.largest * spread).max(axis=1) / 127.0
        weight = acc_scale**2 / 12.0 * (self.levels / spread**2).sum(axis=1)
        return float((activation + weight).sum() / self.power.sum())


def _levels(node: Node, graph: Graph, inputs: InputCovariance | None, square: np.ndarray) -> np.ndarray:
    """Power of the input that a weight's rounding error multiplies, summed over the taps: [O, I/group].

    With weight rounding it is what the other weights cannot compensate; without, the mean square.
    """
    shape = graph.constants[node.inputs[1]].shape
    group = int(node.attrs.get("group", 1))
    outputs = shape[0] if node.op == "Conv" else shape[1] * group
    if inputs is None:
        return layers.per_output(square * (shape[2] * shape[3]), outputs, group)
    residual = residual_variance(inputs).reshape(group, shape[2] * shape[3], -1).sum(axis=1)  # [G, I/group]
    return np.repeat(residual, outputs // group, axis=0)


def _plain_cost(scale: np.ndarray, power: np.ndarray) -> float:
    """Noise of a consumer that only adds or passes on: the rounding of the activations."""
    return float((scale**2).sum() / 12.0 / power.sum())


def choose_alphas(
    region: Region,
    statistics: Statistics,
    ranges: dict[str, tuple[np.ndarray, np.ndarray]],
    image: TensorQuant | None,
    images: set[str],
    covariances: dict[str, InputCovariance],
    labels: Labels,
) -> dict[str, float]:
    """Alpha of every tensor in `ranges` (those that do not carry another's scales). `covariances`: of the convolutions with weight rounding;
    `labels`: of the tensors that hold parts of unlike ranges."""
    graph = region.graph
    origin = _origins(region)
    outside = region.read_outside()
    scales = {t: part_scales(*ranges[t], DEFAULT, labels.get(t)) for t in ranges}
    for tensor in region.entries:
        if tensor in images and image is not None:
            scales[tensor] = image.scale

    def scale_of(tensor: str) -> np.ndarray:
        return np.array([scales[t][c] if c >= 0 else 0.0 for t, c in origin[tensor]])

    def square_of(tensor: str) -> np.ndarray:
        return np.array([statistics.tensors[t].square[c] if c >= 0 else 0.0 for t, c in origin[tensor]])

    costs: dict[str, list[Callable[[], float]]] = {t: [] for t in ranges}

    def add(tensor: str, cost: Callable[[np.ndarray], float]) -> None:
        for source in {t for t, c in origin[tensor] if c >= 0} & set(costs):
            costs[source].append(lambda: cost(np.maximum(scale_of(tensor), 1e-30)))

    for node in region.nodes:
        if operator.get(node).moves_bytes:
            continue
        for tensor in dict.fromkeys(activation_inputs(node, graph)):
            if node.op in CONVOLUTIONS:
                add(
                    tensor,
                    _ConvolutionCost(
                        node,
                        graph,
                        _levels(node, graph, covariances.get(node.name), square_of(tensor)),
                        _power(statistics, node.outputs[0]),
                    ),
                )
            else:
                power = (
                    _power(statistics, tensor) if tensor in statistics.tensors else np.maximum(square_of(tensor), 1e-12)
                )
                add(tensor, lambda scale, power=power: _plain_cost(scale, power))  # type: ignore[misc]
    for tensor in origin:
        if tensor in outside and tensor in statistics.tensors:
            power = _power(statistics, tensor)
            add(tensor, lambda scale, power=power: _plain_cost(scale, power))  # type: ignore[misc]

    alphas = dict.fromkeys(ranges, DEFAULT)
    for _ in range(SWEEPS):
        for tensor in ranges:
            if not costs[tensor]:
                continue
            results = []
            for candidate in CANDIDATES:
                scales[tensor] = part_scales(*ranges[tensor], candidate, labels.get(tensor))
                results.append(sum(cost() for cost in costs[tensor]))
            alphas[tensor] = CANDIDATES[int(np.argmin(results))]
            scales[tensor] = part_scales(*ranges[tensor], alphas[tensor], labels.get(tensor))
    return alphas


def _origins(region: Region) -> dict[str, list[tuple[str, int]]]:
    """For every tensor of the region: the (tensor, channel) whose scale each of its channels carries."""
    origin: dict[str, list[tuple[str, int]]] = {}
    for tensor in region.entries:
        origin[tensor] = [(tensor, c) for c in range(region.graph.tensors[tensor].shape[1])]
    for node in region.nodes:
        output = node.outputs[0]
        if operator.get(node).moves_bytes:
            origin[output] = [origin[t][c] if c >= 0 else (t, -1) for t, c in channel_sources(node, region.graph)]
        else:
            origin[output] = [(output, c) for c in range(region.graph.tensors[output].shape[1])]
    return origin
