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

from npuforge.compile.ir.errors import QuantisationError
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.kernel_data import MODES
from npuforge.hw_kernels.levels import declared, folder, own_kernel
from npuforge.hw_kernels.operator import UNWRITTEN, KernelForm, KernelRun, Op
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
    with np.errstate(all="ignore"):
        expected = subject.op.reference(subject.graph().nodes[0], found.inputs)
    assert len(expected) == len(found.results) == len(found.bounds)
    shares = [0.0]
    for result, value, bound in zip(found.results, expected, found.bounds, strict=True):
        assert result.shape == value.shape
        number = np.isfinite(value)
        np.testing.assert_array_equal(result[~number], value[~number])  # NaN for NaN, infinity for the same
        if not np.isfinite(result[number]).all():
            return np.inf
        off, bound = np.abs(result - value)[number], np.broadcast_to(bound, value.shape)[number]
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


SPECIAL = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
SPECIAL |= {"1e5": 1e5, "-1e5": -1e5, "0": 0.0, "-0": -0.0, "subnormal": 1e-40, "-subnormal": -1e-40}


def with_value(subject: Subject, label: str) -> list[Any]:
    """The case's inputs, one element of the first being the special value."""
    inputs = [np.array(x) for x in subject.inputs(11)]
    inputs[0].reshape(-1)[inputs[0].size // 2] = SPECIAL[label]
    return inputs


WITH_VALUES = [s for s in OWN if np.size(s.inputs(11)[0])]  # the others are lists without a detection


@pytest.mark.parametrize("label", SPECIAL)
@modes
@pytest.mark.parametrize("subject", WITH_VALUES, ids=str)
def test_special_values_have_the_float_meaning(subject: Subject, mode: str, label: str) -> None:
    """In int8 NaN and infinity have no scale and are refused."""
    inputs = with_value(subject, label)
    with np.errstate(all="ignore"):
        if mode != "bf16" and not np.isfinite(SPECIAL[label]):
            with pytest.raises(QuantisationError, match="not finite"):
                run(subject, mode, inputs)
        else:
            assert bound_share(subject, run(subject, mode, inputs)) <= 1.0


@modes
@each
def test_zeros_have_the_float_meaning(subject: Subject, mode: str) -> None:
    inputs = [np.array(x) for x in subject.inputs(11)]
    inputs[0][...] = 0
    assert bound_share(subject, run(subject, mode, inputs)) <= 1.0


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
            drawn = [subject.inputs(11), subject.inputs(12)]
            if mode == "bf16" and subject in WITH_VALUES:
                drawn += [with_value(subject, label) for label in SPECIAL]
            for inputs in drawn:
                with np.errstate(all="ignore"):
                    calls_made = run(subject, mode, inputs).calls
                for arguments, expected in calls_made:
                    written = outputs(form.arguments, arguments)
                    for array in written:
                        array[...] = UNWRITTEN  # every byte is the kernel's, pad lanes too
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
