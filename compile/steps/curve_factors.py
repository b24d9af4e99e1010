"""Functions that are a curve of the NPU between two factors: f(x) = gain * curve(rate * x + shift), exact in real arithmetic.

The factors become nodes of their own, which the fold step moves into the convolutions before and after where it can. Only positive, finite factors:
the scales that a quantised model brings stay scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Activation, Node
from npuforge.compile.steps.rewrite import Editor
from npuforge.hw_kernels.activations import is_supported
from npuforge.hw_kernels.formulas import SELU_ALPHA, SELU_GAMMA


@dataclass(frozen=True)
class Factors:
    """What stands around the curve."""

    rate: float = 1.0
    shift: float = 0.0
    gain: float = 1.0


PLAIN = Factors()
Factored = tuple[Activation, Factors]


def _swish(attrs: dict[str, Any]) -> Factored:
    """x * sigmoid(alpha * x) = silu(alpha * x) / alpha."""
    alpha = float(attrs.get("alpha", 1.0))
    return Activation("Silu"), Factors(rate=alpha, gain=1.0 / alpha if alpha else math.inf)


def _celu(attrs: dict[str, Any]) -> Factored:
    """alpha * elu(x / alpha)."""
    alpha = float(attrs.get("alpha", 1.0))
    return Activation("Elu", alpha=1.0), Factors(rate=1.0 / alpha if alpha else math.inf, gain=alpha)


def _selu(attrs: dict[str, Any]) -> Factored:
    """gamma * elu(x, alpha)."""
    activation = Activation("Elu", alpha=float(attrs.get("alpha", SELU_ALPHA)))
    return activation, Factors(gain=float(attrs.get("gamma", SELU_GAMMA)))


def _hard_sigmoid(attrs: dict[str, Any]) -> Factored:
    """By table where [-8, 8) holds both ends, else the line itself, clipped."""
    alpha, beta = float(attrs.get("alpha", 0.2)), float(attrs.get("beta", 0.5))
    bent = Activation("HardSigmoid", alpha=alpha, beta=beta)
    return (bent, PLAIN) if is_supported(bent) else (Activation("Clip", low=0.0, high=1.0), Factors(alpha, beta))


_FACTORED: dict[str, Callable[[dict[str, Any]], Factored]] = {
    "Swish": _swish,
    "Celu": _celu,
    "Selu": _selu,
    "HardSigmoid": _hard_sigmoid,
}


def factored(node: Node) -> Factored | None:
    """The curve and the factors that make `node`, None where it is no such function or a factor is not positive and finite."""
    if node.op not in _FACTORED:
        return None
    activation, factors = _FACTORED[node.op](node.attrs)
    legal = all(0.0 < f < math.inf for f in (factors.rate, factors.gain)) and math.isfinite(factors.shift)
    return (activation, factors) if legal else None


def write_factors(editor: Editor, node: Node, factors: Factors) -> None:
    """Puts the factors before and behind `node`, which computes the curve of its input."""
    graph, (x, y) = editor.graph, (node.inputs[0], node.outputs[0])

    def step(op: str, tensor: str, value: float, target: str, label: str) -> None:
        number = editor.add_constant(f"{node.name}/{label}", np.asarray(value, np.float32))
        name = editor.fresh_node(f"{node.name}/{label}")
        editor.add(Node(name, op, [tensor, number], [target], sources=list(node.sources)), node)

    if factors.gain != 1.0:
        inner = editor.fresh_tensor(f"{y}/curve", editor.shape(y))
        if y in graph.grids:
            graph.grids[inner] = replace(graph.grids[y], scale=graph.grids[y].scale / factors.gain)
        editor.update(node, outputs=[inner])
        step("Mul", inner, factors.gain, y, "gain")
    if factors.rate != 1.0:
        scaled = editor.fresh_tensor(f"{y}/scaled", editor.shape(x))
        step("Mul", x, factors.rate, scaled, "rate")
        editor.update(node, inputs=[scaled])
    if factors.shift != 0.0:
        shifted = editor.fresh_tensor(f"{y}/shifted", editor.shape(x))
        step("Add", node.inputs[0], factors.shift, shifted, "shift")
        editor.update(node, inputs=[shifted])
