"""The verifier that runs after every step: a graph that a step left invalid is refused at once, by step and node."""

from __future__ import annotations

import math

import numpy as np

from npuforge.compile.ir.errors import VerifyError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.steps.onnx_nodes import split_operator
from npuforge.compile.steps.partition import ATTRIBUTES, is_canonical, missing_attributes
from npuforge.hw_kernels import operator as operators

DATA_DEPENDENT = ("NonMaxSuppression", "NonZero", "Compress", "Unique")
SHAPED_BY_INPUT = ("Reshape", "Slice", "TopK", "Expand", "Tile", "Resize", "Pad")  # by their second and further inputs
CANONICAL_FROM = ("fuse", "partition", "calibrate", "quantise", "tile", "plan", "generate")


def verify(graph: Graph, step: str) -> None:
    """Raises VerifyError naming `step` and the node. Canonical forms are checked after `fuse`, placement after `partition`."""
    _check_names(graph, step)
    _check_order(graph, step)
    for node in graph.nodes:
        _check_node(graph, step, node)
        if step in CANONICAL_FROM:
            _check_canonical(graph, step, node)
    if graph.partitions:
        _check_partitions(graph, step)


def _fail(step: str, where: str, found: str) -> VerifyError:
    return VerifyError(f"after step '{step}': {where}: {found} (a fault of npuforge, please report it with the model)")


def _data_dependent(graph: Graph) -> set[str]:
    """Tensors whose shape only the data decide."""
    found: set[str] = set()
    for node in graph.nodes:
        shaped = (
            node.inputs[1:]
            if node.op in SHAPED_BY_INPUT
            else (node.inputs if node.op in ("ConstantOfShape", "Range") else [])
        )
        computed = any(t and t not in graph.constants for t in shaped)
        if node.op in DATA_DEPENDENT or computed or any(t in found for t in node.inputs) or _says_so(node, graph):
            found.update(node.outputs)
    return found


def _says_so(node: Node, graph: Graph) -> bool:
    """Whether the own operator's `infer` leaves a dimension to the data."""
    own = operators.find(node.op) if "::" in node.op else None
    shapes = [graph.tensors[t].shape if t in graph.tensors else () for t in node.inputs]
    return own is not None and any(-1 in shape for shape in own.infer(node, shapes))


def _check_names(graph: Graph, step: str) -> None:
    seen: set[str] = set()
    data_dependent = _data_dependent(graph)
    for node in graph.nodes:
        if node.name in seen:
            raise _fail(step, f"node '{node.name}'", "the name is used twice")
        seen.add(node.name)
    for name, info in graph.tensors.items():
        if info.name != name:
            raise _fail(step, f"tensor '{name}'", f"is filed under another name than its own, '{info.name}'")
        if any(not isinstance(d, int | np.integer) or (d < 0 and name not in data_dependent) for d in info.shape):
            raise _fail(step, f"tensor '{name}'", f"has no static shape: {info.shape}")
    for name, value in graph.constants.items():
        if name not in graph.tensors:
            raise _fail(step, f"constant '{name}'", "is not in the tensor table")
        if graph.tensors[name].shape != value.shape:
            raise _fail(
                step,
                f"constant '{name}'",
                f"has shape {value.shape}, the tensor table says {graph.tensors[name].shape}",
            )


def _check_order(graph: Graph, step: str) -> None:
    producer: dict[str, str] = {}
    ready = set(graph.inputs) | set(graph.constants)
    written = {t for n in graph.nodes for t in n.outputs if t}
    for name in graph.inputs:
        if name not in graph.tensors:
            raise _fail(step, f"graph input '{name}'", "has no shape")
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in ready:
                found = "is read before it is written" if name in written else "has no producer"
                raise _fail(step, f"node '{node.name}'", f"its input '{name}' {found}")
        for name in node.outputs:
            if not name:
                continue
            if name in ready:
                other = producer.get(name, "a graph input or constant")
                raise _fail(step, f"node '{node.name}'", f"its output '{name}' already comes from {other}")
            producer[name] = f"node '{node.name}'"
            ready.add(name)
    read = {t for n in graph.nodes for t in n.inputs}
    for name in graph.outputs:
        if name not in ready:
            raise _fail(step, f"graph output '{name}'", "has no producer")
    for node in graph.nodes:
        if not any(t in read or t in graph.outputs for t in node.outputs):
            raise _fail(step, f"node '{node.name}'", "nothing reads its outputs")
    for name in graph.constants:
        if name not in read:
            raise _fail(step, f"constant '{name}'", "nothing reads it")


