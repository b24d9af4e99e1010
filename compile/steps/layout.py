"""Channels-last networks (Keras, TensorFlow): transposes move out of the way, so that they meet their opposites and vanish. Rules of the fold step.

In front of an image input's Transpose stand constants and Pad: the Transpose goes before them. Between convolutions a Transpose goes behind what works element by
element or along axes, until the next convolution's own Transpose takes it back.
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.moves import full_pads
from npuforge.compile.steps.rewrite import ELEMENTWISE, Editor

RANK = 4
_UNARY = (
    *ELEMENTWISE,
    "Mish",
    "Cast",
    "Neg",
    "Exp",
    "npuforge::Silu",
    "npuforge::ClipSigmoid",
    "com.example::CustomGELU",
    "DequantizeLinear",  # of one scale
)
_BINARY = ("Add", "Sub", "Mul", "Div", "PRelu", "Max", "Min")
_TAKEN = (*_UNARY, *_BINARY, "Concat", "Pad", "ReduceMean", "ReduceMax")


def hoist_input_transpose(editor: Editor) -> None:
    """Input → constants, Pad → Transpose becomes input → Transpose → constants, Pad."""
    for node in editor.ordered():
        if node.op != "Transpose" or len(editor.shape(node.inputs[0])) != RANK or not editor.alive(node):
            continue
        chain: list[Node] = []
        tensor = node.inputs[0]
        while (before := editor.producer(tensor)) is not None and editor.sole_user(tensor) is not None:
            given = _activations(editor, before)
            if (
                before.op not in (*_UNARY, "Add", "Sub", "Mul", "Div", "Pad")
                or len(given) != 1
                or not _fits(editor, before)
            ):
                break
            chain.append(before)
            tensor = given[0]
        if chain and tensor in editor.graph.inputs and len(editor.shape(tensor)) == RANK:
            _hoist(editor, node, chain, tensor)


def _hoist(editor: Editor, transpose: Node, chain: list[Node], source: str) -> None:
    perm = list(transpose.attrs["perm"])
    target = transpose.outputs[0]
    editor.remove(transpose)
    first = editor.fresh_tensor(
        f"{source}/transposed", [editor.shape(source)[a] for a in perm], editor.graph.tensors[source].dtype
    )
    editor.add(
        Node(transpose.name, "Transpose", [source], [first], {"perm": perm}, sources=transpose.sources), chain[-1]
    )
    inverse = [perm.index(a) for a in range(RANK)]
    for position, node in enumerate(reversed(chain)):
        last = position == len(chain) - 1
        old = node.outputs[0]
        output = (
            target
            if last
            else editor.fresh_tensor(
                f"{old}/transposed", [editor.shape(old)[a] for a in perm], editor.graph.tensors[old].dtype
            )
        )
        _on_inner(editor, node, {t: first for t in _activations(editor, node)}, inverse, output)
        grid = editor.graph.grids.get(old)
        if grid is not None and grid.scale.size == 1:
            editor.graph.grids.setdefault(output, grid)
        first = output


def sink_transposes(editor: Editor) -> None:
    """Transposes in front of convolutions go behind everything that can work in the other order."""
    changed = True
    while changed:
        changed = False
        region = editor.reaches_convolution()
        for node in editor.ordered():
            if id(node) in region and node.op in _TAKEN and len(node.outputs) == 1 and editor.alive(node):
                changed |= _sink(editor, node)
        editor.prune()


def _sink(editor: Editor, node: Node) -> bool:
    given = _activations(editor, node)
    makers = [editor.producer(t) for t in given]
    perms = {tuple(m.attrs.get("perm") or ()) if m is not None and m.op == "Transpose" else None for m in makers}
    if len(perms) != 1 or None in perms or editor.is_output(node.outputs[0]) or not _fits(editor, node):
        return False
    perm = list(perms.pop() or ())
    if len(perm) != RANK or perm == list(range(RANK)):
        return False
    target = node.outputs[0]
    inner = editor.fresh_tensor(
        f"{target}/inner",
        [editor.shape(target)[perm.index(a)] for a in range(RANK)],
        editor.graph.tensors[target].dtype,
    )
    if target in editor.graph.grids:
        editor.graph.grids[inner] = editor.graph.grids[target]
    sources = {t: m.inputs[0] for t, m in zip(given, makers, strict=True) if m is not None}
    names = [s for m in makers if m is not None for s in m.sources]
    _on_inner(editor, node, sources, perm, inner)
    name = editor.fresh_node(f"{node.name}/transpose")
    editor.add(Node(name, "Transpose", [inner], [target], {"perm": perm}, sources=list(dict.fromkeys(names))), node)
    return True


def _activations(editor: Editor, node: Node) -> list[str]:
    return list(dict.fromkeys(t for t in node.inputs if t and editor.constant(t) is None))


def _fits(editor: Editor, node: Node) -> bool:
    """Every activation and the result have four dimensions; parameters are constants of a known kind."""
    tensors = [*_activations(editor, node), *node.outputs]
    if not tensors[:-1] or any(len(editor.shape(t)) != RANK or -1 in editor.shape(t) for t in tensors):
        return False
    if node.op == "Pad":
        return full_pads(editor, node) is not None and len(_activations(editor, node)) == 1
    if node.op in ("ReduceMean", "ReduceMax"):
        return (
            bool(node.attrs.get("keepdims", 1)) and len(node.inputs) > 1 and editor.constant(node.inputs[1]) is not None
        )
    if node.op in _BINARY:
        return all(v is None or v.ndim <= RANK for v in map(editor.constant, node.inputs))
    if node.op == "DequantizeLinear":
        return all(editor.shape(t) in ((), (1,)) for t in node.inputs[1:] if t)
    return node.op != "Clip" or len(_activations(editor, node)) == 1


def _on_inner(editor: Editor, node: Node, sources: dict[str, str], perm: list[int], output: str) -> None:
    """`node` on the tensors before a Transpose by `perm` of its inputs: axis a becomes perm[a]."""
    inverse = [perm.index(a) for a in range(RANK)]
    inputs = [sources.get(t, t) for t in node.inputs]
    if node.op in (*_BINARY, "Concat"):
        for position, name in enumerate(node.inputs):
            value = editor.constant(name)
            if value is not None and value.size > 1:
                wide = value.reshape((1,) * (RANK - value.ndim) + value.shape).transpose(inverse)
                inputs[position] = editor.add_constant(f"{node.name}/{name}", np.ascontiguousarray(wide))
    elif node.op == "Pad":
        pads = full_pads(editor, node)
        assert pads is not None
        moved = [pads[half * RANK + inverse[a]] for half in (0, 1) for a in range(RANK)]
        inputs = [inputs[0], editor.add_constant(f"{node.name}/pads", np.asarray(moved, np.int64)), *inputs[2:3]]
    elif node.op in ("ReduceMean", "ReduceMax"):
        axes = editor.constant(node.inputs[1])
        assert axes is not None
        moved = sorted(perm[int(a) % RANK] for a in axes) if axes.size else list(range(RANK))
        inputs[1] = editor.add_constant(f"{node.name}/axes", np.asarray(moved, np.int64))
    if node.op == "Concat":
        node.attrs["axis"] = perm[int(node.attrs["axis"]) % RANK]
    editor.update(node, inputs=inputs, outputs=[output])
