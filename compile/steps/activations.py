"""Finds activation functions, single ONNX operators or written in parts, and makes each one `Activation` node that fuse can attach.

`Activation` is an operator of the steps fold and fuse only; afterwards it is either fused into a compute node or an `Affine`. Found are nodes with a
convolution downstream, and functions directly behind a convolution that nothing else reads. A sigmoid-like function (or Softplus) behind the last
convolution is left alone: the head's scores keep float resolution on the CPU partition.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Activation, Node
from npuforge.compile.steps.activation_patterns import ACTIVATION, FINDERS, Match, clip_limits, scalar
from npuforge.compile.steps.curve_factors import PLAIN, factored, write_factors
from npuforge.compile.steps.infer import custom_activation
from npuforge.compile.steps.rewrite import Editor, merged_sources
from npuforge.quant.regions import CONVOLUTIONS

SQUASHING = ("Sigmoid", "Tanh", "HardSigmoid", "ClipSigmoid", "Erf", "Softplus")


def collect_activations(editor: Editor) -> bool:
    """Replaces every activation found by one `Activation` node; True if the graph changed."""
    changed = False
    for finder in (*FINDERS, _single):
        region = editor.reaches_convolution()
        for node in editor.ordered():
            match = finder(editor, node) if editor.alive(node) and node.op != ACTIVATION else None
            if match is not None and _wanted(editor, match, id(node) in region) and _self_contained(editor, match):
                _replace(editor, match)
                changed = True
    return changed


def _wanted(editor: Editor, match: Match, before_convolution: bool) -> bool:
    shape = editor.shape(match.x)
    if (
        len(shape) != 4
        or shape[0] != 1
        or editor.graph.tensors[match.x].dtype != "float32"
        or match.x in editor.graph.constants
    ):
        return False
    if before_convolution:
        return True
    if match.factors != PLAIN:  # a factor behind the last convolution would be the CPU's, and the value before it int8
        return False
    producer = editor.producer(match.x)
    behind = producer is not None and producer.op in CONVOLUTIONS and not editor.is_output(match.x)
    members = {id(n) for n in match.nodes}
    return behind and match.activation.kind not in SQUASHING and all(id(u) in members for u in editor.users(match.x))


def _self_contained(editor: Editor, match: Match) -> bool:
    """Nothing outside the pattern reads a tensor inside it."""
    members = {id(n) for n in match.nodes}
    return all(
        not editor.is_output(t) and all(id(u) in members for u in editor.users(t))
        for n in match.nodes[:-1]
        for t in n.outputs
    )


def _replace(editor: Editor, match: Match) -> None:
    last = match.nodes[-1]
    for node in match.nodes:
        editor.remove(node)
    bent = Node(last.name, ACTIVATION, [match.x], [last.outputs[0]], {}, match.activation, merged_sources(*match.nodes))
    editor.add(bent, last)
    write_factors(editor, bent, match.factors)


def _slopes(editor: Editor, node: Node) -> np.ndarray | None:
    slope, shape = editor.constant(node.inputs[1]), editor.shape(node.inputs[0])
    if slope is None or len(shape) != 4 or shape[1] < 0:
        return None
    dims = (1,) * (4 - slope.ndim) + slope.shape
    if len(dims) != 4 or dims[0] != 1 or dims[2:] != (1, 1):
        return None
    if slope.size not in (1, shape[1]):
        raise ModelError(
            f"node '{node.name}' (PRelu): {slope.size} slopes for {shape[1]} channels; the file is no network that runs, export it again"
        )
    return np.broadcast_to(slope.astype(np.float64).reshape(-1), (shape[1],)).copy()


def _prelu(editor: Editor, node: Node) -> Activation | None:
    slope = _slopes(editor, node)
    return None if slope is None else Activation("PRelu", slope=slope)


def _clip(editor: Editor, node: Node) -> Activation | None:
    limits = clip_limits(editor, node)
    if limits is None:
        return None
    return Activation("Relu") if limits == (0.0, math.inf) else Activation("Clip", low=limits[0], high=limits[1])


def _extreme(editor: Editor, node: Node) -> Activation | None:
    value = scalar(editor, node.inputs[1]) if len(node.inputs) == 2 else None
    if value is None:
        return None
    if node.op == "Max":
        return Activation("Relu") if value == 0.0 else Activation("Clip", low=value)
    return Activation("Clip", high=value)


_SINGLE: dict[str, Callable[[Editor, Node], Activation | None]] = {
    "Relu": lambda e, n: Activation("Relu"),
    "LeakyRelu": lambda e, n: Activation("LeakyRelu", alpha=float(n.attrs.get("alpha", 0.01))),
    "PRelu": _prelu,
    "Clip": _clip,
    "Max": _extreme,
    "Min": _extreme,
    "Sigmoid": lambda e, n: Activation("Sigmoid"),
    "Tanh": lambda e, n: Activation("Tanh"),
    "HardSwish": lambda e, n: Activation("HardSwish"),
    "Mish": lambda e, n: Activation("Mish"),
    "Erf": lambda e, n: Activation("Erf"),
    "Softplus": lambda e, n: Activation("Softplus"),
    "Elu": lambda e, n: Activation("Elu", alpha=float(n.attrs.get("alpha", 1.0))),
    "Abs": lambda e, n: Activation("LeakyRelu", alpha=-1.0),
    "Gelu": lambda e, n: Activation("CustomGELU" if n.attrs.get("approximate", "none") == "tanh" else "Gelu"),
}


def _single(editor: Editor, node: Node) -> Match | None:
    """One ONNX operator, or a custom one that is an activation."""
    kind = custom_activation(node.op)
    if kind is not None:
        return Match(node.inputs[0], Activation(kind), [node])
    parts = factored(node)
    if parts is not None:
        return Match(node.inputs[0], parts[0], [node], parts[1])
    if node.op in ("Max", "Min") and len(node.inputs) == 2 and editor.constant(node.inputs[0]) is not None:
        editor.update(node, inputs=node.inputs[::-1])
    activation = _SINGLE[node.op](editor, node) if node.op in _SINGLE else None
    return None if activation is None else Match(node.inputs[0], activation, [node])
