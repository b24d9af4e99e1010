"""Whether the integers of a build's sample are anything like the float network's: a notice at compile where they are not. `compare` measures it on many images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.samples import Inputs, in_graph_layout
from npuforge.compile.reference import GraphExecutor

LOWEST_COSINE = (
    0.9  # an error of half the output; what one power of two per tensor costs a network that bears it is far less
)


def poor_outputs(graph: Graph, inputs: Inputs, integers: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Cosine by output for those below `LOWEST_COSINE`. `inputs`: as the ONNX file has them; `integers`: the integer graph's outputs for them. Not of outputs of
    integers, of a size that the data decide, or that are 0 in float."""
    fixed = {n for n in integers if all(d > 0 for d in graph.tensors[n].shape) and integers[n].dtype.kind == "f"}
    found = GraphExecutor(graph).run(in_graph_layout(graph, inputs)) if fixed else {}
    cosines = {n: _cosine(found[n], integers[n]) for n in graph.outputs if n in fixed}
    return {n: value for n, value in cosines.items() if value < LOWEST_COSINE}


def _cosine(real: np.ndarray, integers: np.ndarray) -> float:
    a, b = real.astype(np.float64).ravel(), integers.astype(np.float64).ravel()
    if not a.any() or not np.isfinite(a).all():
        return 1.0
    return float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b)) if b.any() else 0.0


def notice(poor: Mapping[str, float], sample: str) -> str:
    """One line."""
    outputs = ", ".join(f"{name} {value:.2f}" for name, value in poor.items())
    return (
        f"with 8 bits and one power of two per tensor (pow2) outputs are far from the float network's: cosine {outputs} on the sample ({sample}); try --calibrator "
        "percentile or mse, calibration images without extremes, and look at typical images with `npuforge compare`"
    )
