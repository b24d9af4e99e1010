"""Calibration: one pass over the images that feeds every observer (ranges, moments, histograms).

The float network is run by a callable that the caller makes (`compile/reference.py`: `lambda wanted: GraphExecutor(graph, wanted).run`), because
this package knows no ONNX. A value before a fused curve is asked for as `pre_activation(output tensor)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from npuforge.compile.ir.errors import CalibrationError
from npuforge.compile.ir.graph import Graph
from npuforge.hw_kernels.activations import is_curve
from npuforge.quant.regions import Region
from npuforge.quant.rounding import InputCovariance
from npuforge.quant.statistics import Statistics, TensorStatistics, pre_activation

Arrays = dict[str, np.ndarray]
Runner = Callable[[Arrays], Arrays]
MakeRunner = Callable[[list[str]], Runner]  # the tensors wanted -> a function from the inputs to them
Progress = Callable[[int], None]
SAMPLES = 8  # images that bias correction runs through the integer graph
COVARIANCE_POSITIONS = 192  # windows per image


def observed_tensors(graph: Graph, region: Region) -> list[str]:
    """Tensors whose statistics the quantiser needs."""
    wanted = list(region.entries)
    for node in region.nodes:
        wanted += node.outputs
        if is_curve(node.activation):
            wanted.append(pre_activation(node.outputs[0]))
    return list(dict.fromkeys(wanted))


LARGEST = 1e12  # an activation beyond this comes from a broken network; squares and covariances would overflow


def calibrate(
    graph: Graph,
    images: Iterable[Arrays | np.ndarray],
    make_runner: MakeRunner,
    histograms: bool = False,
    histogram_values: int = 1024,
    progress: Progress | None = None,
    covariances: bool = True,
    samples: int = SAMPLES,
) -> Statistics:
    """Statistics of every tensor of the quantised region over `images`.

    `images` yields preprocessed float arrays N, C, H, W (one array for a network with one input, else one per input name). Histograms are
    needed by the percentile and MSE calibrators only; each takes at most about `histogram_values` values per channel and image.
    Covariances of convolution inputs are needed by the algorithm `weight_rounding`, the first `samples` images by `bias_correction`.
    """
    region = Region.of(graph)
    wanted = observed_tensors(graph, region)
    run = make_runner([t for t in wanted if t not in graph.inputs])
    statistics = Statistics()
    if covariances:
        empty = {n.name: InputCovariance.of(n, graph) for n in region.nodes}
        statistics.inputs = {name: inputs for name, inputs in empty.items() if inputs is not None}
    for image in images:
        feeds = image if isinstance(image, dict) else {graph.inputs[0]: image}
        _check_feeds(graph, feeds, statistics.images)
        results = run(feeds)
        for name in wanted:
            values = results[name] if name in results else feeds[name]
            known = statistics.tensors.get(name)
            if known is None:
                channels = values.shape[1] if values.ndim > 1 else values.size
                known = statistics.tensors[name] = TensorStatistics.empty(channels, histograms)
            largest = max(abs(float(values.min())), abs(float(values.max())))
            if not largest <= LARGEST:
                what = f"values up to {largest:.3g}" if np.isfinite(largest) else "NaN or infinity"
                writer = next((f"node '{n.name}' ({n.op}), " for n in graph.nodes if name in n.outputs), "")
                raise CalibrationError(
                    f"{writer}tensor {name}: {what} on calibration image {statistics.images}; "
                    "check the preprocessing and the model's weights"
                )
            known.update(values, histogram_values)
            if statistics.images < samples:
                mean = values.mean(axis=(0, *range(2, values.ndim)), dtype=np.float64)
                statistics.sample_means[name] = statistics.sample_means.get(name, 0.0) + mean
                if name in region.entries:
                    statistics.samples.setdefault(name, []).append(values)
        for node in region.nodes:
            if node.name in statistics.inputs:
                x = results[node.inputs[0]] if node.inputs[0] in results else feeds[node.inputs[0]]
                statistics.inputs[node.name].update(
                    node, graph, x, graph.tensors[node.outputs[0]].shape, COVARIANCE_POSITIONS
                )
        statistics.images += 1
        if progress is not None:
            progress(statistics.images)
    if statistics.images == 0:
        raise CalibrationError("no calibration images: expected at least one")
    return statistics


def _check_feeds(graph: Graph, feeds: Arrays, number: int) -> None:
    for name in graph.inputs:
        if name not in feeds:
            raise CalibrationError(f"calibration image {number}: input {name} is missing")
        expected, found = graph.tensors[name].shape[1:], feeds[name].shape[1:]
        if tuple(expected) != tuple(found):
            raise CalibrationError(
                f"calibration image {number}: input {name} expects {list(expected)} after the batch, found {list(found)}; "
                "check width, height and layout of the preprocessing"
            )
