"""The contract of every operator whose NPU-DSL text is for other targets (`Op.dsl`): the text means what the operator's float64 reference says, in every case."""

from __future__ import annotations

import numpy as np
import pytest
from contract import Subject, subjects, wide

from npuforge.compile.ir.errors import InstructionError
from npuforge.hw_kernels.dsl.array import ArrayKernel
from npuforge.hw_kernels.dsl.kernel import Kernel
from npuforge.hw_kernels.levels import array_program, declared
from npuforge.hw_kernels.operator import registry

OVER_TILES = subjects(lambda op: isinstance(op.dsl, Kernel))
OVER_ARRAYS = subjects(lambda op: array_program(op) is not None)


@pytest.mark.parametrize("subject", OVER_TILES, ids=str)
def test_program_over_tiles(subject: Subject) -> None:
    node, inputs = subject.graph().nodes[0], wide(subject.inputs())
    (expected,) = subject.op.reference(node, inputs)
    np.testing.assert_allclose(subject.op.dsl.meaning(node.attrs).meaning(inputs), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("subject", OVER_ARRAYS, ids=str)
def test_program_over_arrays(subject: Subject) -> None:
    """A case that the program refuses has one that it takes beside it."""
    node, inputs = subject.graph().nodes[0], wide(subject.inputs())
    expected = subject.op.reference(node, inputs)
    inputs = subject.op.completed(inputs)
    try:
        trace = subject.op.dsl.trace([x.shape for x in inputs], node.attrs)
    except InstructionError:
        return
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 2e-5)):
        found = trace.meaning(inputs, dtype)
        assert len(found) >= len(expected)
        for f, e in zip(found, expected, strict=False):
            assert f.shape == np.shape(e)
            np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", sorted({s.name for s in OVER_ARRAYS}))
def test_a_program_takes_its_cases(name: str) -> None:
    """All but empty inputs, which no target calls an operator for."""
    op, refused = registry()[name], 0
    program = array_program(op)
    assert isinstance(program, ArrayKernel) and not declared(op, "DSL")
    for subject in (s for s in OVER_ARRAYS if s.name == name):
        shapes = [np.shape(x) for x in op.completed(subject.inputs())]
        if any(0 in shape for shape in shapes):
            continue
        try:
            program.trace(shapes, subject.graph().nodes[0].attrs)
        except InstructionError:
            refused += 1
    assert refused == 0
