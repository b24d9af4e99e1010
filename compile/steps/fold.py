"""The fold step: what is constant or does nothing disappears, and per-channel multiplies and additions move into convolutions.

Every rule is exact in real arithmetic (weights are recomputed in float64 and rounded once): BatchNorm and Mul/Add/Sub/Div by a per-channel
constant into the convolution before it, or after it where borders allow; Pad into the windows after it; no-ops; chains of Transpose or Reshape;
equal nodes; the leading NHWC → NCHW Transpose of an image input.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.steps import compose
from npuforge.compile.steps.activations import collect_activations
from npuforge.compile.steps.layout import hoist_input_transpose, sink_transposes
from npuforge.compile.steps.linear import lift_linear
from npuforge.compile.steps.moves import full_pads
from npuforge.compile.steps.one_dimension import lift_one_dimension
from npuforge.compile.steps.pad_windows import pad_into_window
from npuforge.compile.steps.rewrite import Editor, extend_sources, merged_sources
from npuforge.compile.steps.token_maps import lift_tokens
from npuforge.compile.steps.uniform_constants import shrink_constant

ELEMENTWISE = ("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Softplus", "Mish")
NHWC_TO_NCHW = [0, 3, 1, 2]


def run(graph: Graph, ctx: Any = None) -> Graph:
    """Step interface of the pipeline."""
    return fold(graph)


def fold(graph: Graph) -> Graph:
    """Applies all rules until none changes anything."""
    editor = Editor(graph)
    editor.prune()
    lift_one_dimension(editor)
    hoist_input_transpose(editor)
    _drop_input_transpose(editor)
    _repeat(editor, TIDY)
    sink_transposes(editor)
    _repeat(editor, TIDY)
    lift_linear(editor)
    if lift_tokens(editor):
        sink_transposes(editor)
    _repeat(editor, (_vector_into_previous,))
    if collect_activations(editor):  # before constants move: 0.5 * x * (1 + erf(…)) would lose its 0.5 to a convolution
        editor.prune()
    _repeat(editor, TIDY + MERGE)
    return editor.finish()


def _repeat(editor: Editor, rules: tuple[Callable[[Editor, Node], bool], ...]) -> None:
    changed = True
    while changed:
        changed = False
        for node in editor.ordered():
            if editor.alive(node):
                changed |= any(rule(editor, node) for rule in rules)
        changed |= _merge_equal(editor)
        editor.prune()


# ---- per-channel affine functions
def channel_affine(editor: Editor, node: Node) -> tuple[str, np.ndarray, np.ndarray] | None:
    """(x, scale[C], shift[C]) with node(x) = scale*x + shift per channel (axis 1), float64; None if the node is no such function."""
    if len(node.outputs) != 1 or node.activation.kind != "none":
        return None
    shape = editor.shape(node.outputs[0])
    if len(shape) < 2 or shape[1] < 0 or editor.graph.tensors[node.outputs[0]].dtype != "float32":
        return None
    channels = shape[1]
    if node.op == "BatchNormalization":
        parts = [editor.constant(t) for t in node.inputs[1:5]]
        if any(p is None for p in parts):
            return None
        gamma, beta, mean, variance = (np.asarray(p, np.float64) for p in parts)
        spread = variance + node.attrs.get("epsilon", 1e-5)
        if not (all(np.isfinite(p).all() for p in (gamma, beta, mean, variance)) and (spread > 0).all()):
            raise QuantisationError(
                f"node '{node.name}' (BatchNormalization): NaN, infinity or a negative variance among its parameters; "
                "check the training run or the export"
            )
        scale = gamma / np.sqrt(spread)
        return node.inputs[0], scale, beta - mean * scale
    if node.op == "Neg":
        return node.inputs[0], np.full(channels, -1.0), np.zeros(channels)
    if node.op not in ("Mul", "Div", "Add", "Sub") or len(node.inputs) != 2:
        return None
    values = [editor.constant(t) for t in node.inputs]
    if (values[0] is None) == (values[1] is None):
        return None
    position = 0 if values[0] is None else 1  # of the activation
    x, value = node.inputs[position], values[1 - position]
    assert value is not None
    vector = _per_channel(value, shape)
    if vector is None or editor.shape(x) != shape:
        return None
    one, zero = np.ones(channels), np.zeros(channels)
    if node.op == "Mul":
        return x, vector, zero
    if node.op == "Add":
        return x, one, vector
    if node.op == "Sub":
        return (x, one, -vector) if position == 0 else (x, -one, vector)
    if position == 1 or (vector == 0).any():
        return None
    return x, 1.0 / vector, zero


def _per_channel(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """The constant as one value per channel (axis 1 of `shape`), None where it varies along another axis."""
    dims = (1,) * (len(shape) - value.ndim) + value.shape
    if len(dims) != len(shape) or any(d != 1 for axis, d in enumerate(dims) if axis != 1):
        return None
    return np.broadcast_to(value.astype(np.float64).reshape(-1), (shape[1],)).copy()


def _bias(editor: Editor, node: Node, channels: int) -> np.ndarray | None:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return np.zeros(channels)
    value = editor.constant(node.inputs[2])
    return None if value is None else value.astype(np.float64).reshape(-1)


def _set_parameters(editor: Editor, node: Node, weight: np.ndarray, bias: np.ndarray) -> None:
    names = [
        editor.add_constant(f"{node.name}/{label}", np.ascontiguousarray(v, np.float32))
        for label, v in (("weight", weight), ("bias", bias))
    ]
    editor.update(node, inputs=[node.inputs[0], *names])


def _into_previous(editor: Editor, node: Node) -> bool:
    """Conv/ConvTranspose → BatchNorm, Mul, Add, …: the constant goes into weights and bias."""
    affine = channel_affine(editor, node)
    if affine is None:
        return False
    x, scale, shift = affine
    conv = editor.producer(x)
    if (
        conv is None
        or conv.op not in ("Conv", "ConvTranspose")
        or conv.activation.kind != "none"
        or editor.sole_user(x) is not node
    ):
        return False
    weight = editor.constant(conv.inputs[1])
    bias = _bias(editor, conv, len(scale))
    if weight is None or bias is None or len(bias) != len(scale):
        return False
    wide = weight.astype(np.float64)
    wide = wide * scale.reshape(-1, *[1] * (wide.ndim - 1)) if conv.op == "Conv" else _by_group(wide, conv, scale)
    editor.remove(node)
    editor.update(conv, outputs=list(node.outputs))
    _set_parameters(editor, conv, wide, bias * scale + shift)
    if conv.weight_scale is not None:
        conv.weight_scale = np.where(scale == 0, 1.0, conv.weight_scale * np.abs(scale))
    extend_sources(conv, node)
    return True


def _vector_into_previous(editor: Editor, node: Node) -> bool:
    """BatchNorm and constants that differ between channels go into a convolution before activations are looked for (these have scalars only)."""
    vectors = [v for t in node.inputs if (v := editor.constant(t)) is not None and v.size > 1]
    return bool(vectors) and _into_previous(editor, node)


def _by_group(weight: np.ndarray, node: Node, scale: np.ndarray) -> np.ndarray:
    """ConvTranspose weights [I, O/g, kH, kW] with output channel o = group*(O/g) + position multiplied by scale[o]."""
    group = int(node.attrs.get("group", 1))
    inputs, per_group = weight.shape[:2]
    split = weight.reshape(group, inputs // group, per_group, *weight.shape[2:])
    factors = scale.reshape(group, 1, per_group, *[1] * (weight.ndim - 2))
    return (split * factors).reshape(weight.shape)


def _into_next(editor: Editor, node: Node) -> bool:
    """BatchNorm, Mul, Add, … → Conv: into the convolution after it; a shift only where no zero border would have been shifted too."""
    affine = channel_affine(editor, node)
    if affine is None:
        return False
    x, scale, shift = affine
    conv = editor.sole_user(node.outputs[0])
    if conv is None or conv.op != "Conv" or conv.inputs[0] != node.outputs[0]:
        return False
    bordered = any(conv.attrs.get("pads", [0])) or conv.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if bordered and shift.any():
        return False
    weight = editor.constant(conv.inputs[1])
    bias = None if weight is None else _bias(editor, conv, weight.shape[0])
    if weight is None or bias is None:
        return False
    group = int(conv.attrs.get("group", 1))
    outputs, per_group = weight.shape[:2]
    wide = weight.astype(np.float64).reshape(group, outputs // group, per_group, *weight.shape[2:])
    ones = [1] * (weight.ndim - 2)
    bias = bias + (wide * shift.reshape(group, 1, per_group, *ones)).reshape(outputs, -1).sum(axis=1)
    wide = (wide * scale.reshape(group, 1, per_group, *ones)).reshape(weight.shape)
    editor.remove(node)
    editor.update(conv, inputs=[x, *conv.inputs[1:]])
    _set_parameters(editor, conv, wide, bias)
    if (scale != 1).any():
        conv.weight_scale = None  # the integers differ between input channels now
    conv.sources = merged_sources(node, conv)
    return True


# ---- no-ops and chains
def _mean_is_pool(editor: Editor, node: Node) -> bool:
    """ReduceMean over height and width is a global average pool (and a Reshape where it drops them)."""
    if node.op != "ReduceMean" or len(node.inputs) < 2 or len(editor.shape(node.inputs[0])) != 4:
        return False
    axes = editor.constant(node.inputs[1])
    if axes is None or sorted(int(a) % 4 for a in axes) != [2, 3] or editor.shape(node.outputs[0])[0] != 1:
        return False
    target, channels = node.outputs[0], editor.shape(node.inputs[0])[1]
    editor.remove(node)
    pooled = target
    if not node.attrs.get("keepdims", 1):
        pooled = editor.fresh_tensor(f"{target}/map", (1, channels, 1, 1))
        shape = editor.add_constant(f"{target}/shape", np.asarray([1, channels], np.int64))
        row = Node(
            editor.fresh_node(f"{node.name}/row"), "Reshape", [pooled, shape], [target], sources=list(node.sources)
        )
        editor.add(row, node)
    editor.add(Node(node.name, "GlobalAveragePool", [node.inputs[0]], [pooled], sources=node.sources), node)
    return True


def _is_noop(editor: Editor, node: Node) -> bool:
    if node.op == "Identity" or (
        node.op == "Dropout" and not any(editor.users(t) or editor.is_output(t) for t in node.outputs[1:])
    ):
        return True
    if not node.inputs or node.inputs[0] in editor.graph.constants or len(node.outputs) != 1:
        return False
    before, after = editor.graph.tensors[node.inputs[0]], editor.graph.tensors[node.outputs[0]]
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if -1 in after.shape:  # two open dimensions need not be equal
        return node.op == "Cast"
    if node.op in ("Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"):
        return True
    if node.op in ("Concat", "Sum", "Max", "Min", "Mean"):
        return len(node.inputs) == 1
    if node.op == "Transpose":
        return node.attrs.get("perm") == list(range(len(before.shape)))
    if node.op == "Slice":
        steps = editor.constant(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] else np.ones(1)
        return steps is not None and bool((steps > 0).all())
    if node.op == "Pad":
        pads = full_pads(editor, node)
        return pads is not None and not any(pads)
    affine = channel_affine(editor, node)
    return affine is not None and bool((affine[1] == 1).all() and (affine[2] == 0).all())


def _drop_noop(editor: Editor, node: Node) -> bool:
    """Identity, Dropout, Cast to the same type, Reshape or Slice to the same shape, multiplication by 1, addition of 0, …"""
    if not _is_noop(editor, node):
        return False
    if node.op in ("Mul", "Add", "Sub", "Div") and node.inputs[0] in editor.graph.constants:
        editor.update(node, inputs=list(reversed(node.inputs)))
    return editor.bypass(node)


def _merge_transposes(editor: Editor, node: Node) -> bool:
    """Transpose → Transpose is one Transpose; Reshape → Reshape is the last one."""
    before = editor.producer(node.inputs[0]) if node.inputs else None
    if (
        before is None
        or node.op not in ("Transpose", "Reshape")
        or before.op != node.op
        or -1 in editor.shape(node.outputs[0])
    ):
        return False
    if node.op == "Transpose":
        first, second = (
            n.attrs.get("perm") or list(range(len(editor.shape(n.inputs[0]))))[::-1] for n in (before, node)
        )
        node.attrs["perm"] = [first[a] for a in second]
        editor.update(node, inputs=[before.inputs[0]])
    else:
        shape = editor.add_constant(f"{node.name}/shape", np.asarray(editor.shape(node.outputs[0]), np.int64))
        node.attrs.pop("allowzero", None)
        editor.update(node, inputs=[before.inputs[0], shape])
    node.sources = merged_sources(before, node)
    return True


def _unary_before_transpose(editor: Editor, node: Node) -> bool:
    """Transpose → f → Transpose with f element by element: f first, so that the two transposes meet (channels-last exports)."""
    if (
        node.op not in ELEMENTWISE
        or len(node.outputs) != 1
        or any(editor.constant(t) is None for t in node.inputs[1:] if t)
    ):
        return False
    before = editor.producer(node.inputs[0])
    if (
        before is None
        or before.op != "Transpose"
        or editor.sole_user(node.inputs[0]) is not node
        or editor.is_output(node.outputs[0])
    ):
        return False
    following: Node | None = node
    while following is not None and following.op in ELEMENTWISE:
        end = following.outputs[0]
        following = editor.sole_user(end)
    if editor.is_output(end) or not editor.users(end) or any(u.op != "Transpose" for u in editor.users(end)):
        return False
    inner = editor.fresh_tensor(f"{node.outputs[0]}/transposed", editor.shape(before.inputs[0]))
    source, target = before.inputs[0], node.outputs[0]
    editor.remove(before)
    editor.update(node, inputs=[source, *node.inputs[1:]], outputs=[inner])
    before.inputs, before.outputs = [inner], [target]
    editor.add(before, node)
    return True


def _merge_equal(editor: Editor) -> bool:
    """Two nodes with the same operator, inputs and attributes are one."""
    seen: dict[str, Node] = {}
    changed = False
    for node in editor.ordered():
        if node.activation.slope is not None:
            continue
        attrs = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in sorted(node.attrs.items())}
        key = json.dumps([node.op, node.inputs, attrs, len(node.outputs), repr(node.activation)], default=str)
        twin = seen.setdefault(key, node)
        if twin is node or any(editor.is_output(t) for t in node.outputs):
            continue
        editor.remove(node)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            editor.rewire(old, new)
        extend_sources(twin, node)
        changed = True
    return changed


def _drop_input_transpose(editor: Editor) -> None:
    """An image input that is only read through NHWC → NCHW transposes becomes an NCHW input (`Graph.input_layout`)."""
    graph = editor.graph
    for name in graph.inputs:
        users = editor.users(name)
        info = graph.tensors[name]
        if (
            len(info.shape) != 4
            or not users
            or editor.is_output(name)
            or any(u.op != "Transpose" or u.attrs.get("perm") != NHWC_TO_NCHW for u in users)
        ):
            continue
        if any(editor.is_output(t) for u in users for t in u.outputs):
            continue
        graph.tensors[name] = TensorInfo(name, tuple(info.shape[a] for a in NHWC_TO_NCHW), info.dtype)
        graph.input_layout[name] = "NHWC"
        for user in users:
            editor.bypass(user)


TIDY = (shrink_constant, _drop_noop, _merge_transposes, _mean_is_pool, _unary_before_transpose, *compose.RULES)
MERGE = (_into_previous, _into_next, pad_into_window)
