"""Chains of data movement become `ChannelGather`, `SpaceToDepth`, or a transposed convolution that spreads channels over pixels.

A chain (Reshape, Transpose, Split, Slice, Gather, Concat of parts of one map, Concat or Pad with zeros, …) is replayed on element numbers: each output
element knows which input element it is, or that it is a real 0. If whole channels move, or whole blocks of pixels become channels, the chain is
one operator, however it was written: channel shuffle, split, Focus slices, zero channels. Exact for these shapes by construction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.pixel_shuffle import add_transposed_convolution, is_quicker, phase_channels
from npuforge.compile.steps.rewrite import Editor, merged_sources

MOVES = (
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Split",
    "Slice",
    "Gather",
    "Concat",
    "Pad",
    "SpaceToDepth",
    "DepthToSpace",
)
ZERO = -1
_LIMIT = 1 << 24  # elements of a map that is traced


@dataclass
class _Trace:
    """Element numbers of a tensor in one of its ancestors, and the nodes in between."""

    source: str
    numbers: np.ndarray
    nodes: list[Node]


@dataclass
class _Match:
    """`indices` into the channels of `source` after a space-to-depth of `block` (1: none); `sources`: ONNX names of the chain.

    `spread`, where given: the other way round, the channel [C, b, b] of `source` that each output channel and phase shows.
    """

    source: str
    block: int
    indices: list[int]
    sources: list[str]
    spread: np.ndarray | None = None


def gather_channels(editor: Editor) -> bool:
    """Replaces movement chains in front of convolutions; True if the graph changed."""
    region = editor.reaches_convolution()
    changed = False
    for node in reversed(editor.ordered()):
        if id(node) not in region or node.op not in MOVES or not editor.alive(node):
            continue
        wanted = [t for t in node.outputs if t and (editor.users(t) or editor.is_output(t))]
        found = [(t, match) for t in wanted if (match := _find(editor, t)) is not None]
        places = {t: i for i, t in enumerate(node.outputs)}
        several = len(node.outputs) > 1
        done = {t for t, _ in found}
        if not done:
            continue
        editor.update(node, outputs=["" if t in done else t for t in node.outputs])
        if not any(node.outputs):
            editor.remove(node)
        for target, match in found:
            _emit(editor, node, f"{node.name}:{places[target]}" if several else node.name, target, match)
        editor.prune()
        changed = True
    return changed


def _feature_map(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[0] == 1 and all(d > 0 for d in shape)


def _find(editor: Editor, target: str) -> _Match | None:
    """How `target` moves the channels of its farthest possible ancestor."""
    shape = editor.shape(target)
    if not _feature_map(shape) or math.prod(shape) > _LIMIT:
        return None
    for trace in _traces(editor, target):
        found = _recognise(trace.numbers, editor.shape(trace.source), shape)
        if found is not None:
            return _Match(trace.source, *found, merged_sources(*trace.nodes))
        spread = phase_channels(trace.numbers, editor.shape(trace.source), shape)
        if spread is not None and is_quicker(editor.shape(trace.source), spread):
            return _Match(trace.source, 1, [], merged_sources(*trace.nodes), spread)
    return None


def _traces(editor: Editor, target: str) -> list[_Trace]:
    """Traces of `target` to each of its single-source ancestors that is a feature map, the farthest first."""
    ancestors: list[str] = []
    current: str | None = target
    while current is not None:
        current = _single_source(editor, current)
        if current is not None:
            ancestors.append(current)
    traces = []
    for source in reversed(ancestors):
        if _feature_map(editor.shape(source)) and math.prod(editor.shape(source)) <= _LIMIT:
            memo: dict[str, np.ndarray] = {
                source: np.arange(math.prod(editor.shape(source)), dtype=np.int64).reshape(editor.shape(source))
            }
            nodes: dict[int, Node] = {}
            numbers = _number(editor, target, memo, nodes)
            if numbers is not None:
                order = {id(n): i for i, n in enumerate(editor.nodes())}
                traces.append(_Trace(source, numbers, sorted(nodes.values(), key=lambda n: order[id(n)])))
    return traces


def element_numbers(editor: Editor, target: str) -> tuple[str, np.ndarray, list[Node]] | None:
    """(feature map, numbers of its elements in the shape of `target`, nodes between) of the farthest feature map that `target` is made of."""
    source, current = None, _single_source(editor, target)
    while current is not None:
        source = current if _feature_map(editor.shape(current)) else source
        current = _single_source(editor, current)
    if source is None or math.prod(editor.shape(source)) > _LIMIT:
        return None
    shape = editor.shape(source)
    nodes: dict[int, Node] = {}
    numbers = _number(editor, target, {source: np.arange(math.prod(shape), dtype=np.int64).reshape(shape)}, nodes)
    return None if numbers is None else (source, numbers, list(nodes.values()))


def _single_source(editor: Editor, tensor: str) -> str | None:
    """The nearest tensor that all elements of `tensor` come from through movement, beyond its producer; None at a real operator."""
    node = editor.producer(tensor)
    if node is None or node.op not in MOVES:
        return None
    if node.op != "Concat":
        return node.inputs[0]
    chains = []
    for name in node.inputs:
        if editor.constant(name) is not None:
            continue
        chain = [name]
        while (before := _single_source(editor, chain[-1])) is not None:
            chain.append(before)
        chains.append(chain)
    if not chains:
        return None
    common = set(chains[0]).intersection(*chains[1:])
    return next((t for t in chains[0] if t in common), None)


def _number(editor: Editor, tensor: str, memo: dict[str, np.ndarray], nodes: dict[int, Node]) -> np.ndarray | None:
    """Element numbers of `tensor`; constants of zeros are ZERO; None where something else comes in."""
    if tensor in memo:
        return memo[tensor]
    value = editor.constant(tensor)
    if value is not None:
        return None if value.any() else np.full(value.shape, ZERO, np.int64)
    node = editor.producer(tensor)
    if node is None or node.op not in MOVES:
        return None
    parts = []
    for name in node.inputs if node.op == "Concat" else node.inputs[:1]:
        part = _number(editor, name, memo, nodes)
        if part is None:
            return None
        parts.append(part)
    outputs = _apply(editor, node, parts)
    if outputs is None:
        return None
    nodes[id(node)] = node
    for name, numbers in zip(node.outputs, outputs, strict=True):
        if name:
            assert numbers.shape == editor.shape(name), (node.name, numbers.shape, editor.shape(name))
            memo[name] = numbers
    return memo[tensor]


def _apply(editor: Editor, node: Node, parts: list[np.ndarray]) -> list[np.ndarray] | None:
    x, attrs = parts[0], node.attrs
    shape = editor.shape(node.outputs[0]) if node.outputs[0] else ()
    if node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return [x.reshape(shape)]
    if node.op == "Transpose":
        return [x.transpose(attrs.get("perm") or list(range(x.ndim))[::-1])]
    if node.op == "Concat":
        return [np.concatenate(parts, axis=attrs["axis"])]
    if node.op == "Split":
        axis = attrs.get("axis", 0) % x.ndim
        sizes = [editor.shape(t)[axis] for t in node.outputs if t]
        return None if "" in node.outputs else np.split(x, np.cumsum(sizes)[:-1], axis=axis)
    if node.op == "Gather":
        indices = editor.constant(node.inputs[1])
        return None if indices is None else [np.take(x, indices, axis=attrs.get("axis", 0))]
    if node.op == "Slice":
        return _slice(editor, node, x)
    if node.op == "Pad":
        return _pad(editor, node, x)
    n, c, h, w = x.shape
    b = int(attrs["blocksize"])
    if node.op == "DepthToSpace":
        crd = attrs.get("mode", "DCR") == "CRD"
        blocks = x.reshape(n, c // (b * b), b, b, h, w) if crd else x.reshape(n, b, b, c // (b * b), h, w)
        return [blocks.transpose((0, 1, 4, 2, 5, 3) if crd else (0, 3, 4, 1, 5, 2)).reshape(shape)]
    return [x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(shape)]


def _slice(editor: Editor, node: Node, x: np.ndarray) -> list[np.ndarray] | None:
    values = [editor.constant(t) if t else None for t in node.inputs[1:]]
    if (
        values[0] is None
        or values[1] is None
        or any(v is not None and v.ndim != 1 for v in values)
        or any(t and v is None for t, v in zip(node.inputs[1:], values, strict=True))
    ):
        return None
    starts, ends = values[0].tolist(), values[1].tolist()
    axes = values[2].tolist() if len(values) > 2 and values[2] is not None else list(range(len(starts)))
    steps = values[3].tolist() if len(values) > 3 and values[3] is not None else [1] * len(starts)
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis]
        stop: int | None = max(end, -size - 1) if end < 0 else min(end, size)
        index[axis] = slice(start, None if step < 0 and stop is not None and stop <= -size - 1 else stop, step)
    return [x[tuple(index)]]


def _pad(editor: Editor, node: Node, x: np.ndarray) -> list[np.ndarray] | None:
    pads = full_pads(editor, node)
    if pads is None or min(pads) < 0 or node.attrs.get("mode", "constant") != "constant":
        return None
    if len(node.inputs) > 2 and node.inputs[2]:
        value = editor.constant(node.inputs[2])
        if value is None or value.any():
            return None
    return [np.pad(x, list(zip(pads[: x.ndim], pads[x.ndim :], strict=True)), constant_values=ZERO)]


def full_pads(editor: Editor, node: Node) -> list[int] | None:
    """Begin and end pads of every axis of a Pad node, None where they are not constant."""
    given = editor.constant(node.inputs[1])
    if given is None:
        return None
    rank = len(editor.shape(node.inputs[0]))
    values = [int(v) for v in given]
    if len(node.inputs) < 4 or not node.inputs[3]:
        return values
    axes = editor.constant(node.inputs[3])
    if axes is None:
        return None
    pads = [0] * (2 * rank)
    for i, axis in enumerate(int(a) % rank for a in axes):
        pads[axis], pads[axis + rank] = values[i], values[i + len(axes)]
    return pads


def _recognise(numbers: np.ndarray, source: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, list[int]] | None:
    """(block size, channel indices after space-to-depth) if `numbers` moves whole channels or whole pixel phases."""
    _, channels, height, width = source
    _, _, out_h, out_w = shape
    if height % out_h or width % out_w or height // out_h != width // out_w:
        return None
    block = height // out_h
    grid = (np.arange(out_h)[:, None] * block * width + np.arange(out_w)[None, :] * block)[None]
    first = numbers[0, :, :1, :1]
    zero = first == ZERO
    if not np.array_equal(numbers[0], np.where(zero, ZERO, first + grid)):
        return None
    corner = first.reshape(-1)
    channel, rest = np.divmod(corner, height * width)
    by, bx = np.divmod(rest, width)
    if ((corner != ZERO) & ((by >= block) | (bx >= block))).any():
        return None
    indices = np.where(corner == ZERO, ZERO, (by * block + bx) * channels + channel)
    return block, [int(i) for i in indices]


def _emit(editor: Editor, node: Node, name: str, target: str, match: _Match) -> None:
    """Writes SpaceToDepth and ChannelGather (either left out where it would do nothing) in place of the chain that ends in `target`."""
    x, block = match.source, match.block
    if match.spread is not None:
        label = name if not editor.alive(node) else editor.fresh_node(name)
        add_transposed_convolution(editor, node, label, x, target, match.spread, match.sources)
        return
    _, channels, height, width = editor.shape(x)
    identity = match.indices == list(range(channels * block * block))
    free = not editor.alive(node)  # the chain's last node is gone, its name can be reused
    if block > 1:
        blocks = None if identity else _shared_blocks(editor, x, block)
        if blocks is None:
            shape = (1, channels * block * block, height // block, width // block)
            blocks = target if identity else editor.fresh_tensor(f"{x}/space_to_depth", shape)
            label = name if identity and free else editor.fresh_node(name if identity else f"{name}/space_to_depth")
            editor.add(
                Node(label, "SpaceToDepth", [x], [blocks], {"blocksize": block}, sources=list(match.sources)), node
            )
        if identity:
            return
        x = blocks
    label = name if free else editor.fresh_node(name)
    editor.add(Node(label, "ChannelGather", [x], [target], {"indices": match.indices}, sources=match.sources), node)


def _shared_blocks(editor: Editor, x: str, block: int) -> str | None:
    """The output of a SpaceToDepth of `x` that is already there."""
    for user in editor.users(x):
        if user.op == "SpaceToDepth" and user.attrs["blocksize"] == block:
            return user.outputs[0]
    return None
