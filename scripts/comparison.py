"""Compares the three columns on images: bits of every layer, losses per layer, detections, mAP, gates; fills the report's data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from npuforge.board_runtime.heads import COCO_SETTINGS, Head
from npuforge.board_runtime.session import TraceRecord
from npuforge.compile.ir.errors import InputError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.samples import Inputs, Sample
from npuforge.compile.reference import GraphExecutor
from npuforge.hw_kernels.operator import find
from npuforge.quant.analysis import LayerLoss, analyse, measured_tensors
from npuforge.quant.executor import Arrays
from npuforge.scripts.build_folder import Build
from npuforge.scripts.columns import DeviceColumn, FloatColumn, IntegerColumn
from npuforge.scripts.datasets import Dataset
from npuforge.scripts.mean_average_precision import Metrics, mean_average_precision
from npuforge.scripts.picked_rows import match_rows, matched_values, picked_outputs, row_axis
from npuforge.scripts.report.channel_groups import GroupMeter
from npuforge.scripts.report.data import (
    DEVICE,
    FLOAT,
    INTEGER,
    Accuracy,
    DetectionCounts,
    Gate,
    Histogram,
    ImageComparison,
    Reference,
    ReportData,
    RowCounts,
    matched_share,
)
from npuforge.scripts.report.from_build import report_of_build, set_losses
from npuforge.scripts.report.match import match

COLUMNS = (FLOAT, INTEGER, DEVICE)
HISTOGRAM_BINS = 48
PICTURES = 12  # images drawn in the report
Progress = Callable[[str, int, int], None]


@dataclass
class Limits:
    """Gates. None: not asked for."""

    max_map_drop: float | None = None  # points of mAP50-95, float minus device
    min_cosine: float | None = None  # of every network output, float against device
    max_abs_error: float | None = None  # of every network output
    max_mean_error: float | None = None  # of every layer alone, as a share of its largest magnitude
    min_matched: float | None = (
        None  # share of the detections, or rows that the network picks, of both columns with a partner
    )


@dataclass
class Difference:
    """Values compared, values that differ."""

    compared: int = 0
    differing: int = 0


@dataclass
class OutputError:
    """Worst figures of the network's outputs, float against device, over all images."""

    cosine: float = 1.0
    largest: float = 0.0
    cosine_of: str = ""  # the output with the lowest cosine
    largest_of: str = ""  # the output with the largest error
    indices: dict[str, Difference] = field(
        default_factory=dict
    )  # class numbers and other integers: no cosine, no error

    def add(self, name: str, reference: np.ndarray, found: np.ndarray, index: bool = False) -> None:
        """One output of one image. `index`: its values name something, as integers always do."""
        if index or reference.dtype.kind in "iub":  # the distance of two class numbers says nothing
            entry = self.indices.setdefault(name, Difference())
            entry.compared += reference.size
            same = reference.shape == found.shape
            entry.differing += int((reference != found).sum()) if same else reference.size
            return
        a, b = reference.astype(np.float64).ravel(), found.astype(np.float64).ravel()
        unlike = a.shape != b.shape or not np.array_equal(a[~np.isfinite(a)], b[~np.isfinite(b)], equal_nan=True)
        if unlike or not np.array_equal(np.isfinite(a), np.isfinite(b)):  # NaN must not slip through a gate
            self._note(name, 0.0, float("inf"))
            return
        a, b = a[np.isfinite(a)], b[np.isfinite(b)]
        if a.size == 0:
            return
        norm = float(np.linalg.norm(a) * np.linalg.norm(b))
        self._note(name, float(a @ b) / norm if norm else float(np.array_equal(a, b)), float(np.abs(a - b).max()))

    def _note(self, name: str, cosine: float, largest: float) -> None:
        if cosine < self.cosine:
            self.cosine, self.cosine_of = cosine, name
        if largest > self.largest:
            self.largest, self.largest_of = largest, name


@dataclass
class Comparison:
    """Result of a run over images."""

    data: ReportData
    outputs: OutputError = field(default_factory=OutputError)
    differences: dict[str, Difference] = field(default_factory=dict)
    pad_lane_errors: int = 0

    @property
    def differing(self) -> int:
        """Values in which the device differs from the integer graph, all layers and images."""
        return sum(d.differing for d in self.differences.values()) + self.pad_lane_errors


def index_tensors(graph: Graph) -> set[str]:
    """Tensors whose values name something (classes), as their operators declare."""
    operators = [(node, find(node.op)) for node in graph.nodes]
    return {
        node.outputs[i] for node, op in operators if op is not None for i in op.index_outputs if i < len(node.outputs)
    }


class _Known:
    """Hands `analyse` the integers that were computed already."""

    def __init__(self, integers: Arrays) -> None:
        self._integers = integers

    def run(self, feeds: Arrays) -> Arrays:
        return self._integers


