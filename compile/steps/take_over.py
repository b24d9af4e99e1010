"""Makes a fused graph fit the scales that a quantised model brings (`Graph.grids`, `Node.weight_scale`), exactly. Owned by the fuse step, its last rule.

Operators that move bytes carry scales from input to output. Where the model gives both and they differ, what writes the input writes the output's scale at
once, or an `Affine` of scale 1 requantises. Weights of an asymmetric file (integer minus zero point) may need nine bits: such input channels are read
repeatedly and the weight is split into a sum of bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuforge.compile.ir.graph import Activation, Grid, Node
from npuforge.compile.steps.rewrite import Editor
from npuforge.hw_kernels import operator as operators
from npuforge.hw_kernels.activations import limits
from npuforge.quant.regions import CONVOLUTIONS

WEIGHT_MIN, WEIGHT_MAX = -128, 127


def take_over(editor: Editor) -> None:
    """Applies both rules to the nodes in front of convolutions."""
    if not editor.graph.grids:
        return
    region = editor.reaches_convolution()
    for node in reversed(editor.ordered()):
        operator = operators.find(node.op)
        if id(node) in region and operator is not None and operator.moves_bytes and len(node.outputs) == 1:
            _carry(editor, node, operator)
    for node in editor.ordered():
        if node.op in CONVOLUTIONS and node.weight_scale is not None:
            _split_wide_weights(editor, node)


# ---- scales through operators that move bytes
def _carry(editor: Editor, node: Node, operator: operators.Op) -> None:
    """Brings the inputs of `node` to the scales that the model gives its output."""
    grids, constants = editor.graph.grids, editor.graph.constants
    wanted = grids.get(node.outputs[0])
    inputs = [t for t in node.inputs if t and t not in constants]
    if wanted is None or any(len(editor.shape(t)) != 4 for t in (*inputs, *node.outputs)):
        return
    sources = operator.source_channels(node, [editor.shape(t)[1] for t in inputs])
    for position, tensor in enumerate(inputs):
        grid = _input_grid(wanted, sources, position, editor.shape(tensor)[1], grids.get(tensor))
        if grid is None or _equal(grid, grids.get(tensor), editor.shape(tensor)[1]):
            continue
        if tensor not in grids or (editor.sole_user(tensor) is node and _writes_at_once(editor, tensor, grids[tensor])):
            grids[tensor] = replace(grid, saturates=False)  # other readers of the tensor saw no such range
            continue
        target = editor.fresh_tensor(f"{tensor}/requantised", editor.shape(tensor))
        grids[target] = grid
        channels = editor.shape(tensor)[1]
        attrs = {"scale": [1.0] * channels, "bias": [0.0] * channels}
        name = editor.fresh_node(f"{node.name}/requantise{position}")
        editor.update(node, inputs=[target if t == tensor else t for t in node.inputs])
        editor.add(Node(name, "Affine", [tensor], [target], attrs, sources=list(node.sources)), node)


def _writes_at_once(editor: Editor, tensor: str, grid: Grid) -> bool:
    """Whether what writes `tensor` may write other scales than `grid`. Where no activation says otherwise, the range of `grid` was one: a quantiser deletes
    the ReLU or ReLU6 that saturation replaces."""
    producer = editor.producer(tensor)
    if producer is None:
        return False
    kind = producer.activation.kind
    operator = operators.find(producer.op)
    if operator is not None and not operator.moves_bytes and kind in ("none", "Relu", "Clip"):
        low, high = limits(producer.activation)
        first = float(((-128 - grid.zero_point) * grid.scale).min())
        last = float(((127 - grid.zero_point) * grid.scale).max())
        if producer.op not in ("Conv", "ConvTranspose", "Add", "Sub", "Mul", "Affine"):
            return False
        producer.activation = Activation("Clip", low=max(low, first), high=min(high, last))
    return True


def _input_grid(
    wanted: Grid, sources: list[tuple[int, int]], position: int, channels: int, known: Grid | None
) -> Grid | None:
    """Scales of input `position` that give the output's; None where nothing of it is read, or one channel would need two scales."""
    if wanted.scale.size == 1:
        return wanted if any(number == position and channel >= 0 for number, channel in sources) else None
    scale, zero = np.zeros(channels), np.zeros(channels, np.int64)
    for out, (number, channel) in enumerate(sources):
        if number != position or channel < 0:
            continue
        if scale[channel] not in (0.0, wanted.scale[out]):
            return None
        scale[channel], zero[channel] = wanted.scale[out], wanted.zero_point[out]
    read = scale > 0
    if not read.any():
        return None
    if known is not None:
        own = np.broadcast_to(known.scale, channels), np.broadcast_to(known.zero_point, channels)
    else:
        own = np.full(channels, scale.max()), np.full(channels, zero[int(scale.argmax())])
    return Grid(np.where(read, scale, own[0]), np.where(read, zero, own[1]))


