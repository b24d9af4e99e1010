"""An .xmodel as plain data: `XModel` of `XOp`s and `XSubgraph`s, to and from the protobuf message. Attributes keep their wire type.

`from_message` and `to_message` are inverse to each other on every message whose attributes hold a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.schema import message_class

FLOAT_FORM_OF = (
    "npuforge_input"  # attribute of a tensor: the network input that enters by it a second time, in float for the CPU
)
UNREAD_INPUTS = "npuforge_unread_inputs"  # of the file: network inputs that nothing reads, which it does not have
DATA_TYPES = ("INT", "UINT", "XINT", "XUINT", "FLOAT", "BFLOAT", "UNKNOWN")


class Attr(NamedTuple):
    """kind: the wire type, a member of AttrValue without `_value` (`int32`, `int32_vec`, `map_string_2_string`, …)."""

    kind: str
    value: Any


Attrs = dict[str, Attr]


@dataclass
class XTensor:
    """An op's output. data_type: one of DATA_TYPES; XINT and XUINT are fixed-point, INT and UINT plain integers."""

    name: str
    shape: list[int]
    data_type: str
    bit_width: int
    attrs: Attrs = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """For instance `XINT8`, as the attribute `data_type` of sources spells it."""
        return f"{self.data_type}{self.bit_width}"


@dataclass
class XOp:
    """args: argument name and the names of the producers, in the file's order."""

    name: str
    type: str
    tensor: XTensor
    args: list[tuple[str, list[str]]] = field(default_factory=list)
    attrs: Attrs = field(default_factory=dict)

    @property
    def label(self) -> str:
        """For messages of one line: `op 'head' (conv2d-fix)`."""
        return f"op {self.name!r} ({self.type if self.type.isprintable() else repr(self.type)})"

    def inputs(self) -> Iterator[str]:
        """Names of all producers."""
        for _, producers in self.args:
            yield from producers

    def get(self, attr: str, default: Any = None) -> Any:
        """The attribute's value."""
        return self.attrs[attr].value if attr in self.attrs else default


@dataclass
class XSubgraph:
    """A leaf lists its ops, any other its children; the root of a file without subgraphs has neither."""

    name: str
    attrs: Attrs = field(default_factory=dict)
    ops: list[str] = field(default_factory=list)
    children: list[XSubgraph] = field(default_factory=list)

    def get(self, attr: str, default: Any = None) -> Any:
        """The attribute's value."""
        return self.attrs[attr].value if attr in self.attrs else default

    def leaves(self) -> Iterator[XSubgraph]:
        """All leaves below, itself if it is one."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def walk(self) -> Iterator[XSubgraph]:
        """Itself and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class XModel:
    """ops in file order. definitions: the file's own operator definitions (`OpDef` messages), kept as they are."""

    name: str
    ops: list[XOp] = field(default_factory=list)
    root: XSubgraph | None = None
    attrs: Attrs = field(default_factory=dict)
    definitions: list[Any] = field(default_factory=list)

    def by_device(self, device: str) -> list[XSubgraph]:
        """Children of the root on `device` (`USER`, `CPU`, `DPU`), in file order."""
        return [] if self.root is None else [c for c in self.root.children if c.get("device") == device]


def _attr_from_message(message: Any, where: str) -> Attr:
    member = message.WhichOneof("value")
    if member is None:
        raise FormatError(f"{where} has no value; expected one of the 29 attribute types")
    kind, value = member.removesuffix("_value"), getattr(message, member)
    if kind.startswith("map_"):
        values: Any = {k: value.value[k] for k in value.value}
        if kind.endswith("_vec"):
            values = {k: list(v.value) for k, v in values.items()}
        elif kind.endswith("_bytes"):
            values = {k: v.value for k, v in values.items()}
        return Attr(kind, values)
    if kind == "bytes_vec":
        return Attr(kind, [v.value for v in value.value])
    if kind.endswith("_vec"):
        return Attr(kind, list(value.value))
    return Attr(kind, value.value if kind == "bytes" else value)


