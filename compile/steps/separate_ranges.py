"""In `pow2` mode a concatenation has one fix point, which flattens a part of small values beside a part of large ones. Where convolutions read it, each reads the
like parts on their own instead, and the sums are added: conv(a ‖ b) = conv_a(a) + conv_b(b), exact in real arithmetic. (A curve stays with its convolution: a DPU has none behind a sum.) A rule of the calibrate step, which measures again.
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.steps.rewrite import Editor
from npuforge.hw_kernels.activations import is_curve
from npuforge.quant.mixed_ranges import UNLIKE
from npuforge.quant.statistics import Statistics


def separate_unlike(graph: Graph, statistics: Statistics) -> list[str]:
    """Rewrites `graph`, placed, in place; the names of the concatenations whose convolutions no longer read them."""
    editor = Editor(graph)
    found = []
    for node in editor.ordered():
        if node.op != "Concat" or node.device != "NPU":
            continue
        groups = like_parts(node.inputs, statistics)
        readers = editor.users(node.outputs[0])
        taken = [
            u
            for u in readers
            if u.op == "Conv" and u.device == "NPU" and u.attrs["group"] == 1 and not is_curve(u.activation)
        ]
        if len(groups) < 2 or not taken:
            continue
        parts = [_joined(editor, node, group) for group in groups]
        for conv in taken:
            _split(editor, node, conv, groups, parts)
        if len(taken) == len(readers) and not editor.is_output(node.outputs[0]):
            _replace(graph, node.name, [])
            editor.remove(node)
        found.append(node.name)
    if found:
        editor.finish()
        order = {n.name: i for i, n in enumerate(graph.nodes)}
        for part in graph.partitions:
            part.nodes.sort(key=lambda name: order[name])
        _borders(graph, editor)
    return found


def like_parts(inputs: list[str], statistics: Statistics) -> list[list[int]]:
    """Positions of the inputs, widest first, in groups of which none is more than a factor of 16 narrower than its widest."""
    seen = [statistics.tensors[t] for t in inputs]
    sizes = [float(np.maximum(np.abs(s.low), np.abs(s.high)).max(initial=0.0)) for s in seen]
    groups: list[list[int]] = []
    for position in sorted(range(len(inputs)), key=lambda i: -sizes[i]):
        if groups and (sizes[position] == 0.0 or sizes[position] * UNLIKE >= sizes[groups[-1][0]]):
            groups[-1].append(position)
        else:
            groups.append([position])
    return [sorted(group) for group in groups]


def _joined(editor: Editor, node: Node, group: list[int]) -> str:
    """The parts of a group as one tensor."""
    names = [node.inputs[i] for i in group]
    if len(names) == 1:
        return names[0]
    channels = sum(editor.shape(t)[1] for t in names)
    shape = (1, channels, *editor.shape(node.outputs[0])[2:])
    target = editor.fresh_tensor(f"{node.outputs[0]}/like", shape)
    _add(editor, node, Node(editor.fresh_node(f"{node.name}/like"), "Concat", names, [target], {"axis": 1}))
    return target


def _split(editor: Editor, node: Node, conv: Node, groups: list[list[int]], parts: list[str]) -> None:
    widths = [editor.shape(t)[1] for t in node.inputs]
    starts = np.cumsum([0, *widths])
    weight, bias = (editor.graph.constants[t] for t in conv.inputs[1:3])
    shape, last = editor.shape(conv.outputs[0]), len(groups) - 1
    activation, conv.activation = conv.activation, Activation()
    total, target = "", conv.outputs[0]
    for number, (group, part) in enumerate(zip(groups, parts, strict=True)):
        channels = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in group])
        names = [
            editor.add_constant(f"{conv.name}/{label}{number}", np.ascontiguousarray(value))
            for label, value in (
                ("weight", weight[:, channels]),
                ("bias", bias if number == 0 else np.zeros_like(bias)),
            )
        ]
        share = editor.fresh_tensor(f"{target}/share{number}", shape)
        label = editor.fresh_node(f"{conv.name}/share{number}")
        _add(editor, conv, Node(label, "Conv", [part, *names], [share], dict(conv.attrs)))
        if number:
            name = conv.name if number == last else editor.fresh_node(f"{conv.name}/sum{number}")
            to = target if number == last else editor.fresh_tensor(f"{target}/sum{number}", shape)
            if number == last:
                editor.remove(conv)
                editor.add(
                    Node(name, "Add", [total, share], [to], {}, activation, list(conv.sources), conv.device), conv
                )
            else:
                _add(editor, conv, Node(name, "Add", [total, share], [to], {}))
            total = to
        else:
            total = share


def _add(editor: Editor, near: Node, node: Node) -> None:
    """Enters `node` beside `near`, in its partition and on its device."""
    node.sources, node.device = list(near.sources), near.device
    _replace(editor.graph, near.name, [node.name, near.name])
    editor.add(node, near)


def _replace(graph: Graph, name: str, names: list[str]) -> None:
    for part in graph.partitions:
        if name in part.nodes:
            at = part.nodes.index(name)
            part.nodes[at : at + 1] = names


def _borders(graph: Graph, editor: Editor) -> None:
    """Inputs and outputs of the partitions: a part that the concatenation alone read is read by others now."""
    nodes = {n.name: n for n in graph.nodes}
    for part in graph.partitions:
        members = [nodes[name] for name in part.nodes]
        inside = {t for n in members for t in n.outputs if t}
        read = dict.fromkeys(t for n in members for t in n.inputs if t and t not in inside and t not in graph.constants)
        names = set(part.nodes)
        written = [
            t
            for n in members
            for t in n.outputs
            if t and (editor.is_output(t) or any(u.name not in names for u in editor.users(t)))
        ]
        part.inputs, part.outputs = list(read), written
