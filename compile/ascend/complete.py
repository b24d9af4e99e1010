"""What CANN wants the same on every node of an operator type, written out on custom nodes that have an array program: optional inputs, attributes."""

from __future__ import annotations

import inspect

import onnx
from onnx import helper

from npuforge.compile.steps.custom_nodes import fill_absent_inputs
from npuforge.compile.steps.import_onnx import tensor_shapes
from npuforge.compile.steps.infer import find_operator
from npuforge.compile.steps.onnx_nodes import STANDARD, operator_name
from npuforge.hw_kernels.dsl.array import ArrayKernel


def write_out(model: onnx.ModelProto) -> None:
    """Gives, in `model`, such nodes the constants that their absent optional inputs equal, and the attributes that other nodes of their type have: with the
    program's default, or, where the program does not read one, on none of them."""
    by_type: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        if node.domain not in STANDARD:
            by_type.setdefault(operator_name(node.domain, node.op_type), []).append(node)
    for name, nodes in by_type.items():
        operator = find_operator(name)
        if operator is not None and isinstance(operator.dsl, ArrayKernel):
            _same_attributes(nodes, operator.dsl)
            for node in nodes:
                if len(node.input) < operator.dsl.operands:
                    node.input.extend([""] * (operator.dsl.operands - len(node.input)))
    fill_absent_inputs(model, tensor_shapes)


def _same_attributes(nodes: list[onnx.NodeProto], program: ArrayKernel) -> None:
    given = [{a.name for a in node.attribute} for node in nodes]
    parameters = inspect.signature(program.function).parameters
    for name in sorted({n for names in given for n in names if any(n not in others for others in given)}):
        for node, own in zip(nodes, given, strict=True):
            if name not in program.attributes and name in own:
                kept = [a for a in node.attribute if a.name != name]
                del node.attribute[:]
                node.attribute.extend(kept)
            elif name in program.attributes and name not in own and parameters[name].default is not inspect._empty:
                node.attribute.append(helper.make_attribute(name, parameters[name].default))
