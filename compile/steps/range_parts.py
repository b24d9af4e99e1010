"""A tensor of unlike ranges as tensors of its own: which channel lies in which (`Parts`), and how one operator over the whole becomes operators over the
parts. op(a ‖ b) = op(a) ‖ op(b) where every channel is computed by itself; conv(a ‖ b) = conv_a(a) + conv_b(b), the activation behind the sum.

Exact in real arithmetic. The pass that applies these rules is `separate_ranges.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.steps.rewrite import Editor
from npuforge.hw_kernels import operator
from npuforge.quant.layers import affine_parameters
from npuforge.quant.regions import CONVOLUTIONS, PAIRS

WINDOWS = ("MaxPool", "AveragePool", "Resize")
Takes = Callable[[Node], bool]  # whether the hardware takes a node


@dataclass(frozen=True)
class Parts:
    """Channel c of the whole lies in tensor `names[owner[c]]`, whose channels are in the order of the whole."""

    owner: np.ndarray  # int64 [C]
    names: list[str]

    def channels(self, part: int) -> np.ndarray:
        """Channels of the whole that lie in this part."""
        return np.flatnonzero(self.owner == part)


@dataclass
class Split:
    """The nodes that take an operator's place; `parts` of its output, or None where the last of them writes it as before."""

    nodes: list[Node]
    parts: Parts | None = None


