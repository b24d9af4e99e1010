"""Products of tokens [1, tokens, channels] or of maps [1, height, width, channels] with constant weights (MLPs of transformers, ConvNeXt, Keras' Dense) as
1 x 1 convolutions. A rule of the fold step.

Tokens that such products and element-wise operators hand to each other become feature maps [1, channels, height, width]; Reshape and Transpose stand at the
border of such a region only, and vanish where a convolution's map is what was made into tokens. A region is taken where the CPU would need longer for its products
than for handing its border tensors over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from npuforge.compile.ir.graph import Node, TensorInfo
from npuforge.compile.steps.moves import MOVES, element_numbers
from npuforge.compile.steps.partition import (
    CPU_BYTES_PER_SECOND,
    CPU_MACS_PER_SECOND,
    ENTRY_SECONDS,
    SMALL_SHARE,
    macs,
)
from npuforge.compile.steps.rewrite import ELEMENTWISE, Editor

_UNARY = (*ELEMENTWISE, "Mish", "Erf", "Gelu")
_BINARY = ("Add", "Sub", "Mul", "Div")
# By rank: from and to channels last.
_TO_FIRST = {3: [0, 2, 1], 4: [0, 3, 1, 2]}
_TO_LAST = {3: [0, 2, 1], 4: [0, 2, 3, 1]}


@dataclass
class _Region:
    """Nodes that hand tokens to each other, in order, and the height and width of their maps."""

    nodes: list[Node]
    size: tuple[int, int] = (1, 1)
    written: set[str] = field(default_factory=set)


def lift_tokens(editor: Editor) -> bool:
    """Rewrites every region that pays; True if there was one."""
    total = sum(macs(n, editor.graph) for n in editor.ordered())
    changed = False
    for region in _regions(editor):
        if _pays(editor, region, total):
            region.size = _size(editor, region)
            _rewrite(editor, region)
            changed = True
    return changed


# ---- which regions
def _regions(editor: Editor) -> list[_Region]:
    """Connected nodes that can work on maps, with a product among them."""
    members = [n for n in editor.ordered() if _liftable(editor, n)]
    group: dict[int, _Region] = {}
    for node in members:
        near = [p for t in _tokens(editor, node) if (p := editor.producer(t)) is not None and id(p) in group]
        joined = {id(group[id(p)]): group[id(p)] for p in near}
        region = _Region([])
        for other in joined.values():
            region.nodes += other.nodes
        region.nodes.append(node)
        for n in region.nodes:
            group[id(n)] = region
    order = {id(n): i for i, n in enumerate(members)}
    found = list({id(r): r for r in group.values()}.values())
    for region in found:
        region.nodes.sort(key=lambda n: order[id(n)])
        region.written = {n.outputs[0] for n in region.nodes}
    return [r for r in found if any(n.op == "MatMul" for n in r.nodes)]


def _tokens(editor: Editor, node: Node) -> list[str]:
    """Inputs that are computed."""
    return [t for t in node.inputs if t and editor.constant(t) is None]


def _shaped(editor: Editor, tensor: str) -> bool:
    """[1, tokens, channels] or [1, height, width, channels] in float, with one scale if a quantised model brings any."""
    shape, grid = editor.shape(tensor), editor.graph.grids.get(tensor)
    return (
        len(shape) in _TO_FIRST
        and shape[0] == 1
        and min(shape) > 0
        and editor.graph.tensors[tensor].dtype == "float32"
        and (grid is None or np.size(grid.scale) == 1)
    )


def _liftable(editor: Editor, node: Node) -> bool:
    if len(node.outputs) != 1 or not all(_shaped(editor, t) for t in (*_tokens(editor, node), *node.outputs)):
        return False
    if node.op == "MatMul":
        weight = editor.constant(node.inputs[1])
        return weight is not None and weight.ndim == 2 and len(_tokens(editor, node)) == 1
    if node.op in _UNARY:
        return len(_tokens(editor, node)) == 1
    shape = editor.shape(node.outputs[0])
    values = [v for t in node.inputs if (v := editor.constant(t)) is not None]
    return (
        node.op in _BINARY
        and len(values) < 2
        and all(editor.shape(t) == shape for t in _tokens(editor, node))
        and all(v.ndim <= len(shape) and v.size in (1, shape[-1]) and v.size == (v.shape or (1,))[-1] for v in values)
    )


def _border(editor: Editor, region: _Region) -> tuple[list[str], list[str]]:
    """Tensors that come in, and tensors that others read."""
    inside = {id(n) for n in region.nodes}
    read = dict.fromkeys(t for n in region.nodes for t in _tokens(editor, n) if t not in region.written)
    left = [t for t in region.written if editor.is_output(t) or any(id(u) not in inside for u in editor.users(t))]
    return list(read), left


def _pays(editor: Editor, region: _Region, total: int) -> bool:
    work = sum(macs(n, editor.graph) for n in region.nodes)
    values = sum(math.prod(editor.shape(t)) for names in _border(editor, region) for t in names)
    seconds = ENTRY_SECONDS + 5 * values / CPU_BYTES_PER_SECOND  # each value leaves or enters float: 4 bytes and 1
    return work >= SMALL_SHARE * total and work / CPU_MACS_PER_SECOND > seconds


def _size(editor: Editor, region: _Region) -> tuple[int, int]:
    """Height and width of the map that the tokens were or become; else one row."""
    shape = editor.shape(region.nodes[0].outputs[0])
    if len(shape) == 4:
        return shape[1], shape[2]
    count = shape[1]
    read, left = _border(editor, region)
    for tensor in read:
        traced = element_numbers(editor, tensor)
        if traced is None:
            continue
        source, numbers, _ = traced
        _, channels, height, width = editor.shape(source)
        plain = np.arange(channels * height * width).reshape(channels, -1).T
        if height * width == count and np.array_equal(numbers[0], plain):
            return height, width
    for tensor in left:
        for later in _later_shapes(editor, tensor):
            channels = editor.shape(tensor)[2]
            for height, width in (later[2:], later[1:3]):
                if height * width == count and sorted(later) == sorted((1, channels, height, width)):
                    return height, width
    return 1, count


def _later_shapes(editor: Editor, tensor: str) -> list[tuple[int, ...]]:
    """Four-dimensional shapes that the tensor takes through movement alone."""
    found: list[tuple[int, ...]] = []
    waiting = [tensor]
    while waiting:
        for user in editor.users(waiting.pop()):
            if user.op in MOVES and len(user.outputs) == 1 and len(found) < 8:
                shape = editor.shape(user.outputs[0])
                waiting.append(user.outputs[0])
                if len(shape) == 4 and min(shape) > 0:
                    found.append(shape)
    return found


# ---- the rewriting
def _rewrite(editor: Editor, region: _Region) -> None:
    read, left = _border(editor, region)
    maps = {t: _enter(editor, t, region) for t in read}
    for node in region.nodes:
        inputs = [maps.get(t, t) for t in node.inputs]
        if node.op == "MatMul":
            weight = editor.constant(node.inputs[1])
            assert weight is not None
            inputs[1] = editor.add_constant(
                f"{node.name}/weight", np.ascontiguousarray(weight.T[:, :, np.newaxis, np.newaxis])
            )
            node.op, node.attrs = "Conv", {"kernel_shape": [1, 1]}
        elif node.op in _BINARY:
            for position, name in enumerate(node.inputs):
                value = editor.constant(name)
                if value is not None:
                    inputs[position] = editor.add_constant(f"{node.name}/{name}", value.reshape(-1, 1, 1))
        editor.update(node, inputs=inputs)
    for tensor in sorted(region.written):
        _leave(editor, tensor, region, tensor in left)


def _map_shape(editor: Editor, tensor: str, region: _Region) -> tuple[int, ...]:
    return (1, editor.shape(tensor)[-1], *region.size)


def _grid(editor: Editor, source: str, target: str) -> None:
    if source in editor.graph.grids:
        editor.graph.grids[target] = editor.graph.grids[source]


def _reshape(editor: Editor, source: str, target: str, near: Node) -> None:
    shape = editor.add_constant(f"{target}/shape", np.asarray(editor.shape(target), np.int64))
    name = editor.fresh_node(f"{near.name}/reshape")
    editor.add(Node(name, "Reshape", [source, shape], [target], sources=list(near.sources)), near)


def _transpose(editor: Editor, source: str, target: str, perm: list[int], near: Node) -> None:
    name = editor.fresh_node(f"{near.name}/transpose")
    editor.add(Node(name, "Transpose", [source], [target], {"perm": list(perm)}, sources=list(near.sources)), near)


def _enter(editor: Editor, tensor: str, region: _Region) -> str:
    """[1, tokens, channels] or [1, height, width, channels] → [1, channels, height, width]."""
    near = editor.producer(tensor) or next(n for n in region.nodes if tensor in n.inputs)
    shape = editor.shape(tensor)
    perm = _TO_FIRST[len(shape)]
    turned = editor.fresh_tensor(f"{tensor}/turned", [shape[a] for a in perm])
    _grid(editor, tensor, turned)
    _transpose(editor, tensor, turned, perm, near)
    if len(shape) == 4:
        return turned
    target = editor.fresh_tensor(f"{tensor}/map", _map_shape(editor, tensor, region))
    _grid(editor, tensor, target)
    _reshape(editor, turned, target, near)
    return target


def _leave(editor: Editor, tensor: str, region: _Region, outside: bool) -> None:
    """`tensor` becomes a map; those outside the region, and the graph's output, read it as tokens."""
    info = editor.graph.tensors[tensor]
    shape = _map_shape(editor, tensor, region)
    if not outside:
        editor.graph.tensors[tensor] = TensorInfo(tensor, shape, info.dtype)
        return
    node = editor.producer(tensor)
    assert node is not None
    inside = {id(n) for n in region.nodes}
    inner = editor.fresh_tensor(f"{tensor}/map", shape)
    _grid(editor, tensor, inner)
    for user in {id(u): u for u in editor.users(tensor) if id(u) in inside}.values():
        editor.update(user, inputs=[inner if t == tensor else t for t in user.inputs])
    editor.update(node, outputs=[inner])
    if len(info.shape) == 4:
        _transpose(editor, inner, tensor, _TO_LAST[4], node)
        return
    turned = editor.fresh_tensor(f"{tensor}/turned", (1, info.shape[2], info.shape[1]))
    _grid(editor, tensor, turned)
    _reshape(editor, inner, turned, node)
    _transpose(editor, turned, tensor, _TO_LAST[3], node)
