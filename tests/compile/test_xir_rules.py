"""XIR's rules for operators' inputs and attribute values: every row of the table on a file that keeps them and on files that break them.

Expected shapes and refusals are those of the facts about XIR (`../shared/xir/xir-op-table.md`), worked out by hand, or NumPy's. Where the vendor's `xir`
module is importable, its library takes the good files and ends its process on those that the facts call fatal (`FATAL`):

    LD_LIBRARY_PATH=PREFIX/lib pytest tests/compile/test_xir_rules.py
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xir_faults import FATAL, STRICT, Fault
from xir_good_ops import GOOD, Shapes, model_of

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import XModel, to_message
from npuforge.compile.xir.shapes import AXES, RULES, shape_problems
from npuforge.compile.xir.validate import UNDECLARED, VALUES, check_schema, operator_table, problems, read_checked

FAULTS = [*FATAL, *STRICT]


def test_every_operator_has_a_row() -> None:
    assert set(RULES) == set(operator_table())
    assert {case.type for case in GOOD} == set(operator_table())
    for op_type, axes in AXES.items():
        assert set(axes) <= set(operator_table()[op_type]["args"])
    for allowed in VALUES.values():
        assert set(allowed) <= {"", *operator_table()}
    assert set(UNDECLARED) <= set(operator_table())


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.type)
def test_good_operators_pass_with_the_shape_of_the_facts(case: Any) -> None:
    model = model_of(case)
    assert problems(model) == [] and shape_problems(model) == []
    model.ops[-1].tensor.shape = [9, *case.output]
    (line,) = shape_problems(model)
    assert line.endswith(
        f"its tensor has shape {[9, *case.output]}; the operator gives {case.output}"
    ) or case.type in (
        "const",
        "const-fix",
    )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults_are_named(fault: Fault, tmp_path: Path) -> None:
    model = fault.model()
    (line,) = problems(model)
    assert line.startswith(f"op 'o' ({model.ops[-1].type}): ") and "\n" not in line
    path = tmp_path / "net.xmodel"
    path.write_bytes(to_message(model).SerializeToString())
    with pytest.raises(FormatError, match=fault.message) as caught:
        read_checked(path)
    assert str(caught.value).startswith(f"{path}: op 'o' (")


def test_readers_of_a_faulty_operator_are_not_blamed() -> None:
    """One message per fault, not one per operator behind it."""
    model = model_of(next(case for case in GOOD if case.type == "relu"))
    model.ops[0].attrs.pop("shape")
    (line,) = problems(model)
    assert line.startswith("op 'x0' (data): attribute 'shape' is missing")


sizes = st.lists(st.integers(1, 3), min_size=1, max_size=4)


def one(op_type: str, attrs: dict[str, Any], inputs: list[list[int]], output: list[int]) -> XModel:
    return model_of(Shapes(op_type, attrs, inputs, output))


@settings(max_examples=200, deadline=None)
@given(st.lists(sizes, min_size=2, max_size=3))
def test_broadcasting_is_numpys(shapes: list[list[int]]) -> None:
    try:
        expected = list(np.broadcast_shapes(*map(tuple, shapes)))
    except ValueError:
        (line,) = problems(one("add", {}, shapes, [1]))
        assert "do not broadcast" in line
    else:
        assert shape_problems(one("add", {}, shapes, expected)) == []


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_slices_are_numpys(data: st.DataObject) -> None:
    x = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    step = st.integers(-3, 3).filter(bool)
    bound, bit = st.integers(-9, 9), st.booleans()
    begin, end, strides, cut, rest, single = (
        [data.draw(kind) for _ in x] for kind in (bound, bound, step, bit, bit, bit)
    )
    index: list[Any] = []
    for i, size in enumerate(x):
        if single[i]:
            begin[i], strides[i] = data.draw(st.integers(-size, size - 1)), 1
            index.append(begin[i])
        else:
            index.append(slice(None if cut[i] else begin[i], None if rest[i] else end[i], strides[i]))
    expected = list(np.empty(x)[tuple(index)].shape) or [1]
    attrs: dict[str, Any] = {"begin": begin, "end": end, "strides": strides}
    for name, flags in (("begin_mask", cut), ("end_mask", rest), ("shrink_axis_mask", single)):
        attrs[name] = sum(1 << i for i, flag in enumerate(flags) if flag)
    assert shape_problems(one("strided_slice", attrs, [x], expected)) == []


@pytest.mark.parametrize(
    ("masks", "index"),
    [
        ({"ellipsis_mask": 1}, (..., slice(0, 1), slice(0, 2), slice(0, 3))),
        ({"ellipsis_mask": 4}, (slice(0, 9), slice(0, 1), ..., slice(0, 3))),
        ({"new_axis_mask": 2}, (slice(0, 9), None, slice(0, 2), slice(0, 3))),
        ({"new_axis_mask": 8, "ellipsis_mask": 2}, (slice(0, 9), ..., slice(0, 2), None)),
    ],
)
def test_ellipsis_and_new_axes_are_numpys(masks: dict[str, int], index: tuple[Any, ...]) -> None:
    x = [5, 4, 6, 7]
    attrs = {"begin": [0, 0, 0, 0], "end": [9, 1, 2, 3], "strides": [1, 1, 1, 1]} | masks
    assert shape_problems(one("strided_slice", attrs, [x], list(np.empty(x)[index].shape))) == []


@settings(max_examples=150, deadline=None)
@given(sizes, sizes, st.booleans(), st.booleans(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_products_are_numpys(
    a: list[int], b: list[int], ta: bool, tb: bool, rows: int, inner: int, columns: int
) -> None:
    first, second = [*a[:2], rows, inner], [*b[:2], inner, columns]
    attrs = {"transpose_a": ta, "transpose_b": tb}
    given_shapes = [[*s[:-2], *(s[:-3:-1] if t else s[-2:])] for s, t in ((first, ta), (second, tb))]
    try:
        expected = list(np.matmul(np.zeros(first), np.zeros(second)).shape)
    except ValueError:
        assert "do not broadcast" in problems(one("matmul", attrs, given_shapes, [1]))[0]
    else:
        assert shape_problems(one("matmul", attrs, given_shapes, expected)) == []


@settings(max_examples=200, deadline=None)
@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    *[st.tuples(st.integers(1, 3), st.integers(1, 3)) for _ in range(3)],
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_windows_are_counted(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], pad: list[int]
) -> None:
    """FLOOR is the number of places where the whole window lies inside the padded input, each axis counted one by one."""
    counts = []
    for i, length in ((1, size[0]), (0, size[1])):  # H, W; attributes are W, H
        padded, span = length + pad[2 * i] + pad[2 * i + 1], (kernel[i] - 1) * dilation[i] + 1
        counts.append(sum(1 for start in range(0, padded, stride[i]) if start + span <= padded))
    attrs = {"kernel": list(kernel), "stride": list(stride), "dilation": list(dilation), "pad": pad}
    model = model_of(
        Shapes("conv2d-fix", attrs, [[1, *size, 2]], [1, *counts, 5], {"weights": [5, kernel[1], kernel[0], 2]})
    )
    if min(counts):
        assert shape_problems(model) == []


VENDOR = """
import os, sys, xir
for path in sys.stdin.read().splitlines():
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        try:
            xir.Graph.deserialize(path)
        except BaseException:
            os._exit(3)
        os._exit(0)
    print(os.path.basename(path), os.waitpid(child, 0)[1])
