"""Random networks of the covered operators: importer, fold, fuse and the C++ executor against ONNX Runtime."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "npuforge.board_runtime._native", reason="the native module is not built: python setup.py build_ext --inplace"
)
sys.path.insert(0, str(Path(__file__).parent))
from layer_templates import TEMPLATES
from random_graphs import grow, run

from npuforge.board_runtime.session import Session
from npuforge.compile.host_program import float_graph, host_program

RTOL, ATOL = 1e-4, 1e-5  # those of the backend cases; chains of up to sixteen nodes, values up to 50


def check(seed: int) -> list[str]:
    """Runs one network on both sides; returns its operators."""
    network = grow(seed, TEMPLATES)
    model = network.model()
    names = [v.name for v in model.graph.output]
    expected = run(model, {v.name: network.inputs[v.name] for v in model.graph.input})
    session = Session(host_program(float_graph(model)))
    found = session.run({spec.name: network.inputs[spec.name] for spec in session.inputs})
    for name, want in zip(names, expected, strict=True):
        got = found[name]
        assert (got.shape, got.dtype) == (want.shape, want.dtype), f"network {seed}, output {name}"
        if want.dtype == np.float32:
            np.testing.assert_allclose(got, want, rtol=RTOL, atol=ATOL, err_msg=f"network {seed}, output {name}")
        else:
            np.testing.assert_array_equal(got, want, err_msg=f"network {seed}, output {name}")
    return [n.op_type for n in model.graph.node]


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_networks(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_two_thousand_networks(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def test_the_networks_hold_most_operators() -> None:
    """What is drawn, so that a template that never fits is noticed."""
    count = Counter(op for seed in range(150) for op in (n.op_type for n in grow(seed, TEMPLATES).nodes))
    assert len(count) > 85, sorted(count)