class Splitter:
    """Makes the nodes; enters nothing into the graph but tensors and constants, which `Editor.finish` drops where nothing names them."""

    def __init__(self, editor: Editor, parts: dict[str, Parts], takes: Takes) -> None:
        self.editor, self.parts, self.takes = editor, parts, takes

    @property
    def graph(self) -> Graph:
        """The graph at work."""
        return self.editor.graph

    def split(self, node: Node) -> Split | None:
        """The same part by part, None where this operator mixes channels in a way that no rule here knows."""
        if node.op in CONVOLUTIONS:
            return self._per_group(node) or self._dense(node)
        if node.op in WINDOWS or node.op == "Affine":
            return self._per_channel(node, self.parts[node.inputs[0]])
        if node.op in ("ChannelGather", "SpaceToDepth"):
            return self._moved(node)
        return self._pixelwise(node) if node.op in PAIRS else None

    # ---- helpers
    def _node(self, near: Node, label: str, inputs: list[str], channels: int, changes: dict[str, Any]) -> Node:
        """A copy of `near` with an output of its own, of `channels` channels."""
        target = near.outputs[0]
        shape = self.editor.shape(target)
        name = self.editor.fresh_node(f"{near.name}/{label}")
        output = self.editor.fresh_tensor(f"{target}/{label}", (shape[0], channels, *shape[2:]))
        copied: dict[str, Any] = {"attrs": dict(near.attrs), "sources": list(near.sources), "weight_scale": None}
        return replace(near, **(copied | changes), name=name, inputs=inputs, outputs=[output])

    def _activation(self, activation: Activation, channels: np.ndarray) -> Activation:
        if activation.slope is None or np.size(activation.slope) == 1:
            return activation
        return replace(activation, slope=np.reshape(activation.slope, -1)[channels])

    def _constant(self, node: Node, label: str, value: np.ndarray) -> str:
        return self.editor.add_constant(f"{node.name}/{label}", np.ascontiguousarray(value))

    def gathered(self, near: Node, tensor: str, channels: np.ndarray, label: str, device: str) -> Node:
        """The node that picks `channels` of `tensor`."""
        shape = self.editor.shape(tensor)
        target = self.editor.fresh_tensor(f"{tensor}/{label}", (shape[0], len(channels), *shape[2:]))
        name = self.editor.fresh_node(f"{near.name}/{label}")
        attrs = {"indices": [int(c) for c in channels]}
        return Node(name, "ChannelGather", [tensor], [target], attrs, sources=list(near.sources), device=device)

    def joined(
        self, near: Node, pieces: list[tuple[str, np.ndarray]], device: str, target: str = "", name: str = ""
    ) -> tuple[list[Node], str]:
        """Nodes that join tensors, each with its channels' numbers in a whole, in the order of those numbers; and the result's name.

        `target` and `name`: of the result and of the node that writes it, where they are given.
        """
        if len(pieces) == 1 and not target:
            return [], pieces[0][0]
        order = np.concatenate([channels for _, channels in pieces])
        names = [tensor for tensor, _ in pieces]
        shape = self.editor.shape(names[0])
        whole = (shape[0], len(order), *shape[2:])
        label = name or self.editor.fresh_node(f"{near.name}/like")
        target = target or self.editor.fresh_tensor(f"{near.outputs[0]}/like", whole)
        sources = list(near.sources)
        if (np.diff(order) > 0).all():
            return [Node(label, "Concat", names, [target], {"axis": 1}, sources=sources, device=device)], target
        between = self.editor.fresh_tensor(f"{target}/parts", whole)
        first = Node(self.editor.fresh_node(f"{label}/parts"), "Concat", names, [between], {"axis": 1})
        attrs = {"indices": [int(i) for i in np.argsort(order)]}
        nodes = [first, Node(label, "ChannelGather", [between], [target], attrs)]
        for made in nodes:
            made.sources, made.device = list(sources), device
        return nodes, target

    # ---- one channel by itself
    def _per_channel(self, node: Node, parts: Parts) -> Split | None:
        nodes = []
        for part, name in enumerate(parts.names):
            channels = parts.channels(part)
            changes: dict[str, Any] = {"activation": self._activation(node.activation, channels)}
            if node.op == "Affine":
                scale, bias = affine_parameters(node)
                changes["attrs"] = {"scale": scale[channels], "bias": bias[channels]}
            nodes.append(self._node(node, f"part{part}", [name], len(channels), changes))
        return self._checked(nodes, parts.owner)

    def _checked(self, nodes: list[Node], owner: np.ndarray, before: Iterable[Node] = ()) -> Split | None:
        every = [*before, *nodes]
        return Split(every, Parts(owner, [n.outputs[0] for n in nodes])) if all(map(self.takes, every)) else None

    def _moved(self, node: Node) -> Split | None:
        """ChannelGather, SpaceToDepth: every part by itself, its channels in the order in which the whole has them."""
        parts = self.parts[node.inputs[0]]
        sources = np.array([c for _, c in operator.get(node).source_channels(node, [len(parts.owner)])])
        owner = np.where(sources >= 0, parts.owner[sources], 0)  # a real 0 fits under any scale
        position = np.zeros(len(parts.owner), np.int64)
        for part in range(len(parts.names)):
            position[parts.channels(part)] = np.arange(np.count_nonzero(parts.owner == part))
        used = [part for part in range(len(parts.names)) if (owner == part).any()]
        nodes, names = [], []
        for part in used:
            taken = sources[owner == part]
            indices = np.where(taken >= 0, position[taken], -1)
            whole = np.count_nonzero(parts.owner == part)
            if node.op == "ChannelGather" and np.array_equal(indices, np.arange(whole)):
                names.append(parts.names[part])
                continue
            attrs = {"indices": [int(i) for i in indices]} if node.op == "ChannelGather" else dict(node.attrs)
            nodes.append(self._node(node, f"part{part}", [parts.names[part]], len(taken), {"attrs": attrs}))
            names.append(nodes[-1].outputs[0])
        if not all(map(self.takes, nodes)):
            return None
        return Split(nodes, Parts(np.searchsorted(used, owner), names))

    def _pixelwise(self, node: Node) -> Split | None:
        """Sums, differences and products: parts that no operand divides further; whole operands are picked from."""
        counts = [self.editor.shape(t)[1] for t in node.inputs]
        channels = max(counts)
        if any(n not in (1, channels) for n in counts) or self.editor.shape(node.outputs[0])[1] != channels:
            return None
        owners = [self.parts[t].owner for t in node.inputs if t in self.parts]
        _, owner = np.unique(np.stack(owners), axis=1, return_inverse=True)
        owner = np.reshape(owner, -1)
        before: list[Node] = []
        nodes: list[Node] = []
        for part in range(int(owner.max()) + 1):
            taken = np.flatnonzero(owner == part)
            inputs = []
            for tensor, count in zip(node.inputs, counts, strict=True):
                if count == 1:
                    inputs.append(tensor)
                    continue
                source, indices = tensor, taken
                if tensor in self.parts:
                    known = self.parts[tensor]
                    source = known.names[int(known.owner[taken[0]])]
                    indices = np.searchsorted(known.channels(int(known.owner[taken[0]])), taken)
                if not np.array_equal(indices, np.arange(self.editor.shape(source)[1])):
                    before.append(self.gathered(node, source, indices, f"part{part}", node.device))
                    source = before[-1].outputs[0]
                inputs.append(source)
            changes = {"activation": self._activation(node.activation, taken)}
            nodes.append(self._node(node, f"part{part}", inputs, len(taken), changes))
        return self._checked(nodes, owner, before)

    # ---- convolutions
    def _weights(self, node: Node) -> tuple[np.ndarray, np.ndarray, int]:
        weight, bias = (self.graph.constants[t] for t in node.inputs[1:3])
        return weight, bias, int(node.attrs.get("group", 1))

    def _per_group(self, node: Node) -> Split | None:
        """A grouped convolution none of whose groups reads two parts: each part with its groups."""
        weight, bias, group = self._weights(node)
        parts = self.parts[node.inputs[0]]
        read = parts.owner.reshape(group, -1)
        if (read != read[:, :1]).any():
            return None
        per_group = len(bias) // group
        owner = np.repeat(read[:, 0], per_group)
        nodes = []
        for part, name in enumerate(parts.names):
            inputs, outputs = parts.channels(part), np.flatnonzero(owner == part)
            own = weight[outputs if node.op == "Conv" else inputs]
            changes = {
                "attrs": node.attrs | {"group": int((read[:, 0] == part).sum())},
                "activation": self._activation(node.activation, outputs),
            }
            constants = [
                self._constant(node, f"weight{part}", own),
                self._constant(node, f"bias{part}", bias[outputs]),
            ]
            nodes.append(self._node(node, f"part{part}", [name, *constants], len(outputs), changes))
        return self._checked(nodes, owner)

    def _dense(self, node: Node) -> Split | None:
        """Outputs that read one part alone are computed from it; those that read several as a sum over the parts."""
        weight, bias, group = self._weights(node)
        weight = ungrouped(weight, group) if group > 1 else weight
        weight = weight if node.op == "Conv" else weight.swapaxes(0, 1)  # outputs first
        parts = self.parts[node.inputs[0]]
        read = np.stack(
            [weight[:, parts.channels(p)].any(axis=(1, 2, 3)) for p in range(len(parts.names))], axis=1
        )  # [outputs, parts]
        several = read.sum(axis=1) > 1
        owner = np.where(several, len(parts.names), read.argmax(axis=1))
        used = [int(p) for p in np.unique(owner)]
        whole = len(used) == 1
        nodes: list[Node] = []
        names: list[str] = []
        for part in used:
            outputs = np.flatnonzero(owner == part)
            taken = list(range(len(parts.names))) if part == len(parts.names) else [part]
            made = self._sum(node, taken, weight[outputs], bias[outputs], outputs, whole)
            if made is None:
                return None
            nodes += made
            names.append(made[-1].outputs[0])
        return Split(nodes) if whole else Split(nodes, Parts(np.searchsorted(used, owner), names))

    def _sum(
        self, node: Node, taken: list[int], weight: np.ndarray, bias: np.ndarray, outputs: np.ndarray, whole: bool
    ) -> list[Node] | None:
        """conv(a ‖ b) = conv_a(a) + conv_b(b) over the parts `taken`, for some `outputs` of the convolution (`weight` has them first): the bias in the first
        share, the activation behind the last sum, or after it where the hardware has it only alone. `whole`: they are all, and the last node writes
        the convolution's tensor."""
        parts = self.parts[node.inputs[0]]
        nodes: list[Node] = []
        for part in taken:
            own = weight[:, parts.channels(part)]
            label = f"{outputs[0]}_{part}"
            constants = [
                self._constant(node, f"weight{label}", own if node.op == "Conv" else own.swapaxes(0, 1)),
                self._constant(node, f"bias{label}", bias if part == taken[0] else np.zeros_like(bias)),
            ]
            changes: dict[str, Any] = {"attrs": node.attrs | {"group": 1}, "activation": Activation()}
            share = self._node(node, f"share{part}", [parts.names[part], *constants], len(outputs), changes)
            if nodes:
                both = [nodes[-1].outputs[0], share.outputs[0]]
                changes = {"op": "Add", "attrs": {}, "activation": Activation()}
                nodes += [share, self._node(node, f"sum{part}", both, len(outputs), changes)]
            else:
                nodes.append(share)
        linear = nodes[-1]
        names: dict[str, Any] = {"name": node.name, "outputs": list(node.outputs)} if whole else {}
        activation = self._activation(node.activation, outputs)
        nodes[-1] = replace(linear, activation=activation, **names)
        if not self.takes(nodes[-1]) and activation.kind != "none":
            ones = {"scale": np.ones(len(outputs)), "bias": np.zeros(len(outputs))}
            changes = {"op": "Affine", "attrs": ones, "activation": activation}
            alone = self._node(node, "activation", list(linear.outputs), len(outputs), changes)
            nodes[-1:] = [linear, replace(alone, **names)]
        return nodes if all(map(self.takes, nodes)) else None


def ungrouped(weight: np.ndarray, group: int) -> np.ndarray:
    """The weights of a grouped convolution as those of a dense one, 0 between groups; [O, I, kH, kW] of Conv, [I, O, kH, kW] of ConvTranspose."""
    rows, columns = weight.shape[:2]
    dense = np.zeros((rows, columns * group, *weight.shape[2:]), weight.dtype)
    for number in range(group):
        own = slice(number * rows // group, (number + 1) * rows // group)
        dense[own, number * columns : (number + 1) * columns] = weight[own]
    return dense