"""


def vendor_statuses(paths: Sequence[str]) -> dict[str, int]:
    """How the vendor's library ends on each file, by the file's name; 0 where it reads it."""
    done = subprocess.run(
        [sys.executable, "-c", VENDOR], input="\n".join(paths), capture_output=True, text=True, check=True
    )
    statuses = {name: int(status) for name, status in (line.split() for line in done.stdout.splitlines())}
    assert set(statuses) == {Path(path).name for path in paths}
    return statuses


@pytest.mark.skipif(importlib.util.find_spec("xir") is None, reason="the vendor's module `xir` is not importable")
def test_the_vendors_library_agrees(tmp_path: Path) -> None:
    files = {f"good_{i}_{case.type}": model_of(case) for i, case in enumerate(GOOD)}
    files |= {f"fatal_{fault.name.replace(' ', '_')}": fault.model() for fault in FATAL}
    for name, model in files.items():
        (tmp_path / name).write_bytes(to_message(model).SerializeToString())
    statuses = vendor_statuses([str(tmp_path / name) for name in files])
    refused = {name for name, status in statuses.items() if status}
    assert refused == {name for name in files if name.startswith("fatal")}


def test_a_file_with_several_faults_is_refused_with_their_number() -> None:
    model = model_of(next(case for case in GOOD if case.type == "matmul"))
    model.ops[-1].args = [("input", ["x0"])]
    model.ops[1].attrs.pop("data_type")
    with pytest.raises(FormatError, match=r"^op 'x1' \(data\): attribute 'data_type' is missing.* \(and 1 more\)$"):
        check_schema(model)