def _differences(result: Comparison, records: list[TraceRecord], integers: Arrays, written: Mapping[str, str]) -> None:
    for record in records:
        expected = integers.get(written.get(record.id, record.tensor))
        if expected is None:
            continue  # a tensor the code generator made itself; its consumers are compared
        entry = result.differences.setdefault(record.name, Difference())
        entry.compared += expected.size
        same = record.data.shape == expected.shape
        entry.differing += int((record.data != expected).sum()) if same else expected.size
        result.pad_lane_errors += record.pad_lane_errors


def compare(
    build: Build,
    images: list[Path],
    *,
    device: str = "sim",
    board: Path | None = None,
    reference: str = "auto",
    threads: int = 2,
    layer_images: int = 4,
    truth: Dataset | None = None,
    limits: Limits | None = None,
    progress: Progress = lambda what, done, total: None,
    fixed: Inputs | None = None,
) -> Comparison:
    """Runs all columns over `images`; per-layer losses on the first `layer_images` of them. `fixed`: inputs that all share."""
    qgraph = build.qgraph
    columns = (
        FloatColumn(build, reference, fixed),
        IntegerColumn(build),
        DeviceColumn(build, device, threads, board=board),
    )
    float_column, integer_column, device_column = columns
    float_column.check(images)
    origin = Reference(float_column.provider, float_column.source, build.summary["model"]["sha256"])
    result = Comparison(report_of_build(build.folder, qgraph, device, origin))
    heads = (
        None
        if build.preprocess.head.kind == "none"
        else (Head(build.preprocess), Head(build.preprocess, COCO_SETTINGS))
    )
    if truth is not None and heads is None:
        raise InputError("--truth needs a detection head in the preprocessing record (head.kind)")
    scored: dict[str, list[np.ndarray]] = {column: [] for column in COLUMNS}
    indices = index_tensors(qgraph.graph)
    layer_inputs: list[tuple[Sample, Arrays]] = []
    groups = GroupMeter(build.preprocess.head)
    picked = picked_outputs(qgraph.graph, build.preprocess.head)
    for number, path in enumerate(images, start=1):
        image = build.sample(path, fixed)
        integers, integer_outputs = integer_column.integers_and_outputs(image)
        device_outputs, records = device_column.trace(image)
        outputs = {FLOAT: float_column(image), INTEGER: integer_outputs, DEVICE: device_outputs}
        _differences(result, records, integers, integer_column.written)
        for name, value in outputs[FLOAT].items():
            if name in picked:
                _rows(result, qgraph.graph, name, value, device_outputs[name], picked[name])
                continue
            result.outputs.add(name, value, device_outputs[name], name in indices)
            groups.add(name, value, device_outputs[name])
        if number <= layer_images:
            layer_inputs.append((image, integers))
        if heads is not None:
            _detect(result, image, heads, outputs, scored, truth, number, any(picked.values()))
        progress("compare", number, len(images))
    result.data.channel_groups = groups.result()
    result.data.notices += [
        f"output {g.output}, {g.name}: {g.distinct_device} distinct values are left of {g.distinct_float}; quantisation has flattened them"
        for g in result.data.channel_groups
        if g.flattened
    ]
    set_losses(result.data, _losses(build, integer_column, layer_inputs, result.data, progress))
    for layer in result.data.layers:
        entry = result.differences.get(layer.name, Difference())
        layer.values_compared, layer.values_differing = entry.compared, entry.differing
    if truth is not None:
        result.data.accuracy = {c: _accuracy(mean_average_precision(truth, found)) for c, found in scored.items()}
        result.data.accuracy_images = len(images)
        result.data.oriented_truth = truth.oriented
    result.data.index_outputs = {n: (d.differing, d.compared) for n, d in result.outputs.indices.items()}
    limits = limits or Limits()
    result.data.gates = _gates(limits, result)
    share = _matched(result.data) if picked else None
    if share is not None and share < 1 and limits.min_matched is None and any(result.data.gates):
        result.data.notices.append(
            f"the network picks rows itself and {share:.1%} of them have a partner in the other column; cosine and error are of those, "
            "limit the others with --min-matched"
        )
    return result


def _rows(result: Comparison, graph: Graph, name: str, reference: np.ndarray, found: np.ndarray, by_head: bool) -> None:
    """An output whose rows the network picks, of one image. What a head decodes is compared as detections, later."""
    axis = row_axis(graph.tensors[name].shape)
    whole = reference.dtype.kind != "f"
    counts = result.data.picked_rows.setdefault(name, RowCounts(by_head=by_head, whole=whole))
    rows = [x.shape[axis] if x.ndim else 1 for x in (reference, found)]
    counts.reference, counts.device = counts.reference + rows[0], counts.device + rows[1]
    counts.unlike_images += rows[0] != rows[1]
    if by_head:
        return
    first, second = match_rows(reference, found, axis)
    counts.matched += len(first)
    if rows[0] and not whole:
        result.outputs.add(name, *_of_both(np.moveaxis(reference, axis, 0)[first], np.moveaxis(found, axis, 0)[second]))


