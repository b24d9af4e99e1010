"""The contract of every operator that has bf16 semantics: registry x cases. Mean error against the float meaning, the bound of every value of a
convolution, and the DSL program on csim and sim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contract import Subject, subjects, wide
from ladder_bf16 import ARCHS, Ladder

from npuforge.compile.ir.graph import Activation, Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.levels import declared, folder
from npuforge.hw_kernels.operator import Case, Op
from npuforge.quant.bf16 import quantize_bf16
from npuforge.scripts.bf16_errors import LIMIT, error, placed, results

BF16 = subjects(lambda op: declared(op, "bf16"))
CONVOLUTIONS = [s for s in BF16 if s.name in ("Conv", "ConvTranspose")]
STEEPEST = 1.13  # of the fused activations: CustomGELU's largest slope
each = pytest.mark.parametrize("subject", BF16, ids=str)


def on_the_npu(subject: Subject) -> Graph:
    return placed(subject.name, subject.case)


def mean_error(subject: Subject) -> float:
    """What the rule limits: mean error as a share of the largest magnitude, on inputs that are bf16 values."""
    return error(subject.name, subject.case).share


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
    found = mean_error(subject)
    assert found <= LIMIT, (
        f"{subject}: mean error {found:.3g}, expected at most {LIMIT}; mend the program, or enlarge a case of a few values, on which the rounding of "
        "the result alone can be as large"
    )


def make_off(monkeypatch: pytest.MonkeyPatch, name: str, units: int = 2) -> None:
    """Results off everywhere, by one per cent for two units of the last place."""
    right = type(Subject(name, 0).op).bf16

    def wrong(self: Op, work: Any, inputs: list[np.ndarray]) -> np.ndarray:
        return right(self, work, inputs) + np.uint16(units)

    monkeypatch.setattr(type(Subject(name, 0).op), "bf16", wrong)


@pytest.mark.parametrize("name", sorted({s.name for s in BF16 if folder(s.op)}))
def test_the_limit_can_be_broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_off(monkeypatch, name)
    assert mean_error(Subject(name, 0)) > LIMIT


# ---- every value: what the rounding of weights and result can do to a sum, whatever cancels in it
def bound_share(graph: Graph, inputs: list[np.ndarray]) -> tuple[float, float]:
    """The largest error as a share of its bound, and the mean error as a share of the largest magnitude.

    A weight is off by 2^-8 of itself at most (half a unit of 8 significant bits), so is the result; the sum in float32 and the curve add little.
    """
    node = graph.nodes[0]
    found, expected, (x, weight, bias) = results(graph, inputs)
    plain = replace(node, activation=Activation())
    products = type(Subject(node.op, 0).op)().reference(plain, [np.abs(x), np.abs(weight), np.abs(bias)])[0]
    bound = STEEPEST * 2.0**-8 * 1.01 * products + 2.0**-8 * 1.01 * np.abs(expected) + 1e-4
    off = np.abs(found - expected)
    return float((off / bound).max()), float(off.mean() / np.abs(expected).max())


@pytest.mark.parametrize("subject", CONVOLUTIONS, ids=str)
def test_every_value_of_a_convolution_is_within_the_bound_of_its_products(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bound_share(on_the_npu(subject), subject.inputs(11))[0] <= 1.0
    make_off(monkeypatch, subject.name, units=8)
    assert bound_share(on_the_npu(subject), subject.inputs(11))[0] > 1.0


def test_products_that_cancel_lose_more_than_the_rule_at_any_magnitude() -> None:
    """Nothing is rounded wrongly: the sum is small beside its products, whose weights are rounded. So a layer above 1e-3 need not be a fault."""
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    graph = placed("Conv", Case([(1, 16, 8, 8)], window, [(8, 16, 3, 3), (8,)]))
    weight, bias = (graph.constants[t] for t in graph.nodes[0].inputs[1:3])
    weight -= weight.mean(axis=(1, 2, 3), keepdims=True)  # edge filters, on a map that is bright everywhere
    bias[...] = 0
    bright = np.random.default_rng(3).normal(30.0, 1.0, (1, 16, 8, 8)).astype(np.float32)
    shares = []
    for scale in (1.0, 2.0**20, 2.0**-4):
        within, share = bound_share(graph, [np.float32(scale) * bright])
        assert within <= 1.0
        shares.append(share)
    assert shares[0] > LIMIT and max(shares) - min(shares) < 1e-9


# ---- the program
@pytest.mark.parametrize("arch", ARCHS)
@each
def test_program_gives_the_numpy_bits(subject: Subject, arch: str) -> None:
    """csim and sim against the folder's numpy semantics in lanes, and those within bf16's precision of the float meaning."""
    graph = on_the_npu(subject)
    ladder = Ladder(quantize_bf16(graph), Preprocess(), load(arch))
    binary = ladder.binary()
    for seed in (11, 21):
        feeds = dict(zip(graph.inputs, subject.inputs(seed), strict=False))
        found = ladder.climb(binary, feeds, (("csim", 1), ("sim", 1)))
        assert not found, "\n".join(map(str, found))
        values = [feeds.get(t, graph.constants.get(t)) for t in graph.nodes[0].inputs]
        expected = subject.op.reference(graph.nodes[0], wide(values))[0]
        y = LaneExecutor(ladder.qgraph, ladder.arch).run_all(feeds)[1]["y"]
        noise, signal = np.square(y - expected).mean(), np.square(expected).mean()
        assert (
            10 * np.log10(signal / max(noise, 1e-30)) > 40.0
        )  # 8 significant bits of operands and result give 45 to 55
