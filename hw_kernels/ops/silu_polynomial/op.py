"""SiluPolynomial: SiLU by a polynomial of degree 5 on [-8, 8], for targets without a table. Largest error 0.1945 (of the table of SiLU: 0.0027).

On the NPU it is an Affine with this activation: the polynomial itself, by table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.hw_kernels.dsl.kernel import kernel, vadd, vadds, vmaxs, vmins, vmul, vmuls
from npuforge.hw_kernels.formulas import FORMULAS, SILU_EDGE, SILU_POLYNOMIAL
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, HlsKernel, KernelCase, register

COEFFICIENTS = (50973, 30424, -31288)  # round(c * 2**18), 2**18, 2**25


def fixed_point(t: np.ndarray, fraction_bits: int = 11) -> np.ndarray:
    """The polynomial in integers, normative for kernel.hpp: t int16 with 11 fraction bits in, int16 with 11 fraction bits out.

    u = (t*t) >> 11 (11 bits), v = ((c4*u) >> 18) + c2 (18 bits), y = (t >> 1 rounded) + ((v*u >> 11) + c0 >> 7 rounded); every shift floors.
    """
    c0, c2, c4 = COEFFICIENTS
    wide = np.asarray(t, np.int64)
    edge = 8 << fraction_bits
    inner = np.clip(wide, -edge, edge)
    square = (inner * inner) >> fraction_bits
    slope = ((c4 * square) >> 18) + c2
    even = ((slope * square) >> fraction_bits) + c0
    value = (inner * 64 + even + 64) >> 7
    return np.clip(np.where(wide < -edge, 0, np.where(wide > edge, wide, value)), -32768, 32767).astype(np.int16)


def _kernel_case(random: np.random.Generator) -> KernelCase:
    x = random.integers(-32768, 32768, 16).astype(np.int16)
    x[:4] = [-32768, 32767, -16384, 16384]
    return [x, np.zeros(16, np.int16)], [fixed_point(x)]


def _beyond(distance: Any) -> Any:
    """1 where the distance is positive, else 0: exact from 2**-20 on, which no distance of float32 or float16 numbers from 8 falls below."""
    for _ in range(2):  # in two steps, as 2**20 is no float16
        distance = vmins(vmaxs(vmuls(distance, 1024.0), 0.0), 1.0)
    return distance


@kernel
def silu_polynomial(x: Any) -> Any:
    """The same for the NPU DSL: the polynomial of what is cut to [-8, 8], and what it lacks to 0 below and to x above."""
    c0, c2, c4 = SILU_POLYNOMIAL
    even = c0 + SILU_EDGE**2 * (c2 + SILU_EDGE**2 * c4)  # at both edges; the rest is x/2
    inner = vmins(vmaxs(x, -SILU_EDGE), SILU_EDGE)
    square = vmul(inner, inner)
    value = vadd(vmuls(inner, 0.5), vadds(vmul(square, vadds(vmuls(square, c4), c2)), c0))
    above = vmaxs(vadds(x, -SILU_EDGE), 0.0)
    below = vmaxs(vadds(vmuls(x, -1.0), -SILU_EDGE), 0.0)
    tails = vadd(
        vadd(above, vmuls(_beyond(above), 0.5 * SILU_EDGE - even)), vmuls(_beyond(below), 0.5 * SILU_EDGE - even)
    )
    return vadd(value, tails)


@register
class SiluPolynomial(Unary):
    """y = x/2 + 0.19444452 + 0.11605961*x**2 - 0.00093246744*x**4 on [-8, 8], 0 below, x above"""

    names = ("npuforge::SiluPolynomial",)
    host_types = ("float32",)
    attributes = ()
    onnx = ("npuforge::SiluPolynomial",)
    formula = FORMULAS["SiluPolynomial"]
    dsl = silu_polynomial
    kernel = HlsKernel("silu_polynomial", ("const int16_t*", "int16_t*"), _kernel_case)
    cases = (
        Case([(1, 3, 4, 5)]),
        Case([(1, 2, 8, 8)], values=lambda random: [random.uniform(-12, 12, (1, 2, 8, 8))], why="both tails"),
    )
