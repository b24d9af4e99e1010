"""Drawn single layers on the bit-exact ladder: what a case is, its integer graph, its inputs, and the climb onto csim and sim.

`layer_strategies.CASES[name]` draws a `Case`. No ONNX file and no ONNX Runtime is needed: the calibration runs the operators' own float reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from hypothesis import reject
from ladder import Binary, Difference, Quantised, climb, compare_pools, compile_graph

from npuforge.compile.ir.errors import CalibrationError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.hw_kernels.arch import Arch, load
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import ReferenceExecutor
from npuforge.quant.quantize import quantize

MODES = ("fine", "pow2")
HARDWARE = ("nf-b1024", "nf-b4096", "nf-b1024 with 64 KiB")
FEEDS = ("extremes", "lowest", "highest", "typical")  # besides uniform values


@dataclass
class Case:
    """A graph of one layer under test (and what feeds it), its arithmetic mode, hardware and kind of input."""

    graph: Graph
    random: np.random.Generator
    mode: str
    arch: str
    feed: str
    preprocess: Preprocess | None = None
    description: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"{self.mode}, {self.arch}, {self.feed} input: " + "; ".join(self.description)


def hardware(name: str) -> Arch:
    """An arch of the kit, or one with so little SRAM that layers are cut into bands."""
    if name in ("nf-b1024", "nf-b4096"):
        return load(name)
    return Arch(**{**vars(load("nf-b1024")), "sram_bytes": 65536, "name": "nf-b1024-64k"})


def quantised(case: Case) -> Quantised:
    """The integer graph, calibrated on two random inputs."""
    graph, shapes = case.graph, {name: case.graph.tensors[name].shape for name in case.graph.inputs}
    feeds = []
    for _ in range(2):
        if case.preprocess is not None:
            mean, std = (np.reshape(v, (1, 3, 1, 1)) for v in (case.preprocess.mean, case.preprocess.std))
            feeds.append({"input": ((case.random.integers(0, 256, shapes["input"]) - mean) / std).astype(np.float32)})
        else:
            feeds.append({n: case.random.normal(0.3, 1.0, s).astype(np.float32) for n, s in shapes.items()})
    try:
        statistics = calibrate(graph, feeds, lambda wanted: ReferenceExecutor(graph, wanted).run)
    except CalibrationError as error:
        # Drawn weights on top of each other: calibration refuses values beyond 1e12 by name, and there is nothing to run.
        value = re.search(r"values up to (\S+) on calibration image", str(error))
        assert value is not None and float(value[1]) > 1e12, error
        reject()
    qgraph = quantize(graph, statistics, case.mode, preprocess=case.preprocess)
    return Quantised(qgraph, case.preprocess or Preprocess())


def inputs(case: Case, feed: str) -> dict[str, np.ndarray]:
    """int8 [1, H, W, C] for every input; most kinds go far beyond what calibration saw, so that stages saturate."""
    result = {}
    for name in case.graph.inputs:
        _, channels, h, w = case.graph.tensors[name].shape
        shape = (1, h, w, channels)
        if feed == "uniform":
            value = case.random.integers(-128, 128, shape)
        elif feed == "extremes":
            value = case.random.choice([-128, 127], shape)
        elif feed == "typical":
            value = np.clip(np.round(case.random.normal(0, 30, shape)), -128, 127)
        else:
            value = np.full(shape, -128 if feed == "lowest" else 127)
        result[name] = value.astype(np.int8)
    return result


def climb_case(case: Case) -> list[Difference]:
    """The ladder for one drawn layer: every layer at its trace point, and the whole pool with the outputs in it."""
    integer = quantised(case)
    return climb_compiled(case, integer, compile_graph(integer, hardware(case.arch)))


def climb_compiled(case: Case, integer: Quantised, binary: Binary) -> list[Difference]:
    """`climb_case` of what is compiled already."""
    found: list[Difference] = []
    for feed in dict.fromkeys(("uniform", case.feed)):
        feeds = inputs(case, feed)
        expected = integer.integers(feeds)
        found += climb(integer, binary, feeds, expected=expected) + compare_pools(binary, feeds, expected)
    return found
