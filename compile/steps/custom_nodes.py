"""What is asked of a network's custom nodes before anything is made of them: attributes, numbers of inputs and outputs, and that none is hidden in a branch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.control_flow import write_out
from npuforge.compile.steps.onnx_nodes import STANDARD, operator_name
from npuforge.hw_kernels import operator as operators
from npuforge.hw_kernels.levels import folder

VARIADIC = 3  # so many numbers of inputs among an operator's cases: any number is one more


def refuse_malformed(node: Node, operator: operators.Op) -> None:
    """ModelError for an attribute that the operator does not read, that is NaN or of another kind than in its cases, and (the kit's own operators)
    for inputs or outputs that it has not."""
    where = f"node '{node.name}' ({node.op})"
    for key, value in node.attrs.items():
        if operator.attributes is not None and key not in operator.attributes:
            refusal = operators.unknown_attribute(node.op, key, operator.attributes)
            raise ModelError(f"{where}: {refusal}; export the network again")
        if isinstance(value, float) and math.isnan(value):
            raise ModelError(f"{where}: attribute {key} is NaN, expected a number; export the network again")
        known = next((c.attrs[key] for c in operator.cases if key in c.attrs), None)
        if known is not None and _kind(value) != _kind(known):
            raise ModelError(
                f"{where}: attribute {key} is {value!r}, expected {_kind(known)} as {known!r}; export the network again"
            )
    if folder(operator) is None:
        return
    counts = {len(c.x) + len(c.constants) for c in operator.cases}
    if len(node.inputs) not in counts and len(counts) < VARIADIC:
        expected = " or ".join(map(str, sorted(counts)))
        raise ModelError(f"{where}: has {len(node.inputs)} inputs, expected {expected}; export the network again")
    empty = next((i for i, t in enumerate(node.inputs) if not t and i not in operator.optional_inputs), None)
    if empty is not None:
        raise ModelError(f"{where}: input {empty} is empty, expected a tensor; export the network again")
    most = max((c.outputs for c in operator.cases), default=1)
    if len(node.outputs) > most:
        raise ModelError(f"{where}: has {len(node.outputs)} outputs, expected {most} at most; export the network again")


def _kind(value: Any) -> str:
    if isinstance(value, str | bytes):
        return "a text"
    return "a list" if isinstance(value, list | tuple | np.ndarray) else "a number"


def fill_absent_inputs(
    model: onnx.ModelProto, shapes_of: Callable[[onnx.ModelProto], dict[str, tuple[int, ...]]]
) -> None:
    """Gives, in `model`, custom nodes the constants that optional inputs without a name equal (`Op.absent_input`), where the operator says so. `shapes_of`:
    shapes by tensor, asked for only where there is such an input."""
    shapes: dict[str, tuple[int, ...]] | None = None
    for node in model.graph.node:
        if node.domain in STANDARD or all(node.input):
            continue
        operator = operators.find(operator_name(node.domain, node.op_type))
        if operator is None:
            continue
        shapes = shapes_of(model) if shapes is None else shapes
        known = [shapes.get(t) for t in node.input]
        for position in operator.optional_inputs:
            absent = position < len(node.input) and not node.input[position]
            value = operator.absent_input(position, known) if absent else None
            if value is not None:
                name = unused_name(model, f"{node.name}/input{position}")
                model.graph.initializer.append(numpy_helper.from_array(value, name))
                node.input[position] = name


def unused_name(model: onnx.ModelProto, name: str) -> str:
    """A name of no tensor: `name`, or with a number behind it."""
    graph = model.graph
    taken = {i.name for i in graph.initializer} | {v.name for v in graph.input}
    taken |= {t for n in graph.node for t in n.output}
    numbered = (f"{name}_{count}" for count in range(2, len(taken) + 3))
    return next(n for n in (name, *numbered) if n not in taken)


def without_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, If and Loop of constant condition and count written out where a custom node is inside; UnsupportedError for one that stays inside."""
    if next(_nested(model), None) is None:
        return model
    written = write_out(model)
    for outer, node in _nested(written):
        raise UnsupportedError(
            f"node '{outer.name}' ({outer.op_type}): the custom operator {node.domain}::{node.op_type} stands in its body; expected custom operators in the "
            "network itself: export it without the branch or loop"
        )
    return written


def _nested(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Nodes of the network with each custom node in their bodies."""
    for node in model.graph.node:
        yield from ((node, inner) for inner in _inside(node) if inner.domain not in STANDARD)


def _inside(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield inner
                yield from _inside(inner)