def _equal(a: Grid, b: Grid | None, channels: int) -> bool:
    if b is None:
        return False
    pairs = ((a.scale, b.scale), (a.zero_point, b.zero_point))
    return all(np.array_equal(np.broadcast_to(x, channels), np.broadcast_to(y, channels)) for x, y in pairs)


# ---- weights of nine bits
def _split_wide_weights(editor: Editor, node: Node) -> None:
    """w = first + second (+ third) with all in int8; the further input channels repeat those whose weights need it."""
    weight, scale = editor.constant(node.inputs[1]), node.weight_scale
    assert weight is not None and scale is not None
    group = int(node.attrs.get("group", 1))
    integers = whole_weights(node, weight)
    if integers is None:
        node.weight_scale = None
        return
    unit = weight.astype(np.float64) / np.where(integers == 0, 1, integers)  # real value of one step, per weight
    per_group = editor.shape(node.inputs[0])[1] // group
    rest = integers
    parts: list[np.ndarray] = []
    channels: list[int] = []
    while not parts or rest.any():
        part = np.clip(rest, WEIGHT_MIN, WEIGHT_MAX)
        wide = _by_input(node, part, group, per_group)
        kept = np.arange(per_group) if not parts else np.nonzero(wide.any(axis=(0, 1, 3)))[0]
        parts.append(_by_input(node, (part * unit).astype(np.float32), group, per_group)[:, :, kept])
        channels += [int(c) for c in kept]  # positions within a group, the same in every group
        rest = rest - part
    if len(parts) == 1:
        return
    x, shape = node.inputs[0], editor.shape(node.inputs[0])
    indices = [g * per_group + c for g in range(group) for c in channels]
    joined = np.concatenate(parts, axis=2)  # [group, O/group, channels, kH*kW]
    if node.op == "Conv":
        joined = joined.reshape(weight.shape[0], len(channels), *weight.shape[2:])
    else:
        joined = joined.swapaxes(1, 2).reshape(len(indices), *weight.shape[1:])
    target = editor.fresh_tensor(f"{x}/repeated", (shape[0], len(indices), *shape[2:]))
    if x in editor.graph.grids:
        grid = editor.graph.grids[x]
        per_channel = grid.scale.size > 1
        editor.graph.grids[target] = Grid(grid.scale[indices], grid.zero_point[indices]) if per_channel else grid
    name = editor.add_constant(f"{node.name}/weight", np.ascontiguousarray(joined))
    editor.update(node, inputs=[target, name, *node.inputs[2:]])
    gather = Node(editor.fresh_node(f"{node.name}/repeat"), "ChannelGather", [x], [target], {"indices": indices})
    gather.sources = list(node.sources)
    editor.add(gather, node)


def _by_input(node: Node, weight: np.ndarray, group: int, per_group: int) -> np.ndarray:
    """Weights as [group, O/group, I/group, kH*kW]."""
    if node.op == "Conv":
        return weight.reshape(group, -1, per_group, weight.shape[2] * weight.shape[3])
    return weight.reshape(group, per_group, weight.shape[1], -1).swapaxes(1, 2)


def whole_weights(node: Node, weight: np.ndarray) -> np.ndarray | None:
    """The integers of a convolution's weights in units of its `weight_scale`; None where they are no whole multiples."""
    scale = node.weight_scale
    assert scale is not None
    if node.op == "Conv":
        steps = weight.astype(np.float64) / scale.reshape(-1, 1, 1, 1)
    else:
        group = int(node.attrs.get("group", 1))
        split = weight.astype(np.float64).reshape(group, -1, *weight.shape[1:])
        steps = (split / scale.reshape(group, 1, -1, 1, 1)).reshape(weight.shape)
    integers = np.round(steps)
    return integers.astype(np.int64) if np.abs(steps - integers).max(initial=0.0) < 1e-3 else None
