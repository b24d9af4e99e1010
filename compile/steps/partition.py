"""The partition step decides for every node whether the NPU or the CPU runs it, and why; `explain` prints the same decision (`npuforge inspect`).

A constraint is a function whose docstring is the message a user sees. Common ones are here, an operator's own in its folder. Nodes are then
grouped into as few partitions as their dependencies allow, in execution order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import QuantisationError, UnsupportedError
from npuforge.compile.ir.graph import Graph, Node, Partition
from npuforge.compile.steps.float_tail import TAIL_REASON, decode_reason
from npuforge.compile.steps.host_types import check_types
from npuforge.compile.steps.keep_ranges import keep_ranges
from npuforge.compile.steps.reasons import not_canonical
from npuforge.compile.steps.rewrite import Editor
from npuforge.hw_kernels import operator as operators
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram
from npuforge.hw_kernels.dsl.tile import Dtype
from npuforge.quant.given import missing_scales
from npuforge.quant.regions import CONVOLUTIONS, Region

NPU, CPU = "NPU", "CPU"
Constraint = Callable[[Node, Graph], bool]


# ---- constraints common to all operators: docstring = reason
def has_integer_semantics(node: Node, graph: Graph) -> bool:
    """the NPU has no such operator"""
    operator = operators.find(node.op)
    return operator is not None and type(operator).integer is not operators.Op.integer


def has_bf16_semantics(node: Node, graph: Graph) -> bool:
    """the NPU has no such operator"""
    operator = operators.find(node.op)
    return operator is not None and type(operator).bf16 is not operators.Op.bf16


def is_canonical(node: Node, graph: Graph) -> bool:
    """the NPU takes this operator only with constant parameters that are attributes, weights or one value per channel"""
    return (
        missing_attributes(node) == []
        and all(t not in graph.constants for t in node.inputs[: data_inputs(node)] if t)
        and len(node.inputs) == (3 if node.op in CONVOLUTIONS else data_inputs(node))
    )


def concatenates_channels(node: Node, graph: Graph) -> bool:
    """the NPU concatenates along channels only"""
    return node.op != "Concat" or node.attrs.get("axis") == 1


def is_worth_the_npu(node: Node, graph: Graph) -> bool:
    """the NPU would be entered once more for under 1 % of the network's multiply-accumulates"""
    return macs(node, graph) >= SMALL_SHARE * sum(macs(n, graph) for n in graph.nodes)


SMALL_SHARE = 0.01
COMMON: tuple[Constraint, ...] = (has_integer_semantics, concatenates_channels, is_canonical)
SEMANTICS = {"int8": has_integer_semantics, "bf16": has_bf16_semantics}

HEAD_REASON = "no convolution follows: what comes behind the last one runs in float on the CPU, so that scores and boxes keep their resolution"
CONSTANT_REASON = "the NPU takes constant operands of one value per channel, on maps N, C, H, W with N = 1"
UNLIKE_REASON = "pow2 mode: one fix point would flatten the narrower of the ranges that are joined here"
FLOAT_REASON = "the quantised model leaves this output in float and gives no scale for it: calibration images (--calib) bring it to the NPU"


def is_quantised(graph: Graph) -> bool:
    """Whether the model brings scales and quantised weights. Scales alone (a pair of QuantizeLinear and DequantizeLinear between float convolutions) are but
    ranges, quantised weights alone (weight-only files) but weights."""
    tensors = any(t not in graph.constants for t in graph.grids)
    return tensors and any(node.weight_scale is not None for node in graph.nodes)


# What makes a node canonical (contract of import and fuse): attributes that must be there.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "Conv": ("kernel_shape", "strides", "pads", "dilations", "group"),
    "ConvTranspose": ("kernel_shape", "strides", "pads", "dilations", "group", "output_padding"),
    "MaxPool": ("kernel_shape", "strides", "pads", "dilations", "ceil_pads"),
    "AveragePool": ("kernel_shape", "strides", "pads", "count_include_pad", "ceil_pads"),
    "Affine": ("scale", "bias"),
    "Resize": ("mode", "coordinate_transformation_mode", "nearest_mode", "scales", "sizes"),
    "Concat": ("axis",),
    "ChannelGather": ("indices",),
    "SpaceToDepth": ("blocksize",),
}


