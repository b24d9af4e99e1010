"""Real networks through the back end: trace points on the plain interpreter == integer semantics, pool within 1.05 of the bound, few copies.

Calibrated on one image only: the bits are what is tested, not the precision.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from backend import run_and_compare
from interpreter import Machine

from npuforge.compile.context import Context, Options
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.memory_checker import check_plan
from npuforge.compile.pipeline import FRONT_END, QUANTISER, run_steps
from npuforge.compile.steps.generate import generate
from npuforge.compile.steps.write_bin import to_bytes
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.arch import load

IMAGES = Path(__file__).resolve().parents[3] / "shared" / "data" / "coco128"
QUICK = [("blazeface_front_128x128", "blazeface")]
ALL = [
    *QUICK,
    ("yolo_fastest_1.1", "yolo_fastest_1.1"),
    ("yolox_nano_kazuhito", "yolox_nano"),
    ("fastestdet", "fastestdet"),
    ("nanodet_m", "nanodet_m"),
    ("yunet_n_320_320", "yunet"),
    ("ultraface_RFB-320", "ultraface"),
]


def quantised(models: Path, name: str, preset: str) -> QGraph:
    options = Options(models / f"{name}.onnx", load("nf-b4096"), Path(), preprocess=load_preprocess(preset))
    options.calibration = sorted(IMAGES.rglob("*.jpg"))[:1]
    qgraph: QGraph = run_steps(FRONT_END + QUANTISER, None, Context(options))
    return qgraph


def compare(qgraph: QGraph, arch: str) -> None:
    compiled = generate(qgraph, load(arch))
    assert compiled.memory is not None
    check_plan(compiled.pool["buffers"], compiled.meta["pool_size"], "pool")
    assert compiled.memory.size <= 1.05 * compiled.memory.bound
    assert not any("#copy" in layer["name"] for layer in compiled.meta["layers"])  # every concat is free
    machine = Machine(to_bytes(compiled))
    graph, random, values = qgraph.graph, np.random.default_rng(0), {}
    for tensor in graph.inputs:
        _, channels, height, width = graph.tensors[tensor].shape
        values[tensor] = random.integers(-128, 128, (1, height, width, channels)).astype(np.int8)
        machine.write_tensor(tensor, values[tensor][0])
    for node in graph.nodes:
        if node.device == "NPU":
            inputs = [values[t] for t in node.inputs if t in values]
            values[node.outputs[0]] = operator.get(node).integer(node, inputs, qgraph)
    compared = run_and_compare(machine, {k: v[0] for k, v in values.items()})
    convolutions = sum(n.op in ("Conv", "ConvTranspose") for n in graph.nodes)
    assert compared >= convolutions


@pytest.mark.data
@pytest.mark.parametrize(("name", "preset"), QUICK, ids=[n for n, _ in QUICK])
def test_quick(models: Path, name: str, preset: str) -> None:
    qgraph = quantised(models, name, preset)
    for arch in ("nf-b1024", "nf-b4096"):
        compare(qgraph, arch)


@pytest.mark.data
@pytest.mark.full
@pytest.mark.parametrize(("name", "preset"), ALL, ids=[n for n, _ in ALL])
def test_every_network(models: Path, name: str, preset: str) -> None:
    qgraph = quantised(models, name, preset)
    for arch in ("nf-b1024", "nf-b4096"):
        compare(qgraph, arch)
