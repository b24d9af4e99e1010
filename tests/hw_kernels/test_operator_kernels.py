"""HLS kernels of operator folders: compiled by g++ and clang++, C simulation against the folders' numpy integers, bit for bit; CORDIC's errors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hls_support import HLS
from kernel_support import COMPILERS, check_refusals, function, library, outputs, passed

from npuforge.hw_kernels import cordic, operator
from npuforge.hw_kernels.levels import folder
from npuforge.hw_kernels.ops.silu_polynomial.op import fixed_point

OPS = {name: op for name, op in sorted(operator.registry().items()) if op.kernel is not None}
# Kernels with bounds: argument -> values just beyond them.
REFUSED: dict[str, dict[int, tuple[int, ...]]] = {
    "Softmax": {1: (0, -1, 1025)},
    "LayerNormalization": {3: (0, 4097), 4: (-1, 65537)},
    "GroupNormalization": {3: (0, 32769), 4: (0, 32769, 2**30), 5: (-1, 65537)},
    "npuforge::YoloDecode": {
        1: (0, 257),
        2: (0, 257),
        3: (0, 2**30),
        5: (0, 17),
        6: (0, 257),
        7: (0, 129),
        8: (-2, 16385),
        9: (-1, 2**21),
    },
    "npuforge::RotatedIou": {1: (-1, 257), 3: (-1, 257)},
    "npuforge::RotatedNms": {2: (-1, 513)},
    "NonMaxSuppression": {2: (-1, 1025)},
    "npuforge::RotatedRoiAlign": {1: (0, 4097), 2: (0, 4097), 5: (0, 33), 6: (0, 33), 7: (0, 9)},
    "DepthToSpace": {1: (0, 1025), 2: (0, 1025), 3: (0, 1025), 4: (0, 17)},
    "npuforge::CsrMatMul": {3: (-1, 4097)},
}


def test_every_kernel_header_is_declared() -> None:
    """And the other way round; the tests below run over what is declared."""
    headers = {p.parent.name for p in (HLS.parent / "ops").glob("*/kernel.hpp")}
    declared = {where.name for op in OPS.values() if (where := folder(op)) is not None}
    assert headers == declared and headers


def built(name: str, compiler: str, flags: tuple[str, ...], where: Path) -> Any:
    """The kernel as `call`, and as `accepts` where it has bounds."""
    op, kernel = OPS[name], OPS[name].kernel
    place = folder(op)
    assert kernel is not None and place is not None
    text = function("call", kernel.top, kernel.arguments, accepts=False)
    if op.names[0] in REFUSED:
        text += function("accepts", kernel.top, kernel.arguments, accepts=True)
    return library(place / "kernel.hpp", text, compiler, flags, where)


@pytest.mark.parametrize(("compiler", "flags"), COMPILERS, ids=["g++", "clang++-undefined-traps"])
@pytest.mark.parametrize("name", OPS)
def test_c_simulation_gives_the_integer_bits(name: str, compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    kernel = OPS[name].kernel
    assert kernel is not None
    call = built(name, compiler, flags, tmp_path / "build").call
    random = np.random.default_rng(6)
    for _ in range(60):
        arguments, expected = kernel.cases(random)
        call(*passed(kernel.arguments, arguments))
        for found, value in zip(outputs(kernel.arguments, arguments), expected, strict=True):
            np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("name", REFUSED)
def test_sizes_beyond_the_bounds_are_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    compiler, flags = COMPILERS[1] if shutil.which("clang++") else COMPILERS[0]
    kernel = OPS[name].kernel
    assert kernel is not None
    accepts = built(name, compiler, flags, tmp_path / "build").accepts
    arguments, _ = kernel.cases(np.random.default_rng(6))
    check_refusals(accepts, kernel.arguments, arguments, REFUSED[name])


def test_cordic_against_sine_and_cosine_of_every_angle() -> None:
    angles = np.arange(-32768, 32768).astype(np.int16)
    sine, cosine = cordic.rotate(angles)
    real = angles * (2 * np.pi / 65536)
    assert np.abs(sine - np.sin(real) * 16384).max() <= 2
    assert np.abs(cosine - np.cos(real) * 16384).max() <= 2
    back = cordic.angle_of(cosine, sine).astype(np.int64) - angles
    assert np.abs((back + 32768) % 65536 - 32768).max() <= 4  # 14 bits hold an angle to 2^16 / (2 pi 2^14) = 0.64 units


def test_cordic_angle_against_atan2() -> None:
    random = np.random.default_rng(9)
    x, y = random.integers(-32768, 32768, (2, 200000)).astype(np.int16)
    far = np.hypot(x.astype(float), y) > 256
    found = cordic.angle_of(x, y)[far]
    exact = np.arctan2(y.astype(float), x)[far] * (65536 / (2 * np.pi))
    assert np.abs((found - exact + 32768) % 65536 - 32768).max() <= 2


def test_silu_polynomial_in_integers_follows_the_formula() -> None:
    from npuforge.hw_kernels.formulas import FORMULAS

    t = np.arange(-32768, 32768).astype(np.int16)
    exact = FORMULAS["SiluPolynomial"].value(np, t / 2048.0, {}) * 2048
    assert np.abs(fixed_point(t) - exact).max() <= 1.5
