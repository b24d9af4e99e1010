"""The contract of every operator that has bf16 semantics: registry x cases. Mean error against the float meaning, and the DSL program on csim and sim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract import Subject, subjects
from ladder_bf16 import Ladder

from npuforge.compile.ir.graph import Graph, Partition
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.levels import declared
from npuforge.hw_kernels.operator import Op
from npuforge.quant.bf16 import quantize_bf16, run_node
from npuforge.quant.executor import dequantise, quantise

LIMIT = 1e-3  # mean error of float32 -> bf16 as a share of the output's largest magnitude
BF16 = subjects(lambda op: declared(op, "bf16"))
each = pytest.mark.parametrize("subject", BF16, ids=str)


def placed(subject: Subject) -> Graph:
    graph = subject.graph()
    graph.nodes[0].device = "NPU"
    graph.partitions = [Partition("NPU", ["node"], list(graph.inputs), list(graph.outputs))]
    return graph


def mean_error(subject: Subject) -> float:
    """The operator in bf16 (weights rounded too) against the float64 meaning of unrounded weights, on inputs that are bf16 values: the rounding
    of an input is its producer's error."""
    graph = placed(subject)
    qgraph, node = quantize_bf16(graph), graph.nodes[0]
    given = dict(zip(graph.inputs, subject.inputs(11), strict=False))
    given = {t: dequantise(quantise(v, qgraph.quant[t]), qgraph.quant[t]) for t, v in given.items()}
    values = [given.get(t, graph.constants.get(t)) for t in node.inputs]
    expected = subject.op.reference(node, [np.asarray(v, np.float64) for v in values])[0]
    bits = run_node(node, qgraph, [quantise(given[t], qgraph.quant[t]) for t in graph.inputs])
    error = np.abs(dequantise(bits, qgraph.quant["y"]) - expected)
    return float(error.mean() / np.abs(expected).max())


def test_every_operator_with_a_program_has_bf16() -> None:
    names = {s.name for s in BF16}
    assert names >= {
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "AveragePool",
        "Add",
        "Sub",
        "Mul",
        "Affine",
        "Resize",
        "Concat",
        "ChannelGather",
        "SpaceToDepth",
    }


@each
def test_mean_error_is_below_the_limit(subject: Subject) -> None:
    assert mean_error(subject) <= LIMIT


@pytest.mark.parametrize("name", sorted({s.name for s in BF16}))
def test_the_limit_can_be_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is one per cent off everywhere is seen."""
    subject = Subject(name, 0)
    right = type(subject.op).bf16

    def wrong(self: Op, work: Any, inputs: list[np.ndarray]) -> np.ndarray:
        return right(self, work, inputs) + np.uint16(2)

    monkeypatch.setattr(type(subject.op), "bf16", wrong)
    assert mean_error(subject) > LIMIT


@each
def test_program_gives_the_numpy_bits(subject: Subject) -> None:
    graph = placed(subject)
    ladder = Ladder(quantize_bf16(graph), Preprocess(), load("nf-b1024-bf16"))
    binary = ladder.binary()
    for seed in (11, 21):
        feeds = dict(zip(graph.inputs, subject.inputs(seed), strict=False))
        found = ladder.climb(binary, feeds, (("csim", 1), ("sim", 1)))
        assert not found, "\n".join(map(str, found))