def attr_to_message(attr: Attr, message: Any) -> None:
    """Fills an AttrValue. Also empty vectors and maps are marked as present."""
    member = getattr(message, f"{attr.kind}_value")
    if attr.kind.startswith("map_"):
        member.SetInParent()
        for key, value in attr.value.items():
            if attr.kind.endswith("_vec"):
                member.value[key].value.extend(value)
            elif attr.kind.endswith("_bytes"):
                member.value[key].value = value
            else:
                member.value[key] = value
    elif attr.kind == "bytes_vec":
        member.SetInParent()
        for value in attr.value:
            member.value.add(value=value)
    elif attr.kind.endswith("_vec"):
        member.SetInParent()
        member.value.extend(attr.value)
    elif attr.kind == "bytes":
        member.SetInParent()
        member.value = attr.value
    else:
        setattr(message, f"{attr.kind}_value", attr.value)


def _attrs_from_message(mapping: Any, where: str) -> Attrs:
    return {name: _attr_from_message(mapping[name], f"{where}: attribute {name!r}") for name in sorted(mapping)}


def _attrs_to_message(attrs: Attrs, mapping: Any) -> None:
    for name, attr in attrs.items():
        attr_to_message(attr, mapping[name])


def _op_from_message(node: Any) -> XOp:
    where = f"op {node.op_name!r}"
    if not node.HasField("output_tensor"):
        raise FormatError(f"{where} ({node.op_type!r}) has no output tensor; every op needs one")
    tensor = node.output_tensor
    if not 0 <= tensor.data_type < len(DATA_TYPES):
        raise FormatError(f"{where}: data type {tensor.data_type} of its tensor; expected 0 to {len(DATA_TYPES) - 1}")
    shape = [d - (1 << 32) if d >= 1 << 31 else d for d in tensor.tensor_dim]
    attrs = _attrs_from_message(tensor.tensor_attr, f"{where}, tensor {tensor.tensor_name!r}")
    output = XTensor(tensor.tensor_name, shape, DATA_TYPES[tensor.data_type], tensor.tensor_bit_width, attrs)
    args = [(a.arg_name, list(a.arg_ops)) for a in node.args]
    return XOp(node.op_name, node.op_type, output, args, _attrs_from_message(node.op_attr, where))


def _subgraph_from_message(message: Any) -> XSubgraph:
    attrs = _attrs_from_message(message.subg_attr, f"subgraph {message.subgraph_name!r}")
    children = [_subgraph_from_message(c) for c in message.subg_child]
    return XSubgraph(message.subgraph_name, attrs, list(message.op_name), children)


def _subgraph_to_message(subgraph: XSubgraph, message: Any) -> None:
    message.subgraph_name = subgraph.name
    message.op_name.extend(subgraph.ops)
    _attrs_to_message(subgraph.attrs, message.subg_attr)
    for child in subgraph.children:
        _subgraph_to_message(child, message.subg_child.add())


def from_message(message: Any) -> XModel:
    """The model of a `serial_v2.Graph`. FormatError where an attribute has no value or a tensor no known type."""
    root = _subgraph_from_message(message.subg_root) if message.HasField("subg_root") else None
    ops = [_op_from_message(node) for node in message.op_node]
    return XModel(
        message.graph_name, ops, root, _attrs_from_message(message.graph_attr, "graph"), list(message.op_defs)
    )


def to_message(model: XModel) -> Any:
    """The `serial_v2.Graph` of a model."""
    message = message_class("Graph")()
    message.graph_name = model.name
    for op in model.ops:
        node = message.op_node.add(op_name=op.name, op_type=op.type)
        _attrs_to_message(op.attrs, node.op_attr)
        for name, producers in op.args:
            node.args.add(arg_name=name, arg_ops=producers)
        tensor = node.output_tensor
        tensor.tensor_name, tensor.tensor_bit_width = op.tensor.name, op.tensor.bit_width
        tensor.data_type = DATA_TYPES.index(op.tensor.data_type)
        tensor.tensor_dim.extend(d & 0xFFFFFFFF for d in op.tensor.shape)
        _attrs_to_message(op.tensor.attrs, tensor.tensor_attr)
    if model.root is not None:
        message.subg_root.SetInParent()
        _subgraph_to_message(model.root, message.subg_root)
    _attrs_to_message(model.attrs, message.graph_attr)
    message.op_defs.extend(model.definitions)
    return message
