"""Nodes of a CPU partition as XIR's float operators, in ONNX's own axis order (the border's transposes are the writer's).

A node becomes a built-in operator only where XIR's means exactly the same and the vendor's runtime computes it (`vendor_tasks.py`); any other
is a custom one, `onnx::<Type>` or `<domain>::<Type>`, with its ONNX attributes. A node with several outputs is written once per output
(`output_index`), since an XIR op has one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.xir import vendor_tasks
from npuforge.compile.xir.builder import Builder, dtype_of, integer, integers, plain_tensor, string
from npuforge.compile.xir.model import Attr, Attrs, XTensor
from npuforge.compile.xir.npu_ops import activation_values

DEVICE = "CPU"
Builtin = tuple[str, list[str], Attrs]  # type, inputs (names of tensors), attributes

_UNARY = {
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Relu": "relu",
    "Exp": "exp",
    "Neg": "neg",
    "Mish": "mish",
    "HardSwish": "hard-swish",
}
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Min": "min", "Max": "max"}
_REDUCTION = {
    "ReduceMean": "reduction_mean",
    "ReduceSum": "reduction_sum",
    "ReduceMax": "reduction_max",
    "ReduceProd": "reduction_product",
}
_RESHAPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")


@dataclass
class HostNode:
    """A node, the graph it is in, and the XIR ops that give its inputs by tensor name (constants are added when asked for). `open`: tensors whose rows the
    data decide, of which only our own operators know those that are there."""

    node: Node
    graph: Graph
    builder: Builder
    leaf: list[str]
    producers: dict[str, str]
    open: frozenset[str] = frozenset()

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Of any tensor or constant."""
        constant = self.graph.constants.get(tensor)
        return tuple(constant.shape) if constant is not None else self.graph.tensors[tensor].shape

    def is_float(self, tensor: str) -> bool:
        """Whether the tensor or constant is float32."""
        constant = self.graph.constants.get(tensor)
        return (constant.dtype.name if constant is not None else self.graph.tensors[tensor].dtype) == "float32"

    def producer(self, tensor: str) -> str:
        """The op that gives `tensor`; a constant becomes a `const` op of this partition."""
        if tensor not in self.producers:
            value = self.graph.constants[tensor]
            self.producers[tensor] = self.builder.constant(tensor, value, DEVICE, self.leaf)
        return self.producers[tensor]

    def constant(self, position: int) -> np.ndarray | None:
        """The constant at an input position, None if absent or computed."""
        names = self.node.inputs
        return self.graph.constants.get(names[position]) if position < len(names) and names[position] else None

    def is_read(self, output: str) -> bool:
        """Whether an output has a reader, in the network or outside: XIR takes one that has none for a result of its subgraph."""
        return output in self.graph.outputs or bool(self.graph.consumers(output))

    def output(self, index: int, name: str) -> XTensor:
        """The tensor of one output."""
        info = self.graph.tensors[self.node.outputs[index]]
        return plain_tensor(name, info.shape, info.dtype)


