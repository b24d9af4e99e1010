"""One-dimensional convolution as a two-dimensional one of height 1. A rule of the fold step, before all others.

Tensors [N, C, L] that convolutions, pools, normalisations and element-wise operators hand to each other become [N, C, 1, L]; reshapes stand at the border of such a
region only.
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node, TensorInfo
from npuforge.compile.steps.rewrite import ELEMENTWISE, Editor

_WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
_UNARY = (*ELEMENTWISE, "Mish", "Erf")
_PLAIN = (*_UNARY, "BatchNormalization", "GlobalAveragePool", "GlobalMaxPool", "PRelu")
_BINARY = ("Add", "Sub", "Mul", "Div")


def lift_one_dimension(editor: Editor) -> bool:
    """Rewrites every region that holds a convolution over three dimensions; True if there was one."""
    members = {id(n): n for n in editor.ordered() if _liftable(editor, n)}
    if not any(n.op in ("Conv", "ConvTranspose") for n in members.values()):
        return False
    written = {t for n in members.values() for t in n.outputs}
    for node in list(members.values()):
        inputs = list(node.inputs)
        for position in range(_activations(node)):
            tensor = inputs[position]
            if editor.constant(tensor) is not None:
                inputs[position] = _constant(editor, tensor, node)
            elif tensor not in written:
                inputs[position] = _bordered(editor, tensor, node)
        if node.op in ("Conv", "ConvTranspose"):
            weight = editor.constant(inputs[1])
            assert weight is not None
            inputs[1] = editor.add_constant(f"{node.name}/weight", np.expand_dims(weight, 2))
        if node.op == "PRelu":
            inputs[1] = _constant(editor, inputs[1], node)
        _attributes(node)
        editor.update(node, inputs=inputs)
    for node in members.values():
        for tensor in node.outputs:
            _leave(editor, tensor, node, members)
    return True


def _activations(node: Node) -> int:
    return len(node.inputs) if node.op == "Concat" else 2 if node.op in _BINARY else 1


def _liftable(editor: Editor, node: Node) -> bool:
    if (
        len(node.outputs) != 1
        or editor.graph.tensors[node.outputs[0]].dtype != "float32"
        or len(editor.shape(node.outputs[0])) != 3
    ):
        return False
    if -1 in editor.shape(node.outputs[0]):
        return False
    given = node.inputs[: _activations(node)]
    if node.op in _BINARY or node.op == "Concat":
        ranks = {len(editor.shape(t)) for t in given}
        few = all(len(editor.shape(t)) <= 3 for t in given if editor.constant(t) is not None)
        whole = {len(editor.shape(t)) for t in given if editor.constant(t) is None}
        return (node.op in _BINARY and whole == {3} and few) or (ranks == {3} and node.attrs.get("axis", 0) % 3 == 1)
    if node.op in ("Conv", "ConvTranspose"):
        weight = editor.constant(node.inputs[1])
        return weight is not None and weight.ndim == 3 and len(editor.shape(given[0])) == 3
    if node.op == "PRelu" and (editor.constant(node.inputs[1]) is None or len(editor.shape(node.inputs[1])) > 3):
        return False
    return node.op in (*_WINDOWS, *_PLAIN) and len(editor.shape(given[0])) == 3


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 1, shape[-1]) if shape else ()


def _constant(editor: Editor, tensor: str, node: Node) -> str:
    """[.., L] as [.., 1, L]: broadcasting against [N, C, 1, L] stays what it was."""
    value = editor.constant(tensor)
    assert value is not None
    return editor.add_constant(f"{node.name}/{tensor}", value.reshape(_four(value.shape)))


def _reshape(editor: Editor, source: str, target: str, node: Node, label: str) -> None:
    shape = editor.add_constant(f"{target}/shape", np.asarray(editor.shape(target), np.int64))
    editor.add(
        Node(
            editor.fresh_node(f"{node.name}/{label}"), "Reshape", [source, shape], [target], sources=list(node.sources)
        ),
        node,
    )


def _bordered(editor: Editor, tensor: str, node: Node) -> str:
    target = editor.fresh_tensor(f"{tensor}/map", _four(editor.shape(tensor)))
    if tensor in editor.graph.grids:
        editor.graph.grids[target] = editor.graph.grids[tensor]
    _reshape(editor, tensor, target, node, "map")
    return target


def _leave(editor: Editor, tensor: str, node: Node, members: dict[int, Node]) -> None:
    """`tensor` becomes a map; those outside the region, and the graph's output, read it in three dimensions."""
    info = editor.graph.tensors[tensor]
    outside = [u for u in editor.users(tensor) if id(u) not in members]
    flat = TensorInfo(tensor, info.shape, info.dtype)
    if not outside and not editor.is_output(tensor):
        editor.graph.tensors[tensor] = TensorInfo(tensor, _four(info.shape), info.dtype)
        return
    inner = editor.fresh_tensor(f"{tensor}/map", _four(info.shape))
    if tensor in editor.graph.grids:
        editor.graph.grids[inner] = editor.graph.grids[tensor]
    for user in {id(u): u for u in editor.users(tensor) if id(u) in members}.values():
        editor.update(user, inputs=[inner if t == tensor else t for t in user.inputs])
    editor.update(node, outputs=[inner])
    editor.graph.tensors[tensor] = flat
    _reshape(editor, inner, tensor, node, "row")


def _attributes(node: Node) -> None:
    attrs = node.attrs
    for key, first in (
        ("kernel_shape", 1),
        ("strides", 1),
        ("dilations", 1),
        ("output_padding", 0),
        ("output_shape", 1),
    ):
        if attrs.get(key):
            attrs[key] = [first, *attrs[key]]
    if attrs.get("pads"):
        begin, end = attrs["pads"]
        attrs["pads"] = [0, begin, 0, end]
    if node.op == "Concat":
        attrs["axis"] = 1
