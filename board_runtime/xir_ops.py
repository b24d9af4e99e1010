"""Tensors and ops of our `xir` module: the methods of the vendor's classes that read. Attributes are copies, so that setting one changes no file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npuforge.compile.ir.errors import UsageError


def power_of_two(exponent: int) -> float:
    """2**exponent as float64: 0 or infinity far outside of its range, where a hostile `fix_point` may lie."""
    return math.ldexp(1.0, exponent) if exponent < 1024 else math.inf


class Attributes:
    """What every object of XIR has: attributes by name."""

    attrs: dict[str, Any]

    @property
    def label(self) -> str:
        """What messages call the object."""
        raise NotImplementedError

    def has_attr(self, name: str) -> bool:
        """True if the attribute exists."""
        return name in self.attrs

    def get_attr(self, name: str) -> Any:
        """The attribute's value; UsageError if there is none (for instance `fix_point` where scales are per channel)."""
        if name not in self.attrs:
            raise UsageError(f"{self.label}: no attribute {name!r}; found: {', '.join(self.attrs) or 'none'}")
        return self.attrs[name]

    def get_attrs(self) -> dict[str, Any]:
        """All of them."""
        return dict(self.attrs)

    def set_attr(self, name: str, value: Any) -> None:
        """Sets one of this object's."""
        self.attrs[name] = value

    def set_attrs(self, attrs: dict[str, Any]) -> None:
        """These in place of all that it had."""
        self.attrs.clear()
        self.attrs.update(attrs)


@dataclass(repr=False)
class Tensor(Attributes):
    """Name, dims (feature maps as N, H, W, C), dtype (`xint8`, `float32`, `uint8`, …), attributes (`fix_point`, `scale`, `zero_point`).

    producer: the op that gives it; None where the network is a `.bin`, which has no ops.
    """

    name: str
    dims: list[int]
    dtype: str
    attrs: dict[str, Any] = field(default_factory=dict)
    producer: Op | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"tensor {self.name}"

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def get_element_num(self) -> int:
        """Product of the dimensions."""
        return math.prod(self.dims)

    def get_data_size(self) -> int:
        """Bytes of all its elements, as they lie one after the other."""
        width = re.search(r"[0-9]+$", self.dtype)
        return math.ceil(self.get_element_num() * (int(width[0]) if width else 8) / 8)  # bool: a byte

    def __repr__(self) -> str:
        return f"<xir.Tensor named '{self.name}'>"

    def __str__(self) -> str:
        return f"{{name: '{self.name}', shape: {self.dims}, type: '{self.dtype}', attrs: {self.attrs}}}"


class Op(Attributes):
    """One op of an `.xmodel`, with the one tensor that it gives."""

    def __init__(
        self, graph: Any, name: str, kind: str, attrs: dict[str, Any], inputs: dict[str, list[Op]], tensor: Tensor
    ) -> None:
        self._graph, self._name, self._kind, self.attrs = graph, name, kind, attrs
        self._inputs, self._tensor = inputs, tensor
        self._fanout: list[Op] = []
        tensor.producer = self
        for op in dict.fromkeys(op for ops in inputs.values() for op in ops):
            op._fanout.append(self)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"op {self._name}"

    def get_name(self) -> str:
        """The name."""
        return self._name

    def get_type(self) -> str:
        """`conv2d-fix`, …"""
        return self._kind

    def get_graph(self) -> Any:
        """The graph."""
        return self._graph

    def get_input_num(self, name: str | None = None) -> int:
        """Producers of all arguments, or of one."""
        return sum(map(len, self._inputs.values())) if name is None else len(self._inputs.get(name, []))

    def get_input_ops(self) -> dict[str, list[Op]]:
        """Producers by argument, these by name."""
        return {name: list(ops) for name, ops in self._inputs.items()}

    def get_input_ops_by_name(self, name: str) -> list[Op]:
        """Producers of one argument."""
        return list(self._inputs.get(name, []))

    def get_input_op(self, name: str, idx: int = 0) -> Op:
        """One producer; UsageError if there is none."""
        ops: Sequence[Op] = self._inputs.get(name, ())
        if not 0 <= idx < len(ops):
            raise UsageError(f"{self.label}: no input {idx} of argument {name!r}; it has {len(ops)}")
        return ops[idx]

    def get_input_tensors(self) -> list[Tensor]:
        """Tensors of all producers."""
        return [op.get_output_tensor() for ops in self._inputs.values() for op in ops]

    def get_input_tensors_by_name(self, name: str) -> list[Tensor]:
        """Tensors of one argument's producers."""
        return [op.get_output_tensor() for op in self.get_input_ops_by_name(name)]

    def get_input_tensor(self, name: str, idx: int = 0) -> Tensor:
        """The tensor of one producer; UsageError if there is none."""
        return self.get_input_op(name, idx).get_output_tensor()

    def get_output_tensor(self) -> Tensor:
        """What it gives."""
        return self._tensor

    def get_fanout_num(self) -> int:
        """How many ops read it."""
        return len(self._fanout)

    def get_fanout_ops(self) -> list[Op]:
        """The ops that read it, in the file's order."""
        return list(self._fanout)

    def __repr__(self) -> str:
        return f"<xir.Op named '{self._name}'>"

    def __str__(self) -> str:
        return f"{{name: '{self._name}', type: '{self._kind}', attrs: {self.attrs}}}"


def ops_of(graph: Any, model: Any) -> dict[str, Op]:
    """The ops of an `XModel` by name, in the file's order, which is topological; attributes that the file leaves out have XIR's default."""
    from npuforge.compile.xir.validate import operator_table

    ops: dict[str, Op] = {}
    for op in model.ops:
        stored = op.tensor
        attrs = {name: attr.value for name, attr in stored.attrs.items()}
        tensor = Tensor(stored.name, list(stored.shape), stored.dtype.lower(), attrs)
        inputs = {name: [ops[producer] for producer in producers] for name, producers in sorted(op.args)}
        rules = operator_table().get(op.type, {"attrs": {}})["attrs"]
        own = {name: rule["default"] for name, rule in rules.items() if "default" in rule}
        own |= {name: attr.value for name, attr in op.attrs.items()}
        ops[op.name] = Op(graph, op.name, op.type, own, inputs, tensor)
    return ops