def emit(host: HostNode, tensor_names: dict[str, str]) -> None:
    """Adds the ops of a node, for each output that is read, and enters them in `host.producers`. `tensor_names`: of outputs whose XIR tensor is called otherwise."""
    node = host.node
    is_open = not host.open.isdisjoint((*node.inputs, *node.outputs))
    if node.op == "Split" and not is_open and _split(host, tensor_names):
        return
    plain = node.activation.kind == "none" and len(node.outputs) == 1 and not is_open
    found = _computed(host) if plain else None
    if found is not None:
        op_type, inputs, attrs = found
        args = {"input": [host.producer(t) for t in inputs]}
        tensor = host.output(0, tensor_names.get(node.outputs[0], node.outputs[0]))
        host.producers[node.outputs[0]] = host.builder.op(node.name, op_type, tensor, args, attrs, DEVICE, host.leaf)
        return
    present = [i for i, t in enumerate(node.inputs) if t and 0 not in host.shape(t)]
    empty = [
        i for i, t in enumerate(node.inputs) if t in host.graph.constants and host.shape(t) == (0,)
    ]  # of axes, of sizes: XIR holds none
    inputs = [host.producer(node.inputs[i]) for i in present]
    op_type = node.op if "::" in node.op else f"onnx::{node.op}"
    values = {**node.attrs, **activation_values(node.activation)}
    made = {}
    for index, name in enumerate(node.outputs):
        if not name or not host.is_read(name):
            continue
        own = node.name if index == 0 else f"{node.name}/{index}"
        made[name] = host.builder.custom(
            own, op_type, host.output(index, tensor_names.get(name, name)), inputs, values, DEVICE, host.leaf
        )
        op = host.builder.ops[-1]
        if len(node.outputs) > 1:
            op.attrs |= {"output_index": integer(index), "output_count": integer(len(node.outputs))}
        if len(present) != len(node.inputs) and node.op != "Concat":  # of empty parts nothing is joined
            op.attrs["input_positions"] = integers(present)
            if empty:
                op.attrs["empty_positions"] = integers(empty)
                types = [host.graph.constants[node.inputs[i]].dtype.name for i in empty]
                op.attrs["empty_types"] = Attr("string_vec", types)
    host.producers |= made


def _split(host: HostNode, tensor_names: dict[str, str]) -> bool:
    """A Split as one strided_slice per output; False if a tensor has no dimensions or is not float32, all that the vendor's task takes."""
    node, shape = host.node, list(host.shape(host.node.inputs[0]))
    if not host.is_float(node.inputs[0]):
        return False
    if not shape or 0 in shape or not all(node.outputs) or any(0 in host.shape(t) for t in node.outputs):
        return False
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    source, first = host.producer(node.inputs[0]), 0
    for index, name in enumerate(node.outputs):
        begin, end = [0] * len(shape), list(shape)
        begin[axis], end[axis] = first, first + host.shape(name)[axis]
        first = end[axis]
        if not host.is_read(name):
            continue
        attrs = {"begin": integers(begin), "end": integers(end), "strides": integers([1] * len(shape))}
        tensor = host.output(index, tensor_names.get(name, name))
        own = node.name if index == 0 else f"{node.name}/{index}"
        args = {"input": [source]}
        host.producers[name] = host.builder.op(own, "strided_slice", tensor, args, attrs, DEVICE, host.leaf)
    return True


def _computed(host: HostNode) -> Builtin | None:
    """XIR's own operator for a node where the vendor's runtime computes it."""
    found = _builtin(host)
    if found is None:
        return None
    op_type, inputs, attrs = found
    values = {name: attr.value for name, attr in attrs.items()}
    output = host.shape(host.node.outputs[0])
    return found if vendor_tasks.is_right(op_type, values, [host.shape(t) for t in inputs], output) else None


def _builtin(host: HostNode) -> Builtin | None:
    """XIR's own operator for a node, None if it has none that means the same."""
    node = host.node
    inputs = [t for t in node.inputs if t]
    if node.op in _RESHAPING and 0 not in (*host.shape(inputs[0]), *host.shape(node.outputs[0])):
        return "reshape", inputs[:1], {"shape": integers(host.shape(node.outputs[0]) or (1,))}
    if any(not host.shape(t) or 0 in host.shape(t) for t in (*inputs, *node.outputs)) and node.op not in _BINARY:
        return None
    if not host.is_float(node.outputs[0]):
        return None
    if node.op in _UNARY:
        return _UNARY[node.op], inputs, {}
    if node.op in _BINARY:
        same = all(host.is_float(t) and 0 not in host.shape(t) for t in inputs)
        return (_BINARY[node.op], inputs, {}) if len(inputs) == 2 and same and host.shape(node.outputs[0]) else None
    if node.op in _REDUCTION:
        return _reduction(host)
    rule = _RULES.get(node.op)
    return None if rule is None else rule(host)