def _of_both(reference: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What both columns have; where they share nothing, what no gate lets through."""
    return (reference, found) if len(reference) else (np.ones(1), np.full(1, np.nan))


def _detect(
    result: Comparison,
    image: Sample,
    heads: tuple[Head, Head],
    outputs: dict[str, Arrays],
    scored: dict[str, list[np.ndarray]],
    truth: Dataset | None,
    number: int,
    picked: bool,
) -> None:
    """Detections of one image. `picked`: they are what outputs are compared by whose rows the network picks."""
    data = result.data
    shown, scoring = heads
    data.oriented = shown.oriented
    data.detection_counts = data.detection_counts or DetectionCounts()
    found = {column: shown.detect(values, image.geometry) for column, values in outputs.items()}
    matching = match(found[FLOAT], found[DEVICE], oriented=data.oriented)
    data.detection_counts.add(matching)
    if picked and len(found[FLOAT]):
        result.outputs.add("detections", *_of_both(*matched_values(found, matching, (FLOAT, DEVICE))))
    for column, values in outputs.items():
        scored[column].append(scoring.detect(values, image.geometry))
    if number <= PICTURES:
        boxes = None
        if truth is not None:
            entry = truth.images[number - 1]
            corners = np.zeros((len(entry.boxes), 0)) if entry.corners is None else entry.corners.reshape(-1, 8)
            boxes = np.column_stack([entry.boxes, entry.labels, corners])
        data.images.append(ImageComparison(image.path.name, image.picture, found, boxes))


def _losses(
    build: Build, column: IntegerColumn, inputs: list[tuple[Sample, Arrays]], data: ReportData, progress: Progress
) -> list[LayerLoss]:
    """Losses of every layer and, for the first image, histograms of its values."""
    qgraph = build.qgraph
    wanted = measured_tensors(qgraph)
    executor = GraphExecutor(qgraph.graph, wanted)
    losses: list[LayerLoss] = []
    known = _Known({})

    def runs() -> Iterator[tuple[Arrays, Arrays]]:
        for number, (image, integers) in enumerate(inputs, start=1):
            feeds = column.feeds(image)
            found = executor.run(feeds)
            known._integers = integers
            if number == 1:
                _histograms(data, column, found, integers)
            yield feeds, found
            progress("layer losses", number, len(inputs))

    losses = analyse(qgraph, runs(), known)  # type: ignore[arg-type]
    return losses


def _histograms(data: ReportData, column: IntegerColumn, reference: Arrays, integers: Arrays) -> None:
    outputs = {n.name: n.outputs[0] for n in column.qgraph.graph.nodes}
    for layer in data.layers:
        tensor = outputs.get(layer.name)
        if tensor is None or tensor not in reference or tensor not in integers:
            continue
        expected, found = reference[tensor].ravel(), column.dequantised(tensor, integers).ravel()
        low, high = float(min(expected.min(), found.min())), float(max(expected.max(), found.max()))
        edges = np.linspace(low, high if high > low else low + 1.0, HISTOGRAM_BINS + 1)
        layer.histogram = Histogram(
            edges.tolist(), np.histogram(expected, edges)[0].tolist(), np.histogram(found, edges)[0].tolist()
        )


def _accuracy(metrics: Metrics) -> Accuracy:
    return Accuracy(metrics.map, metrics.map50, metrics.map75, dict(metrics.per_class))


def _gates(limits: Limits, result: Comparison) -> list[Gate]:
    gates = []
    if limits.max_map_drop is not None:
        accuracy = result.data.accuracy
        drop = 100 * (accuracy[FLOAT].map - accuracy[DEVICE].map) if accuracy else None
        gates.append(
            Gate("--max-map-drop", limits.max_map_drop, drop, drop is not None and drop <= limits.max_map_drop)
        )
    if limits.min_cosine is not None:
        found = result.outputs.cosine
        gates.append(Gate("--min-cosine", limits.min_cosine, found, found >= limits.min_cosine))
    if limits.max_abs_error is not None:
        found = result.outputs.largest
        gates.append(Gate("--max-abs-error", limits.max_abs_error, found, found <= limits.max_abs_error))
    if limits.max_mean_error is not None:
        found = max((y.alone.mean_error_share for y in result.data.layers if y.alone is not None), default=0.0)
        gates.append(Gate("--max-mean-error", limits.max_mean_error, found, found <= limits.max_mean_error))
    if limits.min_matched is not None:
        share = _matched(result.data)
        passed = share is not None and share >= limits.min_matched
        gates.append(Gate("--min-matched", limits.min_matched, share, passed))
    return gates


def _matched(data: ReportData) -> float | None:
    """The lowest share of detections, and of rows of an output that no head decodes, with a partner in the other column. None: there are none.

    Whole numbers count where there is nothing else: the neighbour of a box has another number, though nearly the same place.
    """
    rows = [r for r in data.picked_rows.values() if not r.by_head]
    if data.detection_counts is not None or any(not r.whole for r in rows):
        rows = [r for r in rows if not r.whole]
    shares = [matched_share(r.matched, r.reference, r.device) for r in rows]
    if data.detection_counts is not None:
        found = data.detection_counts
        shares.append(matched_share(found.found, found.reference, found.found + found.added))
    return min((s for s in shares if s is not None), default=None)