def missing_attributes(node: Node) -> list[str]:
    """Attributes of the canonical form that `node` lacks."""
    return [a for a in ATTRIBUTES.get(node.op, ()) if a not in node.attrs]


def data_inputs(node: Node) -> int:
    """How many of the inputs are activations in the canonical form."""
    if node.op == "Concat":
        return len(node.inputs)
    operator = operators.find(node.op)
    if operator is not None and isinstance(operator.program, KernelProgram):
        return operator.program.kernel.inputs
    return 2 if node.op in ("Add", "Sub", "Mul") else 1


# ---- the decision
def run(graph: Graph, ctx: Any = None) -> Graph:
    """Step interface of the pipeline."""
    if ctx is None:
        return partition(graph)
    precision = ctx.options.precision
    calibrated = bool(ctx.options.calibration) or precision == "bf16"
    return partition(graph, calibrated or _images_are_needed(graph), precision)


def _images_are_needed(graph: Graph) -> bool:
    """Whether a quantised model gives no scale for a tensor between its convolutions: `compile` asks for images then, and places the network as with them."""
    region = Region.of(graph)
    return any(t in region.readers and t not in graph.inputs for t in missing_scales(region, set()))


def partition(
    graph: Graph,
    calibrated: bool = True,
    precision: str = "int8",
    limit: Callable[[Node, Graph], str] | None = None,
) -> Graph:
    """Sets `device` and `reason` of every node and builds `graph.partitions`; nodes end up in execution order.

    `calibrated`: whether images will tell the scales that a quantised model does not give (a model without quantised weights needs them anyway). `limit`: another
    hardware's reason against a node; what small regions cost around our NPU then does not count.
    """
    editor = Editor(graph)
    region, tail = editor.reaches_convolution(), editor.tail()
    outside = TAIL_REASON if graph.fixed_tail else HEAD_REASON
    left_in_float = not calibrated and is_quantised(graph)
    before_another = {id(p) for n in editor.ordered() if id(n) in region for t in n.inputs if (p := editor.producer(t))}
    for node in editor.ordered():
        if node.op in CONVOLUTIONS:
            _check_elements(node, graph)
        node.reason = failed(node, graph, precision) if id(node) in region else outside
        if limit is not None and not node.reason:
            node.reason = limit(node, graph) or decode_reason(node, editor, id(node) in tail)
        if left_in_float and id(node) not in before_another and not node.reason:
            node.reason = "" if node.outputs[0] in graph.grids else FLOAT_REASON
        node.device = CPU if node.reason else NPU
        if node.device == CPU:
            _check_cpu(node, editor, precision)
    levels = _fewest_levels(editor)
    if limit is None:
        levels = _leave_small_regions_to_cpu(editor, levels)
    for node, clip in keep_ranges(editor):
        levels[id(clip)] = levels[id(node)]
    _group(editor, levels)
    return graph


def divide(graph: Graph) -> None:
    """Builds `graph.partitions` anew from the devices that its nodes have; nodes end up in execution order."""
    editor = Editor(graph)
    _group(editor, _fewest_levels(editor))


def _group(editor: Editor, levels: dict[int, int]) -> None:
    order = sorted(editor.ordered(), key=lambda n: levels[id(n)])  # stable: topological within a level
    editor.graph.nodes = order
    editor.graph.partitions = [
        _border(editor, [n for n in order if levels[id(n)] == level]) for level in sorted(set(levels.values()))
    ]


def failed(node: Node, graph: Graph, precision: str = "int8") -> str:
    """The message of the first constraint that keeps `node` off the NPU, empty if none does."""
    for constraint in (SEMANTICS[precision], *COMMON[1:]):
        if not constraint(node, graph):
            return _message(constraint, node, graph)
    operator = operators.find(node.op)
    assert operator is not None
    if isinstance(operator.program, KernelProgram):
        operator.program.optimised(node, Dtype(precision))  # InstructionError at the line that this precision cannot do
    return operator.failed_constraint(node, graph) or ""


