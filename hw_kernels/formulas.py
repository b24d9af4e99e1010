"""Element-wise functions written once: value, slope (first derivative) and curvature (second), over numpy or over PyTorch.

`m` is the module that computes: numpy in the references, torch in the framework binding; `x` an array or tensor of it; `p` the attributes.
At a kink (ReLU at 0, the ends of a clip) the slope is the one that PyTorch's own operator has. No formula overflows for |x| <= 1e5 in float64 or
float32 where its result is finite. NaN gives NaN, in the derivatives too (the value of ThresholdedRelu and Shrink is 0, as in ONNX); at an infinity a
derivative that is constant there is that constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Number = Any  # numpy array or torch tensor
Parameters = Mapping[str, Any]
Function = Callable[[Any, Number, Parameters], Number]


@dataclass(frozen=True)
class Formula:
    """One function of one variable: `f(m, x, attributes)`, and its first two derivatives in x."""

    value: Function
    slope: Function
    curvature: Function


# ---- building blocks
def sigmoid(m: Any, x: Number) -> Number:
    """1/(1 + exp(-x)) without overflow."""
    e = m.exp(-m.abs(x))
    return m.where(x >= 0, 1.0, e) / (1.0 + e)


def softplus(m: Any, x: Number) -> Number:
    """ln(1 + exp(x)) without overflow."""
    return m.where(x > 0, x, 0.0) + m.log1p(m.exp(-m.abs(x)))


def erf(m: Any, x: Number) -> Number:
    """The error function; numpy has none."""
    return np.vectorize(math.erf, otypes=[np.float64])(x) if m is np else m.erf(x)


def _density(m: Any, x: Number) -> Number:
    """Of the normal distribution."""
    return m.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _constant(m: Any, x: Number, c: float) -> Number:
    """`c` everywhere, infinities included; NaN where x is."""
    return m.where(x == x, c, x)


def _zero(m: Any, x: Number, _: Parameters) -> Number:
    return _constant(m, x, 0.0)


def _one(m: Any, x: Number, _: Parameters) -> Number:
    return _constant(m, x, 1.0)


def _gate(m: Any, x: Number) -> tuple[Number, Number, Number]:
    """Sigmoid and its first two derivatives."""
    s = sigmoid(m, x)
    d = s * sigmoid(m, -x)
    return s, d, d * (1.0 - 2.0 * s)


def _inside(m: Any, x: Number, low: float, high: float) -> Number:
    """1 strictly between the limits, else 0."""
    return m.where((x > low) & (x < high), 1.0, _constant(m, x, 0.0))


# ---- sigmoid family
def _clip_gate(m: Any, x: Number, order: int) -> Number:
    parts = _gate(m, x)
    if order == 0:
        return m.clip(parts[0], 0.1, 0.9)
    return m.where((parts[0] > 0.1) & (parts[0] < 0.9), parts[order], _constant(m, x, 0.0))


def _silu_slope(m: Any, x: Number, _: Parameters) -> Number:
    s, d, _ = _gate(m, x)
    return s + x * d


def _silu_curvature(m: Any, x: Number, _: Parameters) -> Number:
    _, d, dd = _gate(m, x)
    return 2.0 * d + x * dd


def _swish(m: Any, x: Number, p: Parameters, order: int) -> Number:
    """silu(alpha*x)/alpha."""
    alpha = p.get("alpha", 1.0)
    s, d, dd = _gate(m, alpha * x)
    return (x * s, s + alpha * x * d, alpha * (2.0 * d + alpha * x * dd))[order]


def _mish(m: Any, x: Number, order: int) -> Number:
    t = m.tanh(softplus(m, x))
    if order == 0:
        return x * t
    s, d, _ = _gate(m, x)
    first = (1.0 - t * t) * s  # derivative of t
    if order == 1:
        return t + x * first
    return 2.0 * first + x * (1.0 - t * t) * (d - 2.0 * t * s * s)


def _gelu_tanh(m: Any, x: Number, order: int) -> Number:
    """x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3). Beyond |x| = 100 tanh is +-1 to the last bit, and x^3 stays finite."""
    bounded = m.clip(x, -100.0, 100.0)
    c = math.sqrt(2.0 / math.pi)
    t = m.tanh(c * (bounded + 0.044715 * bounded * bounded * bounded))
    if order == 0:
        return 0.5 * x * (1.0 + t)
    du = c * (1.0 + 3 * 0.044715 * bounded * bounded)
    first = (1.0 - t * t) * du
    if order == 1:
        return 0.5 * (1.0 + t) + 0.5 * bounded * first
    second = (1.0 - t * t) * (c * 6 * 0.044715 * bounded - 2.0 * t * du * du)
    return first + 0.5 * bounded * second


def _hard_swish(m: Any, x: Number, order: int) -> Number:
    if order == 0:
        return x * m.clip(x / 6.0 + 0.5, 0.0, 1.0)
    inner = _inside(m, x, -3.0, 3.0)
    if order == 2:
        return inner / 3.0
    return inner * (m.clip(x, -3.0, 3.0) / 3.0 + 0.5) + m.where(x >= 3.0, 1.0, _constant(m, x, 0.0))


def _hard_sigmoid(m: Any, x: Number, p: Parameters, order: int) -> Number:
    line = p.get("alpha", 0.2) * x + p.get("beta", 0.5)
    if order == 0:
        return m.clip(line, 0.0, 1.0)
    return p.get("alpha", 0.2) * _inside(m, line, 0.0, 1.0) if order == 1 else _constant(m, x, 0.0)


# The polynomial of degree 5 closest to SiLU on [-8, 8] in the largest error (0.1945): x/2 is exact, c0 + c2 x^2 + c4 x^4 is the minimax fit of the
# even rest x tanh(x/2)/2 (Remez; tests/hw_kernels/test_own_operators.py computes it anew). Beyond, as a table's tails: 0 and x.
SILU_POLYNOMIAL = (0.19444452023451986, 0.11605960615209412, -0.0009324674402457998)
SILU_EDGE = 8.0


def _silu_polynomial(m: Any, x: Number, order: int) -> Number:
    c0, c2, c4 = SILU_POLYNOMIAL
    inner = m.clip(x, -SILU_EDGE, SILU_EDGE)
    square = inner * inner
    value = (
        0.5 * inner + c0 + square * (c2 + square * c4),
        0.5 + inner * (2.0 * c2 + 4.0 * c4 * square),
        2.0 * c2 + 12.0 * c4 * square,
    )[order]
    above = (x, 1.0, 0.0)[order]
    return m.where(x < -SILU_EDGE, 0.0, m.where(x > SILU_EDGE, above, value))


# ---- ReLU family
def _leaky(m: Any, x: Number, p: Parameters, order: int) -> Number:
    alpha = p.get("alpha", 0.01)
    if order == 0:
        return m.where(x < 0, alpha * x, x)
    return m.where(x > 0, 1.0, _constant(m, x, alpha)) if order == 1 else _constant(m, x, 0.0)


def _elu(m: Any, x: Number, p: Parameters, order: int) -> Number:
    alpha = p.get("alpha", 1.0)
    e = m.exp(m.where(x < 0, x, 0.0 * x))
    if order == 0:
        return m.where(x < 0, alpha * m.expm1(m.where(x < 0, x, 0.0 * x)), x)
    return m.where(x < 0, alpha * e, _constant(m, x, 1.0 if order == 1 else 0.0))


def _celu(m: Any, x: Number, p: Parameters, order: int) -> Number:
    """alpha*elu(x/alpha)."""
    alpha = p.get("alpha", 1.0)
    value = _elu(m, x / alpha, {}, order)
    return (alpha * value, value, value / alpha)[order]


SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _selu(m: Any, x: Number, p: Parameters, order: int) -> Number:
    return p.get("gamma", SELU_GAMMA) * _elu(m, x, {"alpha": p.get("alpha", SELU_ALPHA)}, order)


def _thresholded(m: Any, x: Number, p: Parameters, order: int) -> Number:
    rest = _constant(m, x, 0.0) if order else 0.0 * (x > x)  # the value of NaN is 0: ONNX's comparison is false
    return m.where(x > p.get("alpha", 1.0), (x, 1.0, 0.0)[order], rest)


def _shrink(m: Any, x: Number, p: Parameters, order: int) -> Number:
    bias, limit = p.get("bias", 0.0), p.get("lambd", 0.5)
    above = (x - bias, 1.0, 0.0)[order]
    below = (x + bias, 1.0, 0.0)[order]
    rest = _constant(m, x, 0.0) if order else 0.0 * (x > x)
    return m.where(x < -limit, below, m.where(x > limit, above, rest))


def _erf_derivative(m: Any, x: Number) -> Number:
    return 2.0 / math.sqrt(math.pi) * m.exp(-x * x)


def _softsign(m: Any, x: Number, order: int) -> Number:
    inverse = 1.0 / (1.0 + m.abs(x))
    return (
        x * inverse
        if order == 0
        else inverse**2
        if order == 1
        else -2.0 * m.where(x >= 0, 1.0, _constant(m, x, -1.0)) * inverse**3
    )


FORMULAS: dict[str, Formula] = {
    "Identity": Formula(lambda m, x, _: x * 1.0, _one, _zero),
    "Neg": Formula(lambda m, x, _: -x, lambda m, x, _: _constant(m, x, -1.0), _zero),
    "Abs": Formula(lambda m, x, _: m.abs(x), lambda m, x, _: m.where(x == x, m.sign(x), x), _zero),
    "Exp": Formula(*[lambda m, x, _: m.exp(x)] * 3),
    "Log": Formula(lambda m, x, _: m.log(x), lambda m, x, _: 1.0 / x, lambda m, x, _: -1.0 / (x * x)),
    "Sqrt": Formula(
        lambda m, x, _: m.sqrt(x), lambda m, x, _: 0.5 / m.sqrt(x), lambda m, x, _: -0.25 / (x * m.sqrt(x))
    ),
    "Reciprocal": Formula(lambda m, x, _: 1.0 / x, lambda m, x, _: -1.0 / (x * x), lambda m, x, _: 2.0 / (x * x * x)),
    "Erf": Formula(
        lambda m, x, _: erf(m, x),
        lambda m, x, _: _erf_derivative(m, x),
        lambda m, x, _: -2.0 * x * _erf_derivative(m, x),
    ),
    "Tanh": Formula(
        lambda m, x, _: m.tanh(x),
        lambda m, x, _: 1.0 - m.tanh(x) ** 2,
        lambda m, x, _: -2.0 * m.tanh(x) * (1.0 - m.tanh(x) ** 2),
    ),
    "Softplus": Formula(lambda m, x, _: softplus(m, x), lambda m, x, _: sigmoid(m, x), lambda m, x, _: _gate(m, x)[1]),
    "Softsign": Formula(*[lambda m, x, _, k=k: _softsign(m, x, k) for k in range(3)]),
    "Sigmoid": Formula(*[lambda m, x, _, k=k: _gate(m, x)[k] for k in range(3)]),
    "ClipSigmoid": Formula(*[lambda m, x, _, k=k: _clip_gate(m, x, k) for k in range(3)]),
    "Silu": Formula(lambda m, x, _: x * sigmoid(m, x), _silu_slope, _silu_curvature),
    "Swish": Formula(*[lambda m, x, p, k=k: _swish(m, x, p, k) for k in range(3)]),
    "SiluPolynomial": Formula(*[lambda m, x, _, k=k: _silu_polynomial(m, x, k) for k in range(3)]),
    "Gelu": Formula(
        lambda m, x, _: 0.5 * x * (1.0 + erf(m, x / math.sqrt(2.0))),
        lambda m, x, _: 0.5 * (1.0 + erf(m, x / math.sqrt(2.0))) + x * _density(m, x),
        lambda m, x, _: (2.0 - x * x) * _density(m, x),
    ),
    "CustomGELU": Formula(*[lambda m, x, _, k=k: _gelu_tanh(m, x, k) for k in range(3)]),
    "Mish": Formula(*[lambda m, x, _, k=k: _mish(m, x, k) for k in range(3)]),
    "HardSwish": Formula(*[lambda m, x, _, k=k: _hard_swish(m, x, k) for k in range(3)]),
    "HardSigmoid": Formula(*[lambda m, x, p, k=k: _hard_sigmoid(m, x, p, k) for k in range(3)]),
    "Relu": Formula(lambda m, x, _: m.clip(x, 0.0, None), lambda m, x, _: _leaky(m, x, {"alpha": 0.0}, 1), _zero),
    "LeakyRelu": Formula(*[lambda m, x, p, k=k: _leaky(m, x, p, k) for k in range(3)]),
    "Elu": Formula(*[lambda m, x, p, k=k: _elu(m, x, p, k) for k in range(3)]),
    "Selu": Formula(*[lambda m, x, p, k=k: _selu(m, x, p, k) for k in range(3)]),
    "Celu": Formula(*[lambda m, x, p, k=k: _celu(m, x, p, k) for k in range(3)]),
    "ThresholdedRelu": Formula(*[lambda m, x, p, k=k: _thresholded(m, x, p, k) for k in range(3)]),
    "Shrink": Formula(*[lambda m, x, p, k=k: _shrink(m, x, p, k) for k in range(3)]),
}
