"""Kernels on the NPU's data over drawn shapes, magnitudes and offsets (stated error), and at their largest sizes and values: no sum overflows; the C++ (undefined behaviour traps) gives the integers' bits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


def within(name: str, attrs: dict[str, Any], inputs: list[np.ndarray], mode: str) -> None:
    """The error is within what the operator states."""
    op = operator.registry()[name]
    form = own_kernel(op, "bf16" if mode == "bf16" else "int8")
    node = Node("n", name, [f"x{i}" for i in range(len(inputs))], ["y"], attrs)
    assert form is not None
    run = form.run(node, inputs, mode)
    off = np.abs(run.results[0] - op.reference(node, run.inputs)[0])
    assert (off <= run.bounds[0]).all(), float((off / run.bounds[0]).max())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    channels=st.integers(1, 20),
    pixels=st.integers(1, 6),
    magnitude=st.floats(-6, 5),
    offset=st.floats(-4, 4),
    unlike=st.floats(0, 3),
    mode=st.sampled_from(MODES),
)
def test_drawn_tensors_stay_within_the_stated_error(
    seed: int, channels: int, pixels: int, magnitude: float, offset: float, unlike: float, mode: str
) -> None:
    """Channels up to 10^3 unlike, values from 10^-9 to 10^9, means up to 4 deviations off; scales and biases of either sign."""
    random = np.random.default_rng(seed)
    ranges = 10.0 ** (magnitude + random.uniform(-unlike, unlike, channels))
    x = (random.normal(offset, 1.0, (2, channels, pixels)) * ranges[:, None]).astype(np.float32)
    scale, bias = random.normal(0, 2, (2, channels)).astype(np.float32)
    epsilon = float(10.0 ** random.uniform(-12, 0))
    groups = int(random.choice([g for g in range(1, channels + 1) if channels % g == 0]))
    within("Softmax", {"axis": int(random.integers(0, 3))}, [x], mode)
    within("GroupNormalization", {"num_groups": groups, "epsilon": epsilon}, [x, scale, bias], mode)
    features = np.moveaxis(x, 1, -1)
    within("LayerNormalization", {"axis": -1, "epsilon": epsilon}, [features, scale, bias], mode)
    within(
        "RMSNormalization",
        {"axis": 1, "epsilon": epsilon},
        [features, np.broadcast_to(scale, (pixels, channels))],
        mode,
    )


SIDE = (1, 16, 32, 64)  # 2^15 values
EXTREME: list[tuple[str, dict[str, Any], list[np.ndarray]]] = [
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
    ("Softmax", {"axis": 1}, [np.array([3e38, -3e38, 2.99e38, 1.0]).reshape(1, 4, 1)]),
    ("Softmax", {"axis": 1}, [np.array([-1e6, 1e-6, 2e6, 2e6]).reshape(1, 4, 1)]),
]


@pytest.fixture(scope="module")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, so that every kernel is compiled once."""
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize("number", range(len(EXTREME)))
def test_the_largest_sets(number: int, build_folder: Path) -> None:
    name, attrs, inputs = EXTREME[number]
    op = operator.registry()[name]
    node = Node("n", name, [f"x{i}" for i in range(len(inputs))], ["y"], attrs)
    place = folder(op)
    assert place is not None
    for level in ("int8", "bf16"):
        form = own_kernel(op, level)
        assert form is not None
        text = function("call", form.top, form.arguments, accepts=True)
        call = library(place / "kernel.hpp", text, COMPILER, FLAGS, build_folder / f"{place.name}-{level}").call
        for mode in MODES:
            if (mode == "bf16") != (level == "bf16"):
                continue
            run = form.run(node, inputs, mode)
            expected = op.reference(node, run.inputs)[0]
            assert (np.abs(run.results[0] - expected) <= run.bounds[0]).all(), mode
            for arguments, written in run.calls:
                assert call(*passed(form.arguments, arguments)) == 1
                np.testing.assert_array_equal(outputs(form.arguments, arguments)[0], written[0], mode)
