"""What CANN wants the same on every node of an operator type, written out on custom nodes: kinds of attributes; where there is an array program also optional
inputs, outputs that are not asked for, attributes."""

from __future__ import annotations

import inspect

import numpy as np
import onnx
from onnx import AttributeProto, helper

from npuforge.compile.steps.custom_nodes import fill_absent_inputs, unused_name
from npuforge.compile.steps.import_onnx import tensor_shapes
from npuforge.compile.steps.infer import find_operator
from npuforge.compile.steps.onnx_nodes import STANDARD, operator_name
from npuforge.hw_kernels.dsl.array import ArrayKernel


def write_out(model: onnx.ModelProto) -> None:
    """Gives, in `model`, nodes with an array program the constants that their absent optional inputs equal, the outputs and the attributes that other nodes of
    their type have: these with the program's default, or, where the program does not read one, on none of them. A number that is whole on some nodes of a type
    and real on others is real on all."""
    by_type: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        if node.domain not in STANDARD:
            by_type.setdefault(operator_name(node.domain, node.op_type), []).append(node)
    for name, nodes in by_type.items():
        operator = find_operator(name)
        if operator is not None and isinstance(operator.dsl, ArrayKernel):
            _same_attributes(nodes, operator.dsl)
            most = max(len(node.output) for node in nodes)
            for node in nodes:
                for position in range(len(node.output), most):
                    node.output.append(unused_name(model, f"{node.name}/output{position}"))
                if len(node.input) < operator.dsl.operands:
                    node.input.extend([""] * (operator.dsl.operands - len(node.input)))
        _same_kinds(nodes)
    fill_absent_inputs(model, tensor_shapes)


def _same_kinds(nodes: list[onnx.NodeProto]) -> None:
    real = {AttributeProto.INT: AttributeProto.FLOAT, AttributeProto.INTS: AttributeProto.FLOATS}
    kinds = {(a.name, a.type) for node in nodes for a in node.attribute}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in real and (attribute.name, real[attribute.type]) in kinds:
                value = np.asarray(helper.get_attribute_value(attribute), np.float64).tolist()
                attribute.CopyFrom(helper.make_attribute(attribute.name, value))


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
