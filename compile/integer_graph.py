"""Runs a quantised graph with the numpy semantics: the executor for its arithmetic, and what it takes of a sample."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.ir.samples import Sample, in_graph_layout
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.hw_kernels.arch import Arch
from npuforge.quant.executor import Arrays, IntegerExecutor, RunNodes


def executor_of(qgraph: QGraph, arch: Callable[[], Arch], run_cpu: RunNodes) -> IntegerExecutor | LaneExecutor:
    """`arch` is asked in bf16 only, which depends on its lanes: a build for a DPU has none. `run_cpu`: nodes of the CPU partition in float."""
    return LaneExecutor(qgraph, arch(), run_cpu) if qgraph.mode == "bf16" else IntegerExecutor(qgraph, run_cpu)


def feeds_of(qgraph: QGraph, sample: Sample, image: str) -> Arrays:
    """What the graph takes: raw pixels uint8 [1, H, W, C] where the input `image` enters so, else tensors as N, C, H, W."""
    feeds = in_graph_layout(qgraph.graph, sample.inputs)
    quant = qgraph.quant.get(image)
    if quant is not None and quant.image_mean is not None:
        feeds[image] = sample.pixels[np.newaxis]
    return feeds
