"""QuantizeLinear/DequantizeLinear models become float networks whose tensors and weights remember the scales they were quantised with.

A pair on an activation rounds and saturates. The rounding becomes `Graph.grids` of the tensor, which the quantiser takes over; the saturation is kept where it
means something: quantisers delete a ReLU when the range of the pair starts at real 0, so there a Clip from 0 is put back, up to 6 where the range ends
there, or to its end where the CPU computes the tensor; any other range is kept where its tensor stays in float (`keep_ranges`, from `Grid.saturates`).
Weights behind a DequantizeLinear are constants already (`infer`); their convolution gets `weight_scale`. What is no pair stays where it is of 8 bits and lends its
scales to its float tensor, else is written out in float operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Graph, Grid, Node
from npuforge.compile.steps.rewrite import Editor

SAME = 1e-4  # of the end of a range, from 6
_NON_NEGATIVE = ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Clip")
_CARRIES_SIGN = (
    "MaxPool",
    "AveragePool",
    "Reshape",
    "Transpose",
    "Concat",
    "Resize",
    "Slice",
    "Split",
    "GlobalAveragePool",
    "Flatten",
)
_MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")


class QuantisedModelWarning(UserWarning):
    """The model carries its own quantisation: what became of it."""


def take_pairs(graph: Graph) -> list[Warning]:
    """Takes QuantizeLinear → DequantizeLinear pairs out of `graph` into `graph.grids`; what the user should know about it."""
    editor = Editor(graph)
    for node in editor.nodes():
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            _check_sizes(editor, node)
    region = editor.reaches_convolution()
    removed = rectified = 0
    unlike: list[str] = []
    clips: dict[str, list[Node]] = {}
    for node in editor.ordered():
        if node.op != "DequantizeLinear" or not editor.alive(node):
            continue
        quantise = editor.producer(node.inputs[0])
        if quantise is None or quantise.op != "QuantizeLinear" or not _same_grid(editor, quantise, node):
            continue
        x, target = quantise.inputs[0], node.outputs[0]
        low = _lowest(editor, quantise)
        grid = _grid(editor, quantise)
        if grid is None:
            unlike.append(x)
        else:
            graph.grids[target] = replace(grid, saturates=True)
        sources = [*quantise.sources, *node.sources]
        editor.remove(node)
        if low == 0.0 and not _never_negative(editor, x):
            limits = [editor.add_constant(f"{target}/zero", np.zeros((), np.float32))]
            high = _highest(editor, quantise)
            if high is not None and (abs(high - 6.0) < SAME or _in_tail(editor, x, region)):
                limits.append(editor.add_constant(f"{target}/high", np.asarray(high, np.float32)))
            clip = Node(editor.fresh_node(f"{node.name}/clip"), "Clip", [x, *limits], [target], sources=sources)
            editor.add(clip, node)
            clips.setdefault(x, []).append(clip)
            rectified += 1
        else:
            if grid is not None:
                every = not editor.is_output(x) and all(_same_range(editor, u, quantise) for u in editor.users(x))
                graph.grids.setdefault(x, replace(grid, saturates=every))
            identity = Node(editor.fresh_node(f"{node.name}/float"), "Identity", [x], [target], sources=sources)
            editor.add(identity, node)
        removed += 1
    for x, readers in clips.items():
        _saturate_at_once(editor, x, readers)
    _through_moves(editor)
    changed = removed > 0
    left = [n for n in editor.ordered() if n.op in ("QuantizeLinear", "DequantizeLinear")]
    alone = {id(n) for n in left if not _meets_opposite(editor, n)}
    for node in left:
        if id(node) not in alone or not _keep_scales(editor, node):
            changed |= _write_out(editor, node)
    _weight_scales(graph)
    if changed:
        editor.finish()
    if not removed:
        return []
    note = f", {rectified} of them replaced by the ReLU that their range implies" if rectified else ""
    other = (
        f"; {len(unlike)} of them (first: tensor '{unlike[0]}') are not 8 bit or not along the channels: calibration chooses scales there"
        if unlike
        else ""
    )
    return [
        QuantisedModelWarning(
            f"the model is quantised: {removed} QuantizeLinear/DequantizeLinear pairs were taken over{note}{other}"
        )
    ]


def forget_scales(graph: Graph) -> None:
    """Makes a quantised model a float one: its weights stay what they are, its scales are dropped."""
    graph.grids.clear()
    for node in graph.nodes:
        node.weight_scale = None


def _check_sizes(editor: Editor, node: Node) -> None:
    """ModelError where constant scales or zero points do not fit the tensor."""
    if node.attrs.get("block_size", 0):
        return
    shape = editor.shape(node.inputs[0])
    axis = node.attrs.get("axis", 1)
    channels = shape[axis] if -len(shape) <= axis < len(shape) else None
    for position, what in ((1, "scales"), (2, "zero points")):
        value = editor.constant(node.inputs[position]) if len(node.inputs) > position else None
        if value is not None and value.size != 1 and value.size != channels:
            raise ModelError(
                f"node '{node.name}' ({node.op}): {value.size} {what} for a tensor of shape {list(shape)} with attribute axis {axis}, "
                f"expected 1 or {channels or 'an axis of the tensor'}; quantise the model again"
            )


def _same_grid(editor: Editor, quantise: Node, dequantise: Node) -> bool:
    """Both nodes have the same constant scale and zero point."""
    for position in (1, 2):
        first, second = (
            editor.constant(n.inputs[position]) if len(n.inputs) > position and n.inputs[position] else np.zeros(())
            for n in (quantise, dequantise)
        )
        if first is None or second is None or not np.array_equal(first.reshape(-1), second.reshape(-1)):
            return False
    return True


def _zero_point(editor: Editor, node: Node) -> np.ndarray | None:
    """Zero point of a QuantizeLinear or DequantizeLinear; None where it is computed."""
    if len(node.inputs) > 2 and node.inputs[2]:
        return editor.constant(node.inputs[2])
    integers = node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0]
    return np.zeros((), editor.graph.tensors[integers].dtype)


def _grid(editor: Editor, node: Node) -> Grid | None:
    """The node's scales for int8 integers; None where they are not 8 bit, or differ along another axis than the channels."""
    zero, scale = _zero_point(editor, node), editor.constant(node.inputs[1])
    if zero is None or scale is None or zero.dtype not in (np.int8, np.uint8) or node.attrs.get("block_size", 0):
        return None
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        return None
    rank = len(editor.shape(node.inputs[0]))
    if scale.size > 1 and node.attrs.get("axis", 1) % max(rank, 1) != 1:
        return None
    shift = 128 if zero.dtype == np.uint8 else 0
    return Grid(scale.astype(np.float64).reshape(-1), zero.astype(np.int64).reshape(-1) - shift)