def _message(constraint: Constraint, node: Node, graph: Graph) -> str:
    text = " ".join((constraint.__doc__ or constraint.__name__).split())
    if constraint is is_canonical and node.op in ("Add", "Sub", "Mul", "Div"):
        constant = next((t for t in node.inputs if t in graph.constants), None)
        if constant is not None:
            sides = [list(graph.tensors[t].shape) for t in (constant, node.outputs[0])]
            return f"{CONSTANT_REASON} (this one is {sides[0]}, its tensor {sides[1]})"
    if constraint is is_canonical and (reason := not_canonical(node, graph)):
        return reason
    return text.replace("no such operator", f"no operator {node.op}")


@cache
def cpu_operators() -> frozenset[str]:
    """Operators the runtime's CPU partition has: the names that `hw_kernels/ops/*/cpu.hpp` register."""
    folder = Path(operators.__file__).parent / "ops"
    return frozenset(
        name
        for file in folder.glob("*/cpu.hpp")
        for name in re.findall(r'\badd\(\s*"([^"]+)"', file.read_text(encoding="utf-8"))
    )


def _check_elements(node: Node, graph: Graph) -> None:
    for name in (*node.inputs[:2], node.outputs[0]):
        shape = graph.tensors[name].shape
        if 0 in shape:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}): tensor '{name}' has shape {list(shape)}, which holds nothing to compute; "
                "export the network without the empty part, or for a larger input (--shape)"
            )


def _check_cpu(node: Node, editor: Editor, precision: str) -> None:
    for name in node.inputs:
        value = editor.constant(name)
        if value is not None and value.dtype.kind == "f" and np.isnan(value).any():
            raise QuantisationError(
                f"node '{node.name}' ({node.op}): its constant '{name}' holds NaN ({int(np.isnan(value).sum())} of {value.size}); "
                "check the training run or the export"
            )
    if node.op not in cpu_operators():
        reason = (
            node.reason
            if SEMANTICS[precision](node, editor.graph)
            else _message(SEMANTICS[precision], node, editor.graph)
        )
        raise UnsupportedError(
            f"node '{node.name}' ({node.op}) can run nowhere: NPU: {reason}; CPU: the runtime has no {node.op}; "
            f"export the network without it, or add hw_kernels/ops/<op>/cpu.hpp (ONNX nodes: {', '.join(node.sources[:3])})"
        )
    check_types(node, editor.graph)


def _fewest_levels(editor: Editor) -> dict[int, int]:
    return min((_levels(editor, first) for first in (NPU, CPU)), key=lambda found: len(set(found.values())))


def _leave_small_regions_to_cpu(editor: Editor, levels: dict[int, int]) -> dict[int, int]:
    """NPU regions of under 1 % of the work that are not worth an entry go to the CPU; returns the levels that remain.

    Behind the largest region (a head's decode written as a convolution) always; elsewhere where fewer partitions remain and the CPU takes less time for
    the region than entering and leaving the NPU does. Every move removes an NPU region for good, so that nothing moves back and forth.
    """
    graph = editor.graph
    total = sum(macs(n, graph) for n in graph.nodes)
    kept: set[int] = set()  # first nodes of regions that stay
    while True:
        groups: dict[int, list[Node]] = {}
        for node in editor.ordered():
            if node.device == NPU:
                groups.setdefault(levels[id(node)], []).append(node)
        work = {level: sum(macs(n, graph) for n in nodes) for level, nodes in groups.items()}
        largest = max(work, key=lambda level: work[level], default=0)
        small = [
            level
            for level, nodes in groups.items()
            if level != largest
            and work[level] < SMALL_SHARE * total
            and id(nodes[0]) not in kept
            and all(n.op in cpu_operators() for n in nodes)
        ]
        if not small:
            return levels
        level = min(small, key=lambda candidate: work[candidate])
        nodes = groups[level]
        on_cpu, around = _cpu_seconds(nodes, graph), _entry_seconds(nodes, editor)
        figures = f"{work[level] / max(total, 1):.2%}; about {1e3 * on_cpu:.2f} ms on the CPU, {1e3 * around:.2f} ms to enter and leave the NPU"
        for node in nodes:
            node.device, node.reason = CPU, f"{_message(is_worth_the_npu, node, graph)} ({figures})"
        after = _fewest_levels(editor)
        fewer = len(set(after.values())) < len(set(levels.values()))
        if level > largest or (fewer and on_cpu < around):
            levels = after
            continue
        for node in nodes:
            node.device, node.reason = NPU, ""
        kept.add(id(nodes[0]))


