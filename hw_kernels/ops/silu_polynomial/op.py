"""SiluPolynomial: SiLU by a polynomial of degree 5 on [-8, 8], for targets without a table. Largest error 0.1945 (of the table of SiLU: 0.0027).

On the NPU it is an Affine with this activation: the polynomial itself, by table.
"""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.formulas import FORMULAS
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


@register
class SiluPolynomial(Unary):
    """y = x/2 + 0.19444452 + 0.11605961*x**2 - 0.00093246744*x**4 on [-8, 8], 0 below, x above"""

    names = ("npuforge::SiluPolynomial",)
    attributes = ()
    onnx = ("npuforge::SiluPolynomial",)
    formula = FORMULAS["SiluPolynomial"]
    kernel = HlsKernel("silu_polynomial", ("const int16_t*", "int16_t*"), _kernel_case)
    cases = (
        Case([(1, 3, 4, 5)]),
        Case([(1, 2, 8, 8)], values=lambda random: [random.uniform(-12, 12, (1, 2, 8, 8))], why="both tails"),
    )
