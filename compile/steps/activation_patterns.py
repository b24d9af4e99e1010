"""Activation functions written in parts: what their ONNX nodes look like. One finder for each function; `activations` asks them all.

A finder gets the node that may write the result, and gives the tensor, the function, and the nodes it is written as.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from npuforge.compile.ir.graph import Activation, Node
from npuforge.compile.steps.curve_factors import PLAIN, Factors
from npuforge.compile.steps.rewrite import Editor

ACTIVATION = "Activation"


@dataclass
class Match:
    """`activation` of tensor `x` between `factors`, written as `nodes` (the last one writes the result)."""

    x: str
    activation: Activation
    nodes: list[Node]
    factors: Factors = PLAIN


# ---- helpers to read patterns
def scalar(editor: Editor, tensor: str) -> float | None:
    """The value of a constant with one element."""
    value = editor.constant(tensor)
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _with_scalar(editor: Editor, node: Node | None, ops: tuple[str, ...]) -> tuple[str, float] | None:
    """(activation, scalar) of a two-input node of one of `ops`; for Div and Sub the scalar must come second."""
    if node is None or node.op not in ops or len(node.inputs) != 2:
        return None
    for position in (0, 1):
        value = scalar(editor, node.inputs[1 - position])
        if (
            value is not None
            and editor.constant(node.inputs[position]) is None
            and (position == 0 or node.op not in ("Div", "Sub"))
        ):
            return node.inputs[position], value
    return None


def _scale_of(editor: Editor, node: Node | None) -> tuple[str, float] | None:
    """(x, factor) of a Mul or Div by one number."""
    found = _with_scalar(editor, node, ("Mul", "Div"))
    if found is None or node is None:
        return None
    return (found[0], 1.0 / found[1]) if node.op == "Div" and found[1] else (found if node.op == "Mul" else None)


def _shift_of(editor: Editor, node: Node | None) -> tuple[str, float] | None:
    """(x, offset) of an Add or Sub of one number."""
    found = _with_scalar(editor, node, ("Add", "Sub"))
    return None if found is None or node is None else (found[0], -found[1] if node.op == "Sub" else found[1])


def _other(node: Node, tensor: str) -> str | None:
    """The second operand of a two-input node that has `tensor` as one."""
    if len(node.inputs) != 2 or tensor not in node.inputs:
        return None
    return node.inputs[1] if node.inputs[0] == tensor else node.inputs[0]


def _near(found: float, exact: float) -> bool:
    """`exact`, or what a file of half or bfloat16 precision holds in its place: it, or its reciprocal, rounded to that type."""
    stored: set[float] = set()
    for dtype in (np.float16, ml_dtypes.bfloat16):
        stored |= {float(dtype(exact)), 1 / float(dtype(1 / exact))}
    return math.isclose(found, exact, rel_tol=1e-4, abs_tol=1e-6) or any(
        math.isclose(found, s, rel_tol=1e-6) for s in stored
    )


# ---- finders: the match that ends in `node`
def _gated_sigmoid(editor: Editor, node: Node) -> Match | None:
    """x * Sigmoid(x)"""
    if node.op != "Mul" or len(node.inputs) != 2:
        return None
    for gate in node.inputs:
        producer = editor.producer(gate)
        if producer is not None and producer.op == "Sigmoid" and _other(node, gate) == producer.inputs[0]:
            return Match(producer.inputs[0], Activation("Silu"), [producer, node])
    return None


def _mish(editor: Editor, node: Node) -> Match | None:
    """x * Tanh(Softplus(x))"""
    if node.op != "Mul" or len(node.inputs) != 2:
        return None
    for gate in node.inputs:
        tanh = editor.producer(gate)
        soft = editor.producer(tanh.inputs[0]) if tanh is not None and tanh.op == "Tanh" else None
        if tanh is not None and soft is not None and soft.op == "Softplus" and _other(node, gate) == soft.inputs[0]:
            return Match(soft.inputs[0], Activation("Mish"), [soft, tanh, node])
    return None


def _mish_by_power(editor: Editor, node: Node) -> Match | None:
    """x * n / (n + 2) with n = Exp(x) * (Exp(x) + 2): as x * Tanh(Softplus(x)), without a logarithm; product or quotient first"""
    forms: list[tuple[str | None, str, str, list[Node]]] = []  # x, n, n + 2, nodes of product and quotient
    if node.op == "Mul" and len(node.inputs) == 2:
        for gate in node.inputs:
            quotient = editor.producer(gate)
            if quotient is not None and quotient.op == "Div":
                above, below = quotient.inputs
                forms.append((_other(node, gate), above, below, [quotient, node]))
    elif node.op == "Div":
        product = editor.producer(node.inputs[0])
        if product is not None and product.op == "Mul" and len(product.inputs) == 2:
            forms = [(_other(product, n), n, node.inputs[1], [product, node]) for n in product.inputs]
    for x, n, below, outer in forms:
        plus = editor.producer(below)
        if x is None or plus is None or _shift_of(editor, plus) != (n, 2.0):
            continue
        parts = _square_and_double(editor, n, x)
        if parts is not None:
            return Match(x, Activation("Mish"), [*parts, plus, *outer])
    return None


def _square_and_double(editor: Editor, tensor: str, x: str) -> list[Node] | None:
    """Nodes of e * (e + 2), or e * e + 2 * e, with e = Exp(x)."""
    last = editor.producer(tensor)
    if last is None or last.op not in ("Mul", "Add") or len(last.inputs) != 2:
        return None
    for first, second in (last.inputs, last.inputs[::-1]):
        left, right = editor.producer(first), editor.producer(second)
        if left is None or right is None:
            continue
        double = _scale_of(editor, right)
        if last.op == "Mul" and _shift_of(editor, right) == (first, 2.0):
            exponential, between = first, [right]
        elif last.op == "Add" and double is not None and double[1] == 2.0 and _squares(editor, left, double[0]):
            exponential, between = double[0], [left, right]
        else:
            continue
        power = editor.producer(exponential)
        if power is not None and power.op == "Exp" and power.inputs[0] == x:
            return [power, *between, last]
    return None


def _squares(editor: Editor, node: Node, tensor: str) -> bool:
    """Whether `node` is `tensor` times itself."""
    if node.op == "Pow":
        return node.inputs[0] == tensor and scalar(editor, node.inputs[1]) == 2.0
    return node.op == "Mul" and list(node.inputs) == [tensor, tensor]


def _gelu(editor: Editor, node: Node) -> Match | None:
    """0.5 * x * (1 + Erf(x / sqrt 2)), the factors in any order; the tanh form likewise"""
    factors, members = _factors(editor, node)
    numbers = [f for f in factors if isinstance(f, float)]
    tensors = [f for f in factors if isinstance(f, str)]
    if len(tensors) != 2 or not _near(float(np.prod(numbers)) if numbers else 1.0, 0.5):
        return None
    for gate, x in (tensors, tensors[::-1]):
        plus = _shift_of(editor, editor.producer(gate))
        inner = editor.producer(plus[0]) if plus is not None and plus[1] == 1.0 else None
        if inner is None:
            continue
        head = [n for n in (inner, editor.producer(gate)) if n is not None]
        if inner.op == "Erf":
            scaled = _scale_of(editor, editor.producer(inner.inputs[0]))
            if scaled is not None and scaled[0] == x and _near(scaled[1], math.sqrt(0.5)):
                return Match(
                    x, Activation("Gelu"), [p for p in [editor.producer(inner.inputs[0])] if p] + head + members
                )
        if inner.op == "Tanh":
            parts = _tanh_argument(editor, inner.inputs[0], x)
            if parts is not None:
                return Match(x, Activation("CustomGELU"), parts + head + members)
    return None


def _factors(editor: Editor, node: Node) -> tuple[list[float | str], list[Node]]:
    """The factors of a product written with one or two Mul/Div nodes that end in `node`, and these nodes in order."""
    if node.op not in ("Mul", "Div"):
        return [], []
    factors: list[float | str] = []
    members = [node]
    scaled = _scale_of(editor, node)
    operands = [scaled[0]] if scaled else (list(node.inputs) if node.op == "Mul" else [])
    if scaled:
        factors.append(scaled[1])
    for operand in operands:
        inner = editor.producer(operand)
        if inner is None or inner.op not in ("Mul", "Div") or editor.sole_user(operand) is None or len(members) == 2:
            factors.append(operand)
            continue
        inner_scaled = _scale_of(editor, inner)
        if inner_scaled:
            factors += [inner_scaled[0], inner_scaled[1]]
        elif inner.op == "Mul" and scaled:
            factors += list(inner.inputs)
        else:
            factors.append(operand)
            continue
        members.insert(0, inner)
    return factors, members


def _tanh_argument(editor: Editor, tensor: str, x: str) -> list[Node] | None:
    """Nodes of sqrt(2/pi) * (x + 0.044715 * x^3)."""
    outer = editor.producer(tensor)
    scaled = _scale_of(editor, outer)
    if scaled is None or outer is None or not _near(scaled[1], math.sqrt(2 / math.pi)):
        return None
    plus = editor.producer(scaled[0])
    cubic = _other(plus, x) if plus is not None and plus.op == "Add" else None
    weighted = editor.producer(cubic) if cubic else None
    cube = _scale_of(editor, weighted)
    if plus is None or weighted is None or cube is None or not _near(cube[1], 0.044715):
        return None
    power = editor.producer(cube[0])
    if power is None:
        return None
    if power.op == "Pow" and power.inputs[0] == x and scalar(editor, power.inputs[1]) == 3.0:
        return [power, weighted, plus, outer]
    square = editor.producer(_other(power, x) or "") if power.op == "Mul" else None
    if square is not None and square.op == "Mul" and list(square.inputs) == [x, x]:
        return [square, power, weighted, plus, outer]
    return None


def clip_limits(editor: Editor, node: Node) -> tuple[float, float] | None:
    """Low and high of a Clip or Relu whose limits are constant."""
    if node.op == "Relu":
        return 0.0, math.inf
    if node.op != "Clip":
        return None
    low, high = -math.inf, math.inf
    if len(node.inputs) > 1 and node.inputs[1]:
        value = scalar(editor, node.inputs[1])
        if value is None:
            return None
        low = value
    if len(node.inputs) > 2 and node.inputs[2]:
        value = scalar(editor, node.inputs[2])
        if value is None:
            return None
        high = value
    # Exporters write ReLU as Clip up to the largest float.
    limit = float(np.finfo(np.float32).max)
    return (-math.inf if low <= -limit else low), (math.inf if high >= limit else high)


def _hard_parts(editor: Editor, node: Node) -> Match | None:
    """Clip(x + 3, 0, 6) / 6: HardSigmoid"""
    scaled = _scale_of(editor, node)
    clip = editor.producer(scaled[0]) if scaled else None
    limits = clip_limits(editor, clip) if clip is not None else None
    if scaled is None or clip is None or limits is None or limits[0] != 0.0:
        return None
    if not _near(limits[1] * scaled[1], 1.0) and not (limits[1] == 6.0 and _near(scaled[1], 1 / 6)):
        return None
    plus = editor.producer(clip.inputs[0])
    shifted = _shift_of(editor, plus)
    if plus is None or shifted is None:
        return None
    return Match(
        shifted[0], Activation("HardSigmoid", alpha=scaled[1], beta=shifted[1] * scaled[1]), [plus, clip, node]
    )


def _hard_swish_divided(editor: Editor, node: Node) -> Match | None:
    """x * Clip(x + 3, 0, 6) / 6: HardSwish"""
    scaled = _scale_of(editor, node)
    product = editor.producer(scaled[0]) if scaled else None
    if scaled is None or product is None or product.op != "Mul" or not _near(scaled[1], 1 / 6):
        return None
    for gate in product.inputs:
        clip = editor.producer(gate)
        limits = clip_limits(editor, clip) if clip is not None else None
        plus = editor.producer(clip.inputs[0]) if clip is not None and limits == (0.0, 6.0) else None
        shifted = _shift_of(editor, plus)
        if (
            clip is not None
            and plus is not None
            and shifted is not None
            and shifted[1] == 3.0
            and _other(product, gate) == shifted[0]
        ):
            return Match(shifted[0], Activation("HardSwish"), [plus, clip, product, node])
    return None


def _gated_hard_sigmoid(editor: Editor, node: Node) -> Match | None:
    """x * HardSigmoid(x) with slope 1/6 and offset 1/2: HardSwish"""
    if node.op != "Mul" or len(node.inputs) != 2:
        return None
    for gate in node.inputs:
        producer = editor.producer(gate)
        if producer is None or _other(node, gate) != producer.inputs[0]:
            continue
        if producer.op == "HardSigmoid":
            alpha, beta = producer.attrs.get("alpha", 0.2), producer.attrs.get("beta", 0.5)
        elif producer.op == ACTIVATION and producer.activation.kind == "HardSigmoid":
            alpha, beta = producer.activation.alpha, producer.activation.beta
        else:
            continue
        if _near(alpha, 1 / 6) and (_near(beta, 0.5) or _near(beta, 3 * alpha)):
            return Match(producer.inputs[0], Activation("HardSwish"), [producer, node])
    return None


FINDERS = (
    _gelu,
    _mish,
    _mish_by_power,
    _gated_sigmoid,
    _hard_parts,
    _hard_swish_divided,
    _gated_hard_sigmoid,
)
