"""Runs a quantised graph with the numpy semantics: the executor for its arithmetic, and what it takes of a sample."""

from __future__ import annotations

from collections.abc import Callable

from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.ir.samples import Sample, in_graph_layout
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.hw_kernels.arch import Arch
from npuforge.quant.executor import Arrays, IntegerExecutor, RunNodes


def executor_of(qgraph: QGraph, arch: Callable[[], Arch], run_cpu: RunNodes) -> IntegerExecutor | LaneExecutor:
    """`arch` is asked in bf16 only, which depends on its lanes: a build for a DPU has none. `run_cpu`: nodes of the CPU partition in float."""
    return LaneExecutor(qgraph, arch(), run_cpu) if qgraph.mode == "bf16" else IntegerExecutor(qgraph, run_cpu)


def feeds_of(qgraph: QGraph, sample: Sample) -> Arrays:
    """What the graph takes: every input as N, C, H, W, preprocessed as a device is given it, so that both round the same values to 8 bits."""
    return in_graph_layout(qgraph.graph, sample.inputs)
