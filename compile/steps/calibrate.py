"""The calibration step: one pass over the images through the float graph feeds every observer of the quantiser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from npuforge.compile.context import Context, Options
from npuforge.compile.ir.errors import CalibrationError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.image import prepare
from npuforge.compile.reference import GraphExecutor
from npuforge.quant.calibrate import Arrays, calibrate


def network_input(graph: Graph, pixels: np.ndarray, tensor: np.ndarray) -> np.ndarray:
    """The graph's own layout (N, C, H, W) of a preprocessed image."""
    return tensor if graph.input_layout.get(graph.inputs[0], "NCHW") == "NCHW" else tensor.transpose(0, 3, 1, 2)


def check_images(options: Options) -> None:
    """CalibrationError where there are no images; called before any work is done."""
    if not options.calibration:
        raise CalibrationError("no calibration images: give a folder of typical images with --calib")


def run(graph: Graph, ctx: Context) -> Graph:
    """The step. Raises CalibrationError where there are no images or one cannot be read."""
    images = ctx.options.calibration
    check_images(ctx.options)

    current: list[Path] = []  # the image in work

    def feeds() -> Iterator[Arrays]:
        for path in images:
            pixels, tensor, _ = prepare(path, ctx.preprocess)
            current[:] = [path]
            yield {graph.inputs[0]: network_input(graph, pixels, tensor)}
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
    return graph