def _same_range(editor: Editor, user: Node, quantise: Node) -> bool:
    """Whether `user` quantises the tensor that `quantise` reads to the same range."""
    return user is quantise or (user.op == "QuantizeLinear" and _same_grid(editor, user, quantise))


def _end(editor: Editor, quantise: Node, which: str) -> float | None:
    """The smallest (`min`) or largest (`max`) real value of the pair's range, None where it differs between channels."""
    zero, scale = _zero_point(editor, quantise), editor.constant(quantise.inputs[1])
    if zero is None or scale is None or zero.dtype.kind not in "iu":
        return None
    end = (int(getattr(np.iinfo(zero.dtype), which)) - zero.astype(np.int64)) * scale.astype(np.float64)
    return float(end.reshape(-1)[0]) if np.all(end == end.reshape(-1)[0]) else None


def _lowest(editor: Editor, quantise: Node) -> float | None:
    return _end(editor, quantise, "min")


def _highest(editor: Editor, quantise: Node) -> float | None:
    """As `_end`; the 6 of ReLU6 exactly."""
    high = _end(editor, quantise, "max")
    return 6.0 if high is not None and abs(high - 6.0) < SAME else high


def _in_tail(editor: Editor, tensor: str, region: set[int]) -> bool:
    """Whether the CPU computes `tensor`, behind the last convolution, in float: there no int8 tensor saturates."""
    producer = editor.producer(tensor)
    return producer is not None and id(producer) not in region


def _never_negative(editor: Editor, tensor: str) -> bool:
    """Whether `tensor` cannot be negative for a reason in the graph."""
    node = editor.producer(tensor)
    while node is not None and node.op in (*_CARRIES_SIGN, "Identity"):
        if node.op == "Concat":
            return all(_never_negative(editor, t) for t in node.inputs)
        node = editor.producer(node.inputs[0])
    if node is None:
        return tensor in editor.graph.inputs  # an image's own range: left as it is
    if node.op == "Clip":
        low = editor.constant(node.inputs[1]) if len(node.inputs) > 1 else None
        return low is not None and bool((low >= 0).all())
    return node.op in _NON_NEGATIVE


def _saturate_at_once(editor: Editor, tensor: str, clips: list[Node]) -> None:
    """A tensor that is read only through Clips of one grid may have that grid itself: its saturation is the Clip."""
    grids = editor.graph.grids
    own = {id(n) for n in clips}
    alone = all(id(n) in own for n in _living_users(editor, tensor)) and not editor.is_output(tensor)
    if alone and _one_grid([grids.get(clip.outputs[0]) for clip in clips]):
        grids.setdefault(tensor, grids[clips[0].outputs[0]])


def _through_moves(editor: Editor) -> None:
    """What moves elements (a Transpose of a channels-last network) does not change a scale that holds for all: it goes back to a tensor that only such nodes of
    one scale read, and on to what they write."""
    grids = editor.graph.grids
    moving = [n for n in editor.ordered() if n.op in _MOVES and editor.constant(n.inputs[0]) is None]
    for node in reversed(moving):
        source = node.inputs[0]
        found = [grids.get(n.outputs[0]) if n.op in _MOVES else None for n in _living_users(editor, source)]
        if source not in grids and not editor.is_output(source) and _one_grid(found):
            grids[source] = found[0]  # type: ignore[assignment]
    for node in moving:
        grid = grids.get(node.inputs[0])
        if grid is not None and grid.scale.size == 1 and not editor.is_output(node.outputs[0]):
            grids.setdefault(node.outputs[0], grid)