def _leaky_relu(host: HostNode) -> Builtin:
    alpha = float(np.float32(host.node.attrs.get("alpha", 0.01)))
    return "leaky-relu", host.node.inputs[:1], {"alpha": Attr("float", alpha)}


def _hard_sigmoid(host: HostNode) -> Builtin | None:
    slope = float(host.node.attrs.get("alpha", 0.2)), float(host.node.attrs.get("beta", 0.5))
    known = math.isclose(slope[0], 1 / 6, rel_tol=1e-6) and slope[1] == 0.5
    return ("hard-sigmoid", host.node.inputs[:1], {}) if known else None


def _clip(host: HostNode) -> Builtin | None:
    low, high = (host.constant(i) for i in (1, 2))
    six = low is not None and high is not None and float(low) == 0 and float(high) == 6
    return ("relu6", host.node.inputs[:1], {}) if six else None


def _transpose(host: HostNode) -> Builtin:
    rank = len(host.shape(host.node.inputs[0]))
    order = host.node.attrs.get("perm") or list(range(rank))[::-1]
    return "transpose", host.node.inputs[:1], {"order": integers(order)}


def _concat(host: HostNode) -> Builtin:
    axis = int(host.node.attrs["axis"]) % len(host.shape(host.node.outputs[0]))
    return "concat", list(host.node.inputs), {"axis": integer(axis)}


def _softmax(host: HostNode) -> Builtin:
    axis = int(host.node.attrs.get("axis", -1)) % len(host.shape(host.node.outputs[0]))
    return "softmax", host.node.inputs[:1], {"axis": integer(axis)}


def _slice(host: HostNode) -> Builtin | None:
    """With constant limits and positive steps."""
    shape = host.shape(host.node.inputs[0])
    starts, ends = host.constant(1), host.constant(2)
    if starts is None or ends is None:
        return None
    axes, steps = host.constant(3), host.constant(4)
    limits = [[0, size, 1] for size in shape]
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        axis = (int(axes[i]) if axes is not None else i) % len(shape)
        step = int(steps[i]) if steps is not None else 1
        if step < 1:
            return None
        limits[axis] = [*slice(start, end, 1).indices(shape[axis])[:2], step]
    begin, end_, strides = (integers(column) for column in zip(*limits, strict=True))
    return "strided_slice", host.node.inputs[:1], {"begin": begin, "end": end_, "strides": strides}


def _reduction(host: HostNode) -> Builtin | None:
    """Over axes that are an attribute or a constant."""
    node, given = host.node, host.constant(1)
    if len(node.inputs) > 1 and node.inputs[1] and given is None:
        return None
    axes = node.attrs.get("axes") if given is None else given.tolist()
    rank = len(host.shape(node.inputs[0]))
    if not axes:
        if node.attrs.get("noop_with_empty_axes", 0):
            return None
        axes = list(range(rank))
    keep = Attr("bool", bool(node.attrs.get("keepdims", 1)))
    return _REDUCTION[node.op], node.inputs[:1], {"axis": integers(sorted(a % rank for a in axes)), "keep_dims": keep}


def _matmul(host: HostNode) -> Builtin | None:
    if any(len(host.shape(t)) < 2 for t in host.node.inputs):
        return None
    return "matmul", list(host.node.inputs), {"transpose_a": Attr("bool", False), "transpose_b": Attr("bool", False)}


def _cast(host: HostNode) -> Builtin:
    kind, width = dtype_of(host.graph.tensors[host.node.outputs[0]].dtype)
    return "cast", host.node.inputs[:1], {"data_type": string(f"{kind}{width}")}


_RULES: dict[str, Callable[[HostNode], Builtin | None]] = {
    "LeakyRelu": _leaky_relu,
    "HardSigmoid": _hard_sigmoid,
    "Clip": _clip,
    "Transpose": _transpose,
    "Concat": _concat,
    "Softmax": _softmax,
    "Slice": _slice,
    "MatMul": _matmul,
    "Cast": _cast,
}