# Of an embedded processor, in order of magnitude: what decides about regions of under 1 % of the work.
CPU_MACS_PER_SECOND = 1e9
CPU_BYTES_PER_SECOND = 1e9
ENTRY_SECONDS = 1e-4  # start, wait and cache maintenance of one run on the NPU


def _cpu_seconds(nodes: list[Node], graph: Graph) -> float:
    """Time of a region on the CPU: multiply-accumulates, and float32 read and written."""
    return sum(macs(n, graph) / CPU_MACS_PER_SECOND + traffic(n, graph) / CPU_BYTES_PER_SECOND for n in nodes)


def _entry_seconds(nodes: list[Node], editor: Editor) -> float:
    """Time that a region on the NPU costs around it: one entry, and its border tensors turned from and to float (1 + 4 bytes a value)."""
    border = _border(editor, nodes)
    tensors = editor.graph.tensors
    values = sum(math.prod(max(d, 1) for d in tensors[t].shape) for t in (*border.inputs, *border.outputs))
    return ENTRY_SECONDS + 5 * values / CPU_BYTES_PER_SECOND


def _levels(editor: Editor, first: str) -> dict[int, int]:
    """Partition number of every node when partitions alternate between the devices, beginning with `first`."""
    levels: dict[int, int] = {}
    for node in editor.ordered():
        parity = 0 if node.device == first else 1
        before = [levels[id(p)] for t in node.inputs if (p := editor.producer(t)) is not None]
        level = max(before, default=0)
        levels[id(node)] = level if level % 2 == parity else level + 1
    return levels


def _border(editor: Editor, nodes: list[Node]) -> Partition:
    graph = editor.graph
    inside = {t for n in nodes for t in n.outputs if t}
    members = {id(n) for n in nodes}
    read = dict.fromkeys(t for n in nodes for t in n.inputs if t and t not in inside and t not in graph.constants)
    written = [
        t
        for n in nodes
        for t in n.outputs
        if t and (editor.is_output(t) or any(id(u) not in members for u in editor.users(t)))
    ]
    return Partition(nodes[0].device, [n.name for n in nodes], list(read), written)


# ---- the inspector
@dataclass
class Row:
    """One line of `npuforge inspect`."""

    node: str
    op: str
    activation: str
    device: str
    reason: str
    macs: int
    output_shape: tuple[int, ...]
    partition: int
    sources: list[str]
    bytes: int  # read and written: activations (int8 on the NPU, float32 on the CPU) and constants

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary."""
        return asdict(self)


def explain(graph: Graph) -> list[Row]:
    """What `partition` decided, node by node in execution order."""
    number = {name: i for i, p in enumerate(graph.partitions) for name in p.nodes}
    return [
        Row(
            n.name,
            n.op,
            n.activation.kind,
            n.device,
            n.reason,
            macs(n, graph),
            graph.tensors[next(t for t in n.outputs if t)].shape,
            number.get(n.name, -1),
            list(n.sources),
            traffic(n, graph),
        )
        for n in graph.nodes
    ]


def traffic(node: Node, graph: Graph) -> int:
    """Bytes that a node reads and writes on its device: one per value on the NPU, four on the CPU; extents only a run knows count as 1."""
    names = [t for t in (*node.inputs, *node.outputs) if t and t in graph.tensors]
    return sum(math.prod(max(d, 1) for d in graph.tensors[t].shape) for t in names) * (1 if node.device == NPU else 4)


def macs(node: Node, graph: Graph) -> int:
    """Multiply-accumulates of one node (convolutions and matrix products; 0 for everything else); extents only a run knows count as 1."""
    if node.op in ("MatMul", "Gemm"):
        sides = graph.tensors[node.inputs[0]].shape, graph.tensors[node.outputs[0]].shape
        inner = sides[0][0 if node.attrs.get("transA", 0) else -1] if sides[0] else 1
        return math.prod(max(d, 1) for d in sides[1]) * max(inner, 1)
    if node.op not in CONVOLUTIONS:
        return 0
    weight = graph.tensors[node.inputs[1]].shape
    tensor = node.outputs[0] if node.op == "Conv" else node.inputs[0]
    return math.prod(graph.tensors[tensor].shape[1:]) * math.prod(weight[1:])
