"""More than one image: what every operator of the NPU means on a batch, in float, in C++ and in gradients. (The NPU itself takes one image at a time; the
partitioner gives batches to the CPU partition and says so.) The right value is each image alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract import Subject, check_gradient, run_cpu, subjects, wide

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.levels import declared

IMAGES = 3


def on_maps(subject: Subject) -> bool:
    """A program of the NPU on feature maps, without broadcast operands of other batch sizes."""
    return declared(subject.op, "DSL") and all(len(s) == 4 and s[0] == 1 for s in subject.case.x)


CASES = [s for s in subjects() if on_maps(s)]


def batch(subject: Subject) -> tuple[Node, list[np.ndarray], list[list[np.ndarray]]]:
    """The node, its inputs with IMAGES images, and the inputs of each image alone."""
    drawn = [subject.inputs(seed) for seed in range(IMAGES)]
    maps = len(subject.case.x)
    alone = [[*inputs[:maps], *drawn[0][maps:]] for inputs in drawn]  # the weights of the first
    joined = [np.concatenate([inputs[i] for inputs in alone]) for i in range(maps)]
    return subject.graph().nodes[0], [*joined, *drawn[0][maps:]], alone


@pytest.mark.parametrize("subject", CASES, ids=str)
def test_each_image_is_computed_by_itself(subject: Subject) -> None:
    node, inputs, alone = batch(subject)
    found = subject.op.reference(node, wide(inputs))
    single = [subject.op.reference(node, wide(values)) for values in alone]
    for position, value in enumerate(found):
        np.testing.assert_allclose(value, np.concatenate([s[position] for s in single]), rtol=1e-12, atol=1e-12)
    assert [v.shape for v in found] == subject.op.infer(node, [np.shape(v) for v in inputs])


@pytest.mark.parametrize("subject", [s for s in CASES if declared(s.op, "CPU")], ids=str)
def test_the_cpu_kernel_takes_batches(subject: Subject) -> None:
    node, inputs, _ = batch(subject)
    expected = subject.op.reference(node, wide(inputs))
    for found, value in zip(run_cpu(node, inputs), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("subject", [s for s in CASES if declared(s.op, "gradient") and s.number == 0], ids=str)
def test_gradients_of_batches_are_the_central_difference(subject: Subject) -> None:
    node, inputs, _ = batch(subject)
    assert check_gradient(subject.op, replace(node), inputs) > 0


def test_every_engine_is_in_it() -> None:
    assert {s.name for s in CASES} >= {
        "Conv", "ConvTranspose", "MaxPool", "AveragePool", "Add", "Sub", "Mul", "Affine", "Resize", "Concat", "ChannelGather", "SpaceToDepth",
    }  # fmt: skip
