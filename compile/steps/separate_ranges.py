"""In `pow2` mode a tensor has one fix point, which flattens small values beside large ones. So what a concatenation of unlike ranges joins is kept apart:
operators that treat every channel by itself run once per part, convolutions as a sum over the parts (`range_parts.py`), until the ranges are alike
again, the network's output is reached (joined in float on the CPU), or an operator mixes channels otherwise: that one runs on the CPU.

A rule of the calibrate step, which measures again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuforge.compile.ir.errors import QuantisationError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.steps.partition import CPU, NPU, UNLIKE_REASON, cpu_operators, divide, failed
from npuforge.compile.steps.range_parts import Parts, Splitter
from npuforge.compile.steps.rewrite import Editor
from npuforge.hw_kernels import operator
from npuforge.quant.fix_points import Groups
from npuforge.quant.mixed_ranges import UNLIKE, largest, like_groups
from npuforge.quant.regions import activation_inputs
from npuforge.quant.statistics import Statistics

Limit = Callable[[Node, Graph], str]


def separate_unlike(graph: Graph, statistics: Statistics, limit: Limit | None = None) -> list[str]:
    """Rewrites `graph`, placed, in place; one notice per place where unlike ranges were kept apart, none if nothing changed.

    `limit`: another hardware's reason against a node. QuantisationError where neither NPU nor CPU can take an operator.
    """
    separator = _Separator(graph, statistics, limit)
    separator.run()
    if separator.notices:
        separator.editor.finish()
        divide(graph)
    return separator.notices


class _Separator:
    """One pass in execution order; `parts` knows the tensors that are apart, `joined` those that a concatenation on the CPU is in."""

    def __init__(self, graph: Graph, statistics: Statistics, limit: Limit | None) -> None:
        self.editor, self.statistics = Editor(graph), statistics
        self.parts: dict[str, Parts] = {}
        self.makers: dict[str, Node] = {}
        self.joined: set[str] = set()
        self.whole: set[str] = set()  # tensors that are apart and were joined in float
        self.notices: list[str] = []

        def takes(node: Node) -> bool:
            return not failed(node, graph) and (limit is None or not limit(node, graph))

        self.splitter = Splitter(self.editor, self.parts, takes)

    def run(self) -> None:
        """The pass."""
        for node in self.editor.ordered():
            if node.device != NPU:
                self._on_cpu(node)
                continue
            inputs = activation_inputs(node, self.editor.graph)
            for tensor in inputs:
                self._entry(tensor, node)
            if node.op == "Concat":
                self._concatenation(node)
            elif any(t in self.parts for t in inputs):
                self._reader(node)
        for tensor in self.editor.graph.outputs:
            self._joined_in_float(tensor)

    def _sizes(self, tensor: str) -> np.ndarray:
        """Largest magnitude of every channel."""
        return largest(self.statistics.tensors[tensor])

    # ---- where parts come from
    def _concatenation(self, node: Node) -> None:
        pieces: list[tuple[str, np.ndarray]] = []
        sizes: list[float] = []
        start = 0
        for tensor in node.inputs:
            count = self.editor.shape(tensor)[1]
            own = self.parts.get(tensor) or Parts(np.zeros(count, np.int64), [tensor])
            for part, name in enumerate(own.names):
                channels = own.channels(part)
                pieces.append((name, start + channels))
                sizes.append(float(self._sizes(tensor)[channels].max(initial=0.0)))
            start += count
        groups = like_groups(sizes)
        if len(groups) < 2 and not any(t in self.parts for t in node.inputs):
            return
        self.editor.remove(node)
        if len(groups) > 1:
            low, high = (max(sizes[i] for i in groups[end]) for end in (-1, 0))
            self.notices.append(
                f"node '{node.name}' joins unlike ranges (to {high:.4g} and to {low:.4g}): they are kept apart from there on, with a fix point each"
            )
        self._settle(node, [[pieces[i] for i in group] for group in groups])

    def _settle(self, node: Node, groups: list[list[tuple[str, np.ndarray]]]) -> None:
        """The output of `node`, removed, as one tensor per group of pieces; one group is the output itself."""
        output, owner, names = node.outputs[0], np.zeros(self.editor.shape(node.outputs[0])[1], np.int64), []
        for number, pieces in enumerate(groups):
            target, name = (output, node.name) if len(groups) == 1 else ("", "")
            made, result = self.splitter.joined(node, pieces, NPU, target, name)
            self._enter(made, node)
            names.append(result)
            for _, channels in pieces:
                owner[channels] = number
        if len(groups) > 1:
            self.parts[output], self.makers[output] = Parts(owner, names), node

    def _entry(self, tensor: str, near: Node) -> None:
        """What a concatenation on the CPU joined enters the NPU as tensors of like channels."""
        known = self.statistics.tensors.get(tensor)
        if tensor not in self.joined or tensor in self.parts or known is None or len(self.editor.shape(tensor)) != 4:
            return
        groups = like_groups([float(size) for size in self._sizes(tensor)])
        maker = self.editor.producer(tensor)
        if len(groups) < 2 or maker is None:
            return
        owner, names = np.zeros(self.editor.shape(tensor)[1], np.int64), []
        for number, channels in enumerate(groups):
            made = self.splitter.gathered(maker, tensor, np.array(channels), f"like{number}", CPU)
            made.reason = UNLIKE_REASON
            self.editor.add(made, maker)
            names.append(made.outputs[0])
            owner[channels] = number
        self.parts[tensor], self.makers[tensor] = Parts(owner, names), maker
        self.whole.add(tensor)
        low, high = (float(self._sizes(tensor)[groups[end]].max()) for end in (-1, 0))
        self.notices.append(
            f"node '{near.name}' reads tensor '{tensor}', which a concatenation on the CPU joined from unlike ranges (to {high:.4g} and to {low:.4g}): "
            "it enters the NPU in parts with a fix point each"
        )

    # ---- what reads them
    def _reader(self, node: Node) -> None:
        split = self.splitter.split(node)
        if split is None:
            self._to_cpu(node)
            return
        self.editor.remove(node)
        self._enter(split.nodes, node)
        if split.parts is None:
            return
        output, parts = node.outputs[0], split.parts
        if output in self.statistics.tensors:
            sizes = self._sizes(output)
            groups = like_groups([float(sizes[parts.channels(p)].max()) for p in range(len(parts.names))])
        else:
            groups = [[p] for p in range(len(parts.names))]
        self._settle(node, [[(parts.names[p], parts.channels(p)) for p in group] for group in groups])

    def _enter(self, nodes: list[Node], near: Node) -> None:
        for made in nodes:
            self.editor.add(made, near)

    def _to_cpu(self, node: Node) -> None:
        tensor = next(t for t in node.inputs if t in self.parts)
        sizes = self._sizes(tensor)
        ends = [float(sizes[self.parts[tensor].channels(p)].max()) for p in (0, len(self.parts[tensor].names) - 1)]
        what = f"node '{node.name}' ({node.op}): its input '{tensor}' joins ranges to {ends[0]:.4g} and to {ends[1]:.4g}, which one fix point would flatten, "
        what += "and it cannot be computed part by part"
        if node.op not in cpu_operators():
            raise QuantisationError(
                f"{what}; the CPU has no {node.op}: quantise with --mode fine (a scale per channel)"
            )
        self.notices.append(f"{what}: it runs on the CPU; --mode fine (a scale per channel) keeps it on the NPU")
        node.device, node.reason = CPU, UNLIKE_REASON
        self._on_cpu(node)
        self.joined.update(node.outputs)

    def _on_cpu(self, node: Node) -> None:
        for tensor in activation_inputs(node, self.editor.graph):
            self._joined_in_float(tensor)
        if node.op == "Concat" or self.joined.intersection(node.inputs):
            self.joined.update(node.outputs)

    def _joined_in_float(self, tensor: str) -> None:
        """Parts that the CPU or the user reads as one tensor."""
        if tensor not in self.parts or tensor in self.whole:
            return
        maker, parts = self.makers[tensor], self.parts[tensor]
        pieces = [(name, parts.channels(p)) for p, name in enumerate(parts.names)]
        made, _ = self.splitter.joined(maker, pieces, CPU, tensor, maker.name)
        for node in made:
            node.reason = UNLIKE_REASON
        self._enter(made, maker)
        self.whole.add(tensor)
        self.joined.add(tensor)


# ---- ranges that moves of bytes tie together from farther away
def break_chains(graph: Graph, statistics: Statistics) -> list[str]:
    """Tensors that moves of bytes connect share one fix point, so that a concatenation of like ranges can be flattened by a third tensor. Copies with a fix
    point of their own (a depthwise 1 x 1 convolution of ones) are entered there. Rewrites `graph` in place; the names of the concatenations."""
    found: dict[str, None] = {}
    while (tie := _tie(graph, statistics)) is not None:
        concatenation, reader, tensor = tie
        found[concatenation.name] = None
        statistics.tensors[_copied(graph, concatenation, reader, tensor)] = statistics.tensors[tensor]
    return list(found)


def _tie(graph: Graph, statistics: Statistics) -> tuple[Node, Node, str] | None:
    """A concatenation, and a node that reads `tensor` beside it through which a far wider tensor shares its fix point."""
    moving = [n for n in graph.nodes if n.device == NPU and operator.get(n).moves_bytes]
    width = {t: float(largest(s).max(initial=0.0)) for t, s in statistics.tensors.items()}
    for node in moving:
        if node.op != "Concat":
            continue
        own = [width[t] for t in node.inputs if width.get(t, 0.0) > 0.0]
        narrow = min(own, default=0.0)
        if max(own, default=0.0) > narrow * UNLIKE:  # unlike by itself: no copy could help
            continue
        edges = [(node, t) for t in dict.fromkeys(node.inputs)]
        edges += [(m, node.outputs[0]) for m in moving if node.outputs[0] in m.inputs]
        cut = Groups()
        for other in moving:
            for tensor in activation_inputs(other, graph):
                if other is not node and tensor != node.outputs[0]:
                    cut.join(tensor, other.outputs[0])
        widest: dict[str, float] = {}
        for tensor in [t for m in moving for t in (*activation_inputs(m, graph), *m.outputs)]:
            root = cut.root(tensor)
            widest[root] = max(widest.get(root, 0.0), width.get(tensor, 0.0))
        for reader, tensor in edges:
            end = tensor if reader is node else reader.outputs[0]
            if 0.0 < narrow * UNLIKE < widest[cut.root(end)]:
                return node, reader, tensor
    return None


def _copied(graph: Graph, concatenation: Node, reader: Node, tensor: str) -> str:
    """Enters the copy that `reader` reads instead of `tensor`; its name."""
    editor = Editor(graph)
    shape, label = editor.shape(tensor), f"{concatenation.name}/copy"
    weight = editor.add_constant(f"{label}/weight", np.ones((shape[1], 1, 1, 1), np.float32))
    bias = editor.add_constant(f"{label}/bias", np.zeros(shape[1], np.float32))
    target = editor.fresh_tensor(f"{tensor}/copy", shape)
    attrs = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": shape[1]}
    sources = list(concatenation.sources)
    copy = Node(editor.fresh_node(label), "Conv", [tensor, weight, bias], [target], attrs, sources=sources, device=NPU)
    editor.update(reader, inputs=[target if t == tensor else t for t in reader.inputs])
    editor.add(copy, reader)
    editor.finish()
    divide(graph)
    return target
