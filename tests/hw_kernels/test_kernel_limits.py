"""Kernels on the NPU's data at their largest sizes and values: no sum overflows; the C++ (undefined behaviour traps) gives the integers' bits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_support import COMPILERS, function, library, outputs, passed

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.kernel_data import MODES
from npuforge.hw_kernels.levels import folder, own_kernel

COMPILER, FLAGS = COMPILERS[1] if shutil.which("clang++") else COMPILERS[0]


def halves(shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Half of the values low, half high."""
    x = np.full(shape, low)
    x.reshape(-1)[::2] = high
    return x


SIDE = (1, 16, 32, 64)  # 2^15 values
NORMALISED: list[tuple[str, dict[str, Any], list[np.ndarray]]] = [
    ("GroupNormalization", {"num_groups": 1}, [halves(SIDE, -3e4, 3e4), np.full(16, 100.0), np.full(16, -100.0)]),
    (
        "GroupNormalization",
        {"num_groups": 1, "epsilon": 0.0},
        [np.eye(1, 2**15).reshape(SIDE), np.ones(16), np.zeros(16)],
    ),
    ("GroupNormalization", {"num_groups": 1, "epsilon": 1.0}, [halves(SIDE, -1e-9, 1e-9), np.ones(16), np.zeros(16)]),
    ("RMSNormalization", {"axis": 1, "epsilon": 0.0}, [halves((1, 2048, 16), 127.0, 127.0), np.ones((2048, 16))]),
    ("RMSNormalization", {"axis": 1, "epsilon": 0.0}, [np.eye(1, 2**15).reshape(1, 2048, 16), np.ones((2048, 16))]),
    ("Softmax", {"axis": 1}, [halves((1, 1024, 1), -1e5, 1e5)]),
    ("Softmax", {"axis": 1}, [np.zeros((1, 1024, 1))]),
]


@pytest.mark.parametrize("number", range(len(NORMALISED)))
def test_the_largest_sets(number: int, tmp_path: Path) -> None:
    name, attrs, inputs = NORMALISED[number]
    op = operator.registry()[name]
    node = Node("n", name, [f"x{i}" for i in range(len(inputs))], ["y"], attrs)
    place = folder(op)
    assert place is not None
    for level in ("int8", "bf16"):
        form = own_kernel(op, level)
        assert form is not None
        text = function("call", form.top, form.arguments, accepts=True)
        call = library(place / "kernel.hpp", text, COMPILER, FLAGS, tmp_path / level).call
        for mode in MODES:
            if (mode == "bf16") != (level == "bf16"):
                continue
            run = form.run(node, inputs, mode)
            expected = op.reference(node, run.inputs)[0]
            assert (np.abs(run.results[0] - expected) <= run.bounds[0]).all(), mode
            for arguments, written in run.calls:
                assert call(*passed(form.arguments, arguments)) == 1
                np.testing.assert_array_equal(outputs(form.arguments, arguments)[0], written[0], mode)
