"""One batch as the first axis of all tensors that leave a child of the root: the vendor's graph runner takes no other file.

Where they begin with different sizes, one that does not begin with 1 ([40, 5], or rows that the data decide, [N, 3]) leaves as [1, 40, 5]: its child ends
with an operator that adds the axis, and a child that reads it begins with one that drops it. (What the NPU reads and gives begins with 1.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from npuforge.compile.xir.builder import Builder, integers, string
from npuforge.compile.xir.cpu_ops import DEVICE
from npuforge.compile.xir.model import Attrs, XOp, XSubgraph, XTensor

OPEN_SHAPE = "npuforge_open_shape"


@dataclass
class BatchAxes:
    """`children`: of the root. `added`: makes a name that the network does not have."""

    builder: Builder
    children: list[XSubgraph]
    added: Callable[[str, str], str]
    child_of: dict[str, XSubgraph] = field(init=False)
    leaf_of: dict[str, list[str]] = field(init=False)
    readers: dict[str, list[XOp]] = field(init=False)  # as the network has them

    def __post_init__(self) -> None:
        leaves = [(child, leaf) for child in self.children for leaf in child.leaves()]
        self.child_of = {name: child for child, leaf in leaves for name in leaf.ops}
        self.leaf_of = {name: leaf.ops for _, leaf in leaves for name in leaf.ops}
        self.readers = {op.name: [] for op in self.builder.ops}
        for op in self.builder.ops:
            for source in dict.fromkeys(op.inputs()):
                self.readers[source].append(op)

    def add(self) -> dict[str, str]:
        """Adds the axis where it is missing. The ops that give network outputs now, by the ops that gave them."""
        leaving = [op for op in self.builder.ops if self._leaves(op)]
        if len({op.tensor.shape[0] for op in leaving}) == 1:
            return {}
        return {op.name: self._lead(op) for op in leaving if op.tensor.shape[0] != 1}

    def _leaves(self, op: XOp) -> bool:
        readers = self.readers[op.name]
        return not readers or any(self.child_of.get(r.name) is not self.child_of[op.name] for r in readers)

    def _lead(self, op: XOp) -> str:
        """One tensor with the axis; the op that gives it now."""
        child = self.child_of[op.name]
        inside = [r for r in self.readers[op.name] if self.child_of[r.name] is child]
        outside: dict[int, list[XOp]] = {}  # by child
        for reader in (r for r in self.readers[op.name] if self.child_of[r.name] is not child):
            outside.setdefault(id(self.child_of[reader.name]), []).append(reader)
        plain, shown = self._copy(op.tensor, op.tensor.shape), list(op.attrs.get(OPEN_SHAPE, integers([])).value)
        leading = op
        if op.type == "data" or (op.type in ("reshape", "identity") and not shown and not inside):
            op.type = "data" if op.type == "data" else "reshape"
            op.tensor.shape = [1, *plain.shape]
            op.attrs["shape"] = integers(op.tensor.shape)
        else:
            own = self._copy(op.tensor, [1, *plain.shape])
            self.builder.rename_tensor(op, self.added(op.tensor.name, "_inner"))
            label = self.added(own.name, "_batch")
            leading = self._moved(label, own, op, shown, True, self.builder.ops.index(op) + 1, op.name, 1)
        for readers in outside.values():
            self._drop(op.name, leading, plain, shown, readers)
        return leading.name

    def _drop(self, source: str, leading: XOp, plain: XTensor, shown: list[int], readers: list[XOp]) -> None:
        """Readers of `source`, all in one child, get what `leading` gives without the axis. One that only hands it on keeps the axis."""
        handing = [r for r in readers if r.type == "identity" and not self.readers[r.name]]
        for reader in handing:
            reader.tensor.shape = list(leading.tensor.shape)
            if shown:
                reader.attrs[OPEN_SHAPE] = integers([1, *shown])
        self._redirect(handing, source, leading.name)
        computing = [r for r in readers if r not in handing]
        if not computing:
            return
        first, tensor = computing[0], self._copy(plain, plain.shape)
        tensor.name = name = self.added(plain.name, "_inner")
        dropped = self._moved(name, tensor, leading, shown, False, self.builder.ops.index(first), first.name, 0)
        self._redirect(computing, source, dropped.name)

    def _moved(
        self, label: str, tensor: XTensor, source: XOp, shown: list[int], leads: bool, at: int, beside: str, after: int
    ) -> XOp:
        """A new op at place `at` that gives `source` with or without the axis, in the leaf of the op `beside`, in front of it or (`after` 1) behind."""
        leaf: list[str] = []
        attrs: Attrs = {"shape": integers(tensor.shape)}
        if shown:  # our own: it knows the rows that are there
            made = "onnx::Unsqueeze" if leads else "onnx::Squeeze"
            attrs |= {"data_type": string(tensor.dtype), "axes": integers([0])}
            attrs[OPEN_SHAPE] = integers([1, *shown] if leads else shown)
            name = self.builder.op(label, made, tensor, {"input": [source.name]}, attrs, DEVICE, leaf)
        else:
            name = self.builder.op(label, "reshape", tensor, {"input": [source.name]}, attrs, DEVICE, leaf)
        op = self.builder.ops.pop()
        self.builder.ops.insert(at, op)
        target = self.leaf_of[beside]
        target.insert(target.index(beside) + after, name)
        self.child_of[name], self.leaf_of[name] = self.child_of[beside], target
        return op

    @staticmethod
    def _redirect(readers: Iterable[XOp], source: str, target: str) -> None:
        for reader in readers:
            reader.args = [(arg, [target if n == source else n for n in names]) for arg, names in reader.args]

    @staticmethod
    def _copy(tensor: XTensor, shape: list[int]) -> XTensor:
        return XTensor(tensor.name, list(shape), tensor.data_type, tensor.bit_width, dict(tensor.attrs))