def _living_users(editor: Editor, tensor: str) -> list[Node]:
    """Readers of `tensor` of which something is read."""
    return [n for n in editor.users(tensor) if any(editor.users(t) or editor.is_output(t) for t in n.outputs)]


def _one_grid(grids: Sequence[Grid | None]) -> bool:
    """Whether all are the same scale and zero point for the whole tensor."""
    values = {None if g is None or g.scale.size > 1 else (float(g.scale[0]), int(g.zero_point[0])) for g in grids}
    return len(values) == 1 and None not in values


def _meets_opposite(editor: Editor, node: Node) -> bool:
    """Whether it is a QuantizeLinear in front of a DequantizeLinear, or the other one of the two."""
    if node.op == "QuantizeLinear":
        return any(n.op == "DequantizeLinear" for n in editor.users(node.outputs[0]))
    before = editor.producer(node.inputs[0])
    return before is not None and before.op == "QuantizeLinear"


def _keep_scales(editor: Editor, node: Node) -> bool:
    """A node of 8 bits without its opposite, behind an integer input or before an integer output of the model, stays (the CPU partition has it) and its float
    tensor has its scales. A QuantizeLinear that rectifies (range from 0) lends them only where nothing else reads that tensor."""
    grid, entering = _grid(editor, node), node.op == "DequantizeLinear"
    if grid is None:
        return False
    real = node.outputs[0] if entering else node.inputs[0]
    if entering or editor.sole_user(real) is node or _lowest(editor, node) != 0.0:
        editor.graph.grids.setdefault(real, grid)
    return True


def _write_out(editor: Editor, node: Node) -> bool:
    """A QuantizeLinear or DequantizeLinear that is in no pair (two unlike grids, other than 8 bits) in float operators."""
    scale, zero = editor.constant(node.inputs[1]), _zero_point(editor, node)
    if scale is None or zero is None or zero.dtype.kind not in "iu" or node.attrs.get("block_size", 0):
        return False
    shape = editor.shape(node.inputs[0])
    axis = node.attrs.get("axis", 1)
    wide = [-1 if i == axis % len(shape) else 1 for i in range(len(shape))] if max(scale.size, zero.size) > 1 else []
    step, shift = (np.asarray(v, np.float32).reshape(wide) for v in (scale, zero))
    limits = np.iinfo(zero.dtype)
    target = node.outputs[0]
    chain: list[tuple[str, list[str], dict[str, int]]] = []

    def constant(label: str, value: np.ndarray | float) -> str:
        return editor.add_constant(f"{target}/{label}", np.asarray(value, np.float32))

    if node.op == "DequantizeLinear":
        chain = [
            ("Cast", [], {"to": 1}),
            ("Sub", [constant("zero_point", shift)], {}),
            ("Mul", [constant("scale", step)], {}),
        ]
    else:
        code = {"int8": 3, "uint8": 2, "int16": 5, "uint16": 4, "int32": 6}[zero.dtype.name]
        chain = [
            ("Div", [constant("scale", step)], {}),
            ("Round", [], {}),
            ("Add", [constant("zero_point", shift)], {}),
            ("Clip", [constant("low", float(limits.min)), constant("high", float(limits.max))], {}),
            ("Cast", [], {"to": code}),
        ]
    current = node.inputs[0]
    editor.remove(node)
    for position, (op, constants, attrs) in enumerate(chain):
        last = position == len(chain) - 1
        output = target if last else editor.fresh_tensor(f"{target}/{op.lower()}", shape)
        name = editor.fresh_node(f"{node.name}/{op.lower()}")
        editor.add(Node(name, op, [current, *constants], [output], dict(attrs), sources=list(node.sources)), node)
        current = output
    return True


def _weight_scales(graph: Graph) -> None:
    """`weight_scale` of every convolution and fully connected layer whose weights come from integers with one scale per output."""
    for node in graph.nodes:
        if node.op not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or len(node.inputs) < 2:
            continue
        grid, weight = graph.grids.get(node.inputs[1]), graph.constants.get(node.inputs[1])
        if grid is None or weight is None or not (np.isfinite(grid.scale).all() and (grid.scale > 0).all()):
            continue
        group = int(node.attrs.get("group", 1))
        if node.op == "Conv":
            axis, outputs = 0, weight.shape[0]
        elif node.op == "ConvTranspose":
            axis, outputs = 1, weight.shape[1] * group
        else:
            axis = 0 if node.attrs.get("transB", 0) else weight.ndim - 1
            outputs = weight.shape[axis]
        if grid.scale.size == 1:
            node.weight_scale = np.full(outputs, grid.scale[0])
        elif grid.axis % weight.ndim == axis and outputs % grid.scale.size == 0:
            node.weight_scale = np.tile(grid.scale, outputs // grid.scale.size)
