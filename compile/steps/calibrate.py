"""The calibration step: one pass over the images through the float graph feeds every observer of the quantiser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from npuforge.compile.context import Context, Options
from npuforge.compile.ir.errors import CalibrationError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.samples import in_graph_layout, input_specs, load_sample
from npuforge.compile.ir.words import counted
from npuforge.compile.reference import GraphExecutor
from npuforge.compile.steps.separate_ranges import break_chains, separate_unlike
from npuforge.quant.calibrate import Arrays, calibrate
from npuforge.quant.given import missing_scales
from npuforge.quant.quantize import image_tensors
from npuforge.quant.regions import Region
from npuforge.quant.statistics import Statistics

FEW_IMAGES = 32  # below this many a notice says that ranges may be too small
_QUANTISED = (b"QuantizeLinear", b"QLinear", b"QGemm")  # every quantised file holds one of these operator names


def check_images(options: Options) -> None:
    """CalibrationError where there are no images and the file can bring no scales of its own; called before any work is done."""
    if options.calibration or options.precision == "bf16":  # bf16 has nothing to calibrate
        return
    if options.own_scales and options.mode == "fine" and options.model.is_file():
        data = options.model.read_bytes()
        if any(name in data for name in _QUANTISED):
            return
    raise CalibrationError("no calibration images: give a folder of typical images with --calib")


def _without_images(graph: Graph, ctx: Context) -> Graph:
    """A quantised model needs no images where it gives every scale."""
    region = Region.of(graph)
    missing = missing_scales(region, image_tensors(region, ctx.preprocess))
    if not graph.grids or missing:
        detail = ""
        if graph.grids:
            writer = graph.producer(missing[0])
            node = f" (written by node '{writer.name}')" if writer is not None else ""
            detail = f"; the model gives no scales for {len(missing)} tensors, first '{missing[0]}'{node}"
        raise CalibrationError(f"no calibration images{detail}: give a folder of typical images with --calib")
    ctx.statistics = Statistics()
    ctx.note(["no calibration: every scale is the quantised model's own"])
    return graph


def run(graph: Graph, ctx: Context) -> Graph:
    """The step. Raises CalibrationError where there are no images but some are needed, or one cannot be read. bf16 has nothing to calibrate."""
    if ctx.options.precision == "bf16":
        return graph
    if not ctx.options.calibration:
        return _without_images(graph, ctx)

    count = len(ctx.options.calibration)
    if count < FEW_IMAGES:
        ctx.note(
            [
                f"only {counted(count, 'calibration image')}: ranges may be too small and detections be lost; give {FEW_IMAGES} or more "
                "with --calib, typical ones that show the objects to detect, and look at the result with `npuforge compare`"
            ]
        )
    _measure(graph, ctx)
    assert ctx.statistics is not None
    if ctx.options.mode == "fine":
        ctx.note(_beyond_pixels(graph, ctx))
    if ctx.options.mode == "pow2":
        if separated := separate_unlike(graph, ctx.statistics, ctx.limit):
            ctx.note(separated)
            _measure(graph, ctx)
        if tied := break_chains(graph, ctx.statistics):
            ctx.note(
                f"node '{name}': a wider tensor would share its fix point; a copy between them has one of its own"
                for name in tied
            )
            _measure(graph, ctx)
    return graph


def _beyond_pixels(graph: Graph, ctx: Context) -> list[str]:
    """A notice per image input whose samples (float arrays) go beyond what pixels 0 to 255 give by the record: the device takes pixels, and clips them."""
    assert ctx.statistics is not None
    region, notices = Region.of(graph), []
    for tensor in sorted(image_tensors(region, ctx.preprocess) & set(region.entries) & ctx.statistics.tensors.keys()):
        assert ctx.preprocess is not None
        seen = ctx.statistics.tensors[tensor]
        mean, std = (np.asarray(v, np.float64) for v in (ctx.preprocess.mean, ctx.preprocess.std))
        low, high = (0.0 - mean) / std, (255.0 - mean) / std
        slack = 0.5 / std  # half a pixel
        if (seen.low < low - slack).any() or (seen.high > high + slack).any():
            notices.append(
                f"input '{tensor}': the calibration arrays hold values from {seen.low.min():.4g} to {seen.high.max():.4g}, but by the preprocessing record pixels "
                f"give {low.min():.4g} to {high.max():.4g}: the rest is clipped; give the mean and std that the arrays were made with (--preprocess)"
            )
    return notices


def _measure(graph: Graph, ctx: Context) -> None:
    """One pass over the images."""
    images = ctx.options.calibration
    current: list[Path] = []  # the image in work
    specs = input_specs(graph)

    def feeds() -> Iterator[Arrays]:
        for path in images:
            sample = load_sample(path, ctx.preprocess, specs, ctx.options.inputs)
            current[:] = [path]
            yield in_graph_layout(graph, sample.inputs)
            current.clear()

    histograms = ctx.options.calibrator != "minmax"
    try:
        ctx.statistics = calibrate(
            graph,
            feeds(),
            lambda tensors: GraphExecutor(graph, tensors).run,
            histograms,
            progress=lambda done: ctx.options.progress(ctx.position, done, len(images), "images"),
        )
    except CalibrationError as error:
        raise CalibrationError(f"{current[0]}: {error}" if current else str(error)) from error
