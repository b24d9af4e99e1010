"""The contract of every operator that has a kernel of its own on the NPU's data: registry x cases x {int8 fine, int8 pow2, bf16}.

The folder's integers are within their stated bound of the float meaning of the same (dequantised) inputs; the C simulation of the kernel gives these
integers, bit for bit, compiled by g++ and by clang++ whose undefined behaviour traps; sizes beyond a kernel's bounds are refused.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import Subject, subjects
from kernel_support import COMPILERS, check_refusals, function, library, outputs, passed

from npuforge.hw_kernels import operator
from npuforge.hw_kernels.kernel_data import MODES
from npuforge.hw_kernels.levels import declared, folder, own_kernel
from npuforge.hw_kernels.operator import KernelForm, KernelRun, Op
from npuforge.scripts.bf16_errors import LIMIT, error

LEVEL = {"fine": "int8", "pow2": "int8", "bf16": "bf16"}
OWN = subjects(lambda op: own_kernel(op, "int8") is not None or own_kernel(op, "bf16") is not None)
NAMES = sorted({s.name for s in OWN})
each = pytest.mark.parametrize("subject", OWN, ids=str)
modes = pytest.mark.parametrize("mode", MODES)


def form_of(op: Op, mode: str) -> KernelForm:
    form = own_kernel(op, LEVEL[mode])
    assert form is not None
    return form


def run(subject: Subject, mode: str, inputs: list[Any] | None = None) -> KernelRun:
    form = form_of(subject.op, mode)
    return form.run(subject.graph().nodes[0], subject.inputs(11) if inputs is None else inputs, mode)


def bound_share(subject: Subject, found: KernelRun) -> float:
    """The largest error as a share of its stated bound."""
    expected = subject.op.reference(subject.graph().nodes[0], found.inputs)
    assert len(expected) == len(found.results) == len(found.bounds)
    shares = [0.0]
    for result, value, bound in zip(found.results, expected, found.bounds, strict=True):
        assert result.shape == value.shape and np.isfinite(result).all()
        off, bound = np.abs(result - value), np.broadcast_to(bound, value.shape)
        exact = bound == 0  # any difference breaks it
        shares.append(np.inf if off[exact].any() else float((off[~exact] / bound[~exact]).max(initial=0.0)))
    return max(shares)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_has_both_forms_and_no_engine_has_the_level(name: str) -> None:
    op = operator.registry()[name]
    assert own_kernel(op, "int8") is not None and own_kernel(op, "bf16") is not None
    assert not declared(op, "int8") and not declared(op, "bf16")


@modes
@each
def test_error_is_within_the_stated_bound(subject: Subject, mode: str) -> None:
    assert bound_share(subject, run(subject, mode)) <= 1.0


@modes
@each
def test_the_bound_can_be_broken(subject: Subject, mode: str) -> None:
    """A result that is off by a twentieth of the largest magnitude is seen, wherever it is."""
    found = run(subject, mode)
    for result in found.results:
        peak = np.abs(result).max(initial=0.0)
        if peak > 0:
            result[...] += np.where(result < 0, 1, -1) * 0.05 * peak
            assert bound_share(subject, found) > 1.0


@each
def test_the_mean_error_in_bf16_is_below_the_limit(subject: Subject) -> None:
    assert error(subject.name, subject.case).share <= LIMIT


def built(name: str, compiler: str, flags: tuple[str, ...], where: Path) -> dict[str, Any]:
    """The kernel of every level; each says whether it accepts."""
    op = operator.registry()[name]
    place, forms = folder(op), {level: own_kernel(op, level) for level in ("int8", "bf16")}
    assert place is not None
    text = "".join(
        function(f"call_{level}", form.top, form.arguments, accepts=True)
        for level, form in forms.items()
        if form is not None
    )
    calls = library(place / "kernel.hpp", text, compiler, flags, where)
    return {mode: getattr(calls, f"call_{level}") for mode, level in LEVEL.items()}


@pytest.mark.parametrize(("compiler", "flags"), COMPILERS, ids=["g++", "clang++-undefined-traps"])
@pytest.mark.parametrize("name", NAMES)
def test_c_simulation_gives_the_integer_bits(name: str, compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    calls = built(name, compiler, flags, tmp_path / "build")
    for subject in [s for s in OWN if s.name == name]:
        for mode in MODES:
            form = form_of(subject.op, mode)
            for seed in (11, 12):
                for arguments, expected in run(subject, mode, subject.inputs(seed)).calls:
                    written = outputs(form.arguments, arguments)
                    for array in written:
                        array[...] = 77  # every byte is the kernel's, pad lanes too
                    assert calls[mode](*passed(form.arguments, arguments)) == 1
                    for array, value in zip(written, expected, strict=True):
                        np.testing.assert_array_equal(array, value, f"{subject} {mode}")


@pytest.mark.parametrize("name", NAMES)
def test_sizes_beyond_the_bounds_are_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    compiler, flags = COMPILERS[1] if shutil.which("clang++") else COMPILERS[0]
    calls = built(name, compiler, flags, tmp_path / "build")
    for mode in MODES:
        form = form_of(operator.registry()[name], mode)
        assert form.refused, "every kernel has bounds"
        (arguments, _), *_ = run(Subject(name, 0), mode).calls
        check_refusals(calls[mode], form.arguments, arguments, form.refused)
