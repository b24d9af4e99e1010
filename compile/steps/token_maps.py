"""Products with constant weights (MLPs of transformers, dense layers on maps) as 1 x 1 convolutions. A rule of the fold step.

Tokens are what such products read and write: all axes but one count them, the one that the product sums over holds the channels. It is the last one where the
weights stand on the right ([1, tokens, channels], [windows, tokens, channels], channels-last maps [1, height, width, channels], [rows, channels]), the one before
where they stand on the left ([1, channels, tokens]).

Tokens that products and element-wise operators hand to each other become feature maps [1, channels, height, width]; Reshape and Transpose stand at the
border of such a region only, and vanish where a convolution's map is what was made into tokens. A region is taken where the CPU would need longer for its products
than for handing its border tensors over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from npuforge.compile.ir.graph import Node, TensorInfo
from npuforge.compile.steps.linear import product_weights
from npuforge.compile.steps.moves import MOVES, element_numbers
from npuforge.compile.steps.partition import (
    CPU_BYTES_PER_SECOND,
    CPU_MACS_PER_SECOND,
    ENTRY_SECONDS,
    SMALL_SHARE,
    macs,
)
from npuforge.compile.steps.rewrite import ELEMENTWISE, Editor
from npuforge.quant.regions import CONVOLUTIONS

_UNARY = (*ELEMENTWISE, "Mish", "Erf", "Gelu", "Neg", "Swish", "Celu", "Selu", "npuforge::Silu")
_BINARY = ("Add", "Sub", "Mul", "Div", "Pow")
_PRODUCTS = ("MatMul", "Gemm")
_ON_MAPS = (*CONVOLUTIONS, "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "Resize")
LAST, BEFORE_LAST = -1, -2  # where the channels are


@dataclass
class _Region:
    """Nodes that hand tokens to each other, in order, the axis of their channels, the height and width of their maps, the pixel of each token (None: in order)."""

    nodes: list[Node]
    axis: int
    size: tuple[int, int] = (1, 1)
    pixels: np.ndarray | None = None
    written: set[str] = field(default_factory=set)


def lift_tokens(editor: Editor) -> bool:
    """Rewrites every region that pays; True if there was one."""
    total = sum(macs(n, editor.graph) for n in editor.ordered())
    changed = False
    for axis in (LAST, BEFORE_LAST):
        for region in _regions(editor, axis):
            if _pays(editor, region, total):
                region.size, region.pixels = _place(editor, region)
                _rewrite(editor, region)
                changed = True
    return changed


# ---- which regions
def _regions(editor: Editor, axis: int) -> list[_Region]:
    """Connected nodes that can work on maps, with a product among them."""
    members: list[Node] = []
    refused: set[int] = set()  # element by element on a map, in front of all products
    group: dict[int, _Region] = {}
    for node in editor.ordered():
        if not _liftable(editor, node, axis):
            continue
        made = [p for t in _tokens(editor, node) if (p := editor.producer(t)) is not None]
        joined = {id(group[id(p)]): group[id(p)] for p in made if id(p) in group}
        if node.op not in _PRODUCTS and not joined and any(p.op in _ON_MAPS or id(p) in refused for p in made):
            refused.add(id(node))
            continue
        members.append(node)
        region = _Region([], axis)
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
    return [r for r in found if any(n.op in _PRODUCTS for n in r.nodes)]


def _tokens(editor: Editor, node: Node) -> list[str]:
    """Inputs that are computed."""
    return [t for t in node.inputs if t and editor.constant(t) is None]


def _shaped(editor: Editor, tensor: str, axis: int) -> bool:
    """Tokens in float, with one scale if a quantised model brings any."""
    shape, grid = editor.shape(tensor), editor.graph.grids.get(tensor)
    return (
        len(shape) >= 2
        and min(shape) > 0
        and (axis == LAST or math.prod(shape[:axis]) == 1)
        and (len(shape) > 2 or axis == BEFORE_LAST or shape[0] > 1)  # one row: a fully connected layer, or none
        and editor.graph.tensors[tensor].dtype == "float32"
        and (grid is None or np.size(grid.scale) == 1)
    )


def _liftable(editor: Editor, node: Node, axis: int) -> bool:
    if len(node.outputs) != 1 or not all(_shaped(editor, t, axis) for t in (*_tokens(editor, node), *node.outputs)):
        return False
    if node.op in _PRODUCTS:
        return len(_tokens(editor, node)) == 1 and _weights(editor, node, axis) is not None
    if node.op in _UNARY:
        return len(_tokens(editor, node)) == 1
    shape = editor.shape(node.outputs[0])
    values = [v for t in node.inputs if (v := editor.constant(t)) is not None]
    return (
        node.op in _BINARY
        and len(values) < 2
        and (node.op != "Pow" or editor.constant(node.inputs[1]) is not None)
        and all(editor.shape(t) == shape for t in _tokens(editor, node))
        and all(v.ndim <= len(shape) and _per_channel(v, shape, axis) for v in values)
    )


def _per_channel(value: np.ndarray, shape: tuple[int, ...], axis: int) -> bool:
    """One number, or one for every channel of tokens of `shape`."""
    return value.size == 1 or (value.ndim >= -axis and value.size == value.shape[axis] == shape[axis])


def _weights(editor: Editor, node: Node, axis: int) -> tuple[np.ndarray, np.ndarray | None] | None:
    """(weights [inputs, outputs], bias [outputs] of a Gemm) where they stand on the side that `axis` means."""
    if axis == LAST:
        found = product_weights(editor, node)
        return None if found is None else (found[0], found[1] if node.op == "Gemm" else None)
    left = editor.constant(node.inputs[0])
    if (
        node.op != "MatMul"
        or left is None
        or left.ndim != 2
        or left.dtype != np.float32
        or node.weight_scale is not None
    ):
        return None
    return left.T.astype(np.float64), None


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


def _place(editor: Editor, region: _Region) -> tuple[tuple[int, int], np.ndarray | None]:
    """Height and width of the map that the tokens were or become, else their own axes, else one row; pixel of each token where they were moved (windows)."""
    shape = editor.shape(region.nodes[0].outputs[0])
    count = math.prod(shape) // shape[region.axis]
    if region.axis == LAST and len(shape) == 4 and shape[0] == 1:
        return (shape[1], shape[2]), None
    read, left = _border(editor, region)
    for tensor in read:
        found = _pixels(editor, tensor, region)
        if found is not None:
            return found
    for tensor in left:
        for later in _later_shapes(editor, tensor):
            channels = editor.shape(tensor)[region.axis]
            for height, width in (later[2:], later[1:3]):
                if height * width == count and sorted(later) == sorted((1, channels, height, width)):
                    return (height, width), None
    return ((count // shape[-2], shape[-2]) if region.axis == LAST else (1, count)), None


def _pixels(editor: Editor, tensor: str, region: _Region) -> tuple[tuple[int, int], np.ndarray | None] | None:
    """Size of the map whose pixels the tokens are, each one once, and the pixel of each (None: in order)."""
    traced = element_numbers(editor, tensor)
    if traced is None:
        return None
    source, numbers, _ = traced
    _, channels, height, width = editor.shape(source)
    rows = numbers.reshape(-1, numbers.shape[-1]).T if region.axis == LAST else numbers.reshape(numbers.shape[-2:])
    pixels = np.arange(height * width)
    if rows.shape != (channels, height * width) or not np.array_equal(np.sort(rows[0]), pixels):
        return None
    if not np.array_equal(rows, rows[0] + np.arange(channels)[:, np.newaxis] * height * width):
        return None
    return (height, width), (None if np.array_equal(rows[0], pixels) else rows[0])


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
        if node.op in _PRODUCTS:
            inputs = _convolution(editor, node, region, next(t for t in inputs if editor.constant(t) is None))
        elif node.op in _BINARY:
            for position, name in enumerate(node.inputs):
                value = editor.constant(name)
                if value is not None:
                    inputs[position] = editor.add_constant(f"{node.name}/{name}", value.reshape(-1, 1, 1))
        editor.update(node, inputs=inputs)
    for tensor in sorted(region.written):
        _leave(editor, tensor, region, tensor in left)


def _convolution(editor: Editor, node: Node, region: _Region, x: str) -> list[str]:
    """Makes a product a convolution and returns its inputs."""
    found = _weights(editor, node, region.axis)
    assert found is not None
    weight, bias = found
    values = [("weight", weight.T[:, :, np.newaxis, np.newaxis])] + ([("bias", bias)] if bias is not None else [])
    if node.weight_scale is not None:
        node.weight_scale = node.weight_scale * abs(float(node.attrs.get("alpha", 1.0)))
    node.op, node.attrs = "Conv", {"kernel_shape": [1, 1]}
    return [
        x,
        *(editor.add_constant(f"{node.name}/{label}", np.ascontiguousarray(v, np.float32)) for label, v in values),
    ]


Move = list[int] | np.ndarray | None  # permutation of a Transpose, indices of a Gather along the last axis, a Reshape


def _steps(shape: tuple[int, ...], region: _Region) -> list[tuple[tuple[int, ...], Move]]:
    """How tokens of `shape` become their map: shape after each step, and what it is."""
    channels, count = shape[region.axis], math.prod(region.size)
    on_map, columns = (1, channels, *region.size), (1, channels, count)
    last, rows = (1, *region.size, channels), (1, count, channels)
    steps: list[tuple[tuple[int, ...], Move]] = [(on_map, None)]
    if region.pixels is not None:
        steps = [(columns, np.argsort(region.pixels)), *steps]
    if region.axis == BEFORE_LAST:
        return steps if region.pixels is None or shape == columns else [(columns, None), *steps]
    if region.pixels is not None or shape == rows:
        steps = [(columns, [0, 2, 1]), *steps]
        return steps if shape == rows else [(rows, None), *steps]
    turned: tuple[tuple[int, ...], Move] = (on_map, [0, 3, 1, 2])
    return [turned] if shape == last else [(last, None), turned]


def _chain(editor: Editor, tensors: list[str], moves: list[Move], near: Node) -> None:
    """Transpose, Gather and Reshape from each tensor to the next one."""
    for (source, target), move in zip(pairwise(tensors), moves, strict=True):
        inputs = [source]
        attrs: dict[str, list[int] | int] = {}
        if isinstance(move, list):
            op, attrs = "Transpose", {"perm": move}
        elif move is not None:
            op, attrs = "Gather", {"axis": 2}
            inputs.append(editor.add_constant(f"{target}/indices", move))
        else:
            op = "Reshape"
            inputs.append(editor.add_constant(f"{target}/shape", np.asarray(editor.shape(target), np.int64)))
        name = editor.fresh_node(f"{near.name}/{op.lower()}")
        editor.add(Node(name, op, inputs, [target], attrs, sources=list(near.sources)), near)


def _inverse(move: Move) -> Move:
    if move is None:
        return None
    return [int(i) for i in np.argsort(move)] if isinstance(move, list) else np.argsort(move)


def _fresh(editor: Editor, tensor: str, shapes: list[tuple[int, ...]]) -> list[str]:
    """New tensors that hold what `tensor` holds."""
    names = [editor.fresh_tensor(f"{tensor}/map", shape) for shape in shapes]
    if tensor in editor.graph.grids:
        editor.graph.grids.update(dict.fromkeys(names, editor.graph.grids[tensor]))
    return names


def _enter(editor: Editor, tensor: str, region: _Region) -> str:
    """The map of tokens that come in."""
    near = editor.producer(tensor) or next(n for n in region.nodes if tensor in n.inputs)
    steps = _steps(editor.shape(tensor), region)
    names = _fresh(editor, tensor, [shape for shape, _ in steps])
    _chain(editor, [tensor, *names], [move for _, move in steps], near)
    return names[-1]


def _leave(editor: Editor, tensor: str, region: _Region, outside: bool) -> None:
    """`tensor` becomes a map; those outside the region, and the graph's output, read it as tokens."""
    info = editor.graph.tensors[tensor]
    steps = _steps(info.shape, region)
    if not outside:
        editor.graph.tensors[tensor] = TensorInfo(tensor, steps[-1][0], info.dtype)
        return
    node = editor.producer(tensor)
    assert node is not None
    inside = {id(n) for n in region.nodes}
    names = _fresh(editor, tensor, [shape for shape, _ in steps])[::-1]
    for user in {id(u): u for u in editor.users(tensor) if id(u) in inside}.values():
        editor.update(user, inputs=[names[0] if t == tensor else t for t in user.inputs])
    editor.update(node, outputs=[names[0]])
    _chain(editor, [*names, tensor], [_inverse(move) for _, move in steps[::-1]], node)
