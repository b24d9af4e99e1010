"""Kernels of operators' own on inputs without an element: no map, no pixel, no box, no stored value. Expected shapes by hand; what has no value has no error."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from kernel_support import COMPILERS, outputs, passed
from test_operator_contract_kernels import LEVEL, built

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.kernel_data import MODES, scales
from npuforge.hw_kernels.levels import own_kernel
from npuforge.hw_kernels.operator import UNWRITTEN

Shapes = list[tuple[int, ...]]
NMS = {"iou_threshold": 0.5, "score_threshold": 0.1, "max_output_boxes_per_class": 3}
BINS = {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
YOLO = {"anchors": [8.0, 8.0], "strides": [8], "num_classes": 2}
LIMITS = [np.array([3]), np.float32([0.5]), np.float32([0.1])]
ROWS, COLUMNS = np.zeros(3, np.int64), np.zeros(0, np.int64)  # of a sparse matrix of two rows, without a value

CASES = [
    ("Softmax", {"axis": 1}, [(0, 5, 2, 2)], [(0, 5, 2, 2)]),
    ("Softmax", {"axis": 1}, [(1, 5, 0, 2)], [(1, 5, 0, 2)]),
    ("Softmax", {"axis": 1}, [(1, 0, 2, 2)], [(1, 0, 2, 2)]),
    ("LayerNormalization", {"axis": -1}, [(0, 3, 7), (7,), (7,)], [(0, 3, 7)]),
    ("RMSNormalization", {"axis": -1}, [(0, 3, 7), (7,)], [(0, 3, 7)]),
    ("GroupNormalization", {"num_groups": 2}, [(0, 4, 2, 2), (4,), (4,)], [(0, 4, 2, 2)]),
    ("GroupNormalization", {"num_groups": 2}, [(1, 4, 0, 2), (4,), (4,)], [(1, 4, 0, 2)]),
    ("InstanceNormalization", {}, [(0, 4, 2, 2), (4,), (4,)], [(0, 4, 2, 2)]),
    ("npuforge::LeakyReluMask", {"alpha": 0.1}, [(0, 4, 2, 2)], [(0, 4, 2, 2)] * 2),
    ("npuforge::LeakyReluMask", {"alpha": 0.1}, [(1, 4, 2, 0)], [(1, 4, 2, 0)] * 2),
    ("npuforge::AlignNhwc16", {}, [(0, 4, 2, 2)], [(0, 2, 2, 16)]),
    ("npuforge::UnalignNhwc16", {"channels": 4}, [(0, 3, 5, 16)], [(0, 4, 3, 5)]),
    ("DepthToSpace", {"blocksize": 2, "mode": "DCR"}, [(0, 8, 2, 2)], [(0, 2, 4, 4)]),
    ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, [(1, 8, 2, 0)], [(1, 2, 4, 0)]),
    ("npuforge::AngleEncode", {"axis": 1}, [(0, 4, 2, 2)], [(0, 8, 2, 2)]),
    ("npuforge::AngleDecode", {"axis": 1}, [(0, 4, 2, 2)], [(0, 2, 2, 2)]),
    ("npuforge::CsrMatMul", {}, [(3, 5), (0,), COLUMNS, ROWS], [(2, 5)]),
    ("npuforge::CsrMatMul", {}, [(3, 5), (0,), COLUMNS, ROWS[:1]], [(0, 5)]),
    ("npuforge::CsrMatMul", {}, [(0, 5), (0,), COLUMNS, ROWS], [(2, 5)]),
    ("npuforge::CsrMatMul", {}, [(3, 0), (0,), COLUMNS, ROWS], [(2, 0)]),
    ("npuforge::RotatedIou", {}, [(3, 5), (0, 5)], [(3, 0)]),
    ("npuforge::RotatedIou", {}, [(0, 5), (3, 5)], [(0, 3)]),
    ("npuforge::RotatedIou", {}, [(0, 5), (0, 5)], [(0, 0)]),
    ("npuforge::RotatedNms", NMS, [(0, 5), (2, 0)], [(0, 2)]),
    ("npuforge::RotatedNms", NMS, [(4, 5), (0, 4)], [(0, 2)]),
    ("NonMaxSuppression", {}, [(1, 0, 4), (1, 2, 0), *LIMITS], [(0, 3)]),
    ("NonMaxSuppression", {}, [(0, 3, 4), (0, 2, 3), *LIMITS], [(0, 3)]),
    ("NonMaxSuppression", {}, [(1, 3, 4), (1, 0, 3), *LIMITS], [(0, 3)]),
    ("npuforge::RotatedRoiAlign", BINS, [(1, 3, 4, 4), (0, 6)], [(0, 3, 2, 3)]),
    ("npuforge::RotatedRoiAlign", BINS, [(0, 3, 4, 4), (0, 6)], [(0, 3, 2, 3)]),
    ("npuforge::YoloDecode", YOLO, [(1, 7, 0, 2)], [(1, 0, 4), (1, 0), (1, 0)]),
]


def test_every_kernel_is_asked() -> None:
    own = {name for name, op in operator.registry().items() if own_kernel(op, "int8") or own_kernel(op, "bf16")}
    assert {name for name, *_ in CASES} == own


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "attributes", "given", "expected"), CASES)
def test_the_results_are_as_empty_as_the_operator_says(
    name: str, attributes: dict, given: list, expected: Shapes
) -> None:
    inputs = [np.ones(x, np.float32) if isinstance(x, tuple) else x for x in given]
    node = Node("n", name, [f"x{k}" for k in range(len(given))], [f"y{k}" for k in range(len(expected))], attributes)
    op = operator.get(node)
    if 0 not in given[0][1:2]:  # softmax over nothing has no meaning in floats
        meaning = op.reference(node, [x.astype(np.float64) if x.dtype == np.float32 else x for x in inputs])
        assert [y.shape for y in meaning] == expected
    for mode in MODES:
        form = own_kernel(op, LEVEL[mode])
        assert form is not None
        found = form.run(node, inputs, mode)
        assert [y.shape for y in found.results] == expected, mode
        assert all((y == 0).all() for y in found.results), mode  # a product with nothing; else there is no value


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES}))
def test_c_simulation_takes_what_is_empty(name: str, tmp_path: Path) -> None:
    """Where the kernel is called at all."""
    compiler, flags = COMPILERS[1] if shutil.which("clang++") else COMPILERS[0]
    calls = built(name, compiler, flags, tmp_path / "build")
    for _, attributes, given, expected in (c for c in CASES if c[0] == name):
        inputs = [np.ones(x, np.float32) if isinstance(x, tuple) else x for x in given]
        node = Node(
            "n", name, [f"x{k}" for k in range(len(given))], [f"y{k}" for k in range(len(expected))], attributes
        )
        for mode in MODES:
            form = own_kernel(operator.get(node), LEVEL[mode])
            assert form is not None
            for arguments, values in form.run(node, inputs, mode).calls:
                written = outputs(form.arguments, arguments)
                for array in written:
                    array[...] = UNWRITTEN
                assert calls[mode](*passed(form.arguments, arguments)) == 1, (mode, given)
                for array, value in zip(written, values, strict=True):
                    np.testing.assert_array_equal(array, value)


def test_scales_by_hand() -> None:
    """Of nothing: 1 and the middle. Of a channel from 0 to 255 beside an empty axis or not: 1 and -128."""
    for mode in MODES:
        assert scales(np.zeros((0, 5)), 1, mode).scale.shape == (5,)
    assert (scales(np.zeros((0, 5)), 1, "fine").scale == 1).all()
    found = scales(np.array([[0.0, 255.0], [0.0, 255.0]]), 0, "fine")
    assert found.scale.tolist() == [1, 1] and found.zero_point.tolist() == [-128, -128]