def _check_node(graph: Graph, step: str, node: Node) -> None:
    where = f"node '{node.name}' ({node.op})"
    if not node.sources:
        raise _fail(step, where, "has no ONNX source names")
    if not any(node.outputs):
        raise _fail(step, where, "has no output")
    for name in (*node.inputs, *node.outputs):
        if name and name not in graph.tensors:
            raise _fail(step, where, f"tensor '{name}' has no shape")


def _check_canonical(graph: Graph, step: str, node: Node) -> None:
    where = f"node '{node.name}' ({node.op})"
    if node.op == "Activation":
        raise _fail(step, where, "an activation was neither fused nor made an Affine")
    if node.activation.kind != "none" and node.op not in ("Conv", "ConvTranspose", "Add", "Sub", "Mul", "Affine"):
        raise _fail(step, where, f"carries the activation {node.activation.kind}, which this operator cannot")
    if node.op not in ATTRIBUTES and node.op not in ("Add", "Sub", "Mul"):
        return
    if node.device == "NPU" and missing_attributes(node):
        raise _fail(step, where, f"lacks the attribute {missing_attributes(node)[0]}")
    if not is_canonical(node, graph) or (node.op == "Concat" and node.attrs["axis"] != 1) or split_operator(node.op)[0]:
        return  # its ONNX form, for the CPU
    shapes = [graph.tensors[t].shape for t in node.inputs]
    if any(len(s) != 4 for s in shapes[:1]):
        return
    _check_values(graph, step, node, where)
    operator = operators.find(node.op)
    if operator is None or (node.activation.kind == "PRelu" and node.activation.slope is None):
        return
    inferred = operator.infer(node, shapes)
    found = [graph.tensors[t].shape for t in node.outputs]
    if [tuple(int(d) for d in s) for s in inferred] != found:
        raise _fail(step, where, f"its attributes give the output shape {inferred[0]}, the graph says {found[0]}")


def _check_values(graph: Graph, step: str, node: Node, where: str) -> None:
    attrs = node.attrs
    shape = graph.tensors[node.inputs[0]].shape
    if node.op in ("Conv", "ConvTranspose"):
        weight, bias = (graph.tensors[t].shape for t in node.inputs[1:3])
        group = attrs["group"]
        per_group, outputs = (weight[1], weight[0]) if node.op == "Conv" else (weight[0] // group, weight[1] * group)
        if per_group * group != shape[1]:
            raise _fail(
                step,
                where,
                f"its weights {weight} with {group} groups read {per_group * group} channels, the input has {shape[1]}",
            )
        if list(weight[2:]) != list(attrs["kernel_shape"]):
            raise _fail(step, where, f"kernel_shape {attrs['kernel_shape']} differs from the weights {weight}")
        if math.prod(bias) != outputs:
            raise _fail(step, where, f"its bias has {math.prod(bias)} values for {outputs} output channels")
    elif node.op == "Affine" and (len(attrs["scale"]) != shape[1] or len(attrs["bias"]) != shape[1]):
        raise _fail(
            step,
            where,
            f"scale and bias have {len(attrs['scale'])} and {len(attrs['bias'])} values for {shape[1]} channels",
        )
    elif node.op == "ChannelGather" and any(not -1 <= i < shape[1] for i in attrs["indices"]):
        raise _fail(step, where, f"an index is outside -1..{shape[1] - 1}")
    if node.activation.slope is not None and len(node.activation.slope) != graph.tensors[node.outputs[0]].shape[1]:
        raise _fail(
            step,
            where,
            f"PRelu has {len(node.activation.slope)} slopes for {graph.tensors[node.outputs[0]].shape[1]} channels",
        )


def _check_partitions(graph: Graph, step: str) -> None:
    listed = [name for p in graph.partitions for name in p.nodes]
    if listed != [n.name for n in graph.nodes]:
        raise _fail(step, "partitions", "do not list every node once, in execution order")
    ready = set(graph.inputs) | set(graph.constants)
    by_name = {n.name: n for n in graph.nodes}
    for number, part in enumerate(graph.partitions):
        for name in part.inputs:
            if name not in ready:
                raise _fail(
                    step,
                    f"partition {number} ({part.device})",
                    f"its input '{name}' is not written by an earlier partition",
                )
        for node in (by_name[n] for n in part.nodes):
            if node.device != part.device:
                raise _fail(
                    step,
                    f"node '{node.name}'",
                    f"is placed on {node.device or 'nothing'} inside a {part.device} partition",
                )
            if node.device == "CPU" and not node.reason:
                raise _fail(step, f"node '{node.name}'", "is on the CPU without a reason")
        ready.update(part.outputs)
