"""The part of the vendor's `xir` module that applications use, over our own files: Graph, Subgraph, Op, Tensor. Methods that build or change a graph
or write a file are the vendor's alone; where it gives a set, a list is given here.

    graph = xir.Graph.deserialize("build/model.xmodel")
    subgraphs = graph.get_root_subgraph().toposort_child_subgraph()
    npu = [s for s in subgraphs if s.has_attr("device") and s.get_attr("device").upper() == "DPU"]

Children of the root of an `.xmodel`: those of the file, with their names and attributes. A `.bin` or a build folder is accepted in its place (no
protobuf needed): one `USER` subgraph for the network's inputs, then the partitions in order, `DPU` or `CPU`; it has no ops.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from npuforge.board_runtime.session import Session, bin_path
from npuforge.board_runtime.xir_ops import Attributes, Op, Tensor, ops_of
from npuforge.compile.ir.errors import UsageError

__all__ = ["Graph", "Op", "Subgraph", "Tensor"]


class Subgraph(Attributes):
    """The root, or one below it. `partition`: index in the `.bin`, -1 where it is none. `ops`: a leaf's, by name; none in a `.bin`."""

    def __init__(
        self,
        graph: Graph,
        name: str,
        attrs: dict[str, Any],
        partition: int = -1,
        ops: Iterable[str] = (),
        parent: Subgraph | None = None,
        stored: Any = None,
    ) -> None:
        self.graph, self.name, self.attrs, self.partition = graph, name, attrs, partition
        self._parent, self._ops, self._stored = parent, list(ops), stored
        self._children: list[Subgraph] = []
        if parent is not None:
            parent._children.append(self)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"subgraph {self.name}"

    @property
    def is_root(self) -> bool:
        """True for the whole network."""
        return self._parent is None

    @property
    def is_leaf(self) -> bool:
        """True without children."""
        return not self._children

    @property
    def root(self) -> Subgraph:
        """The whole network."""
        return self if self._parent is None else self._parent.root

    @property
    def depth(self) -> int:
        """0 for the root."""
        return 0 if self._parent is None else self._parent.depth + 1

    def get_name(self) -> str:
        """The name."""
        return self.name

    def set_name(self, name: str) -> Subgraph:
        """Renames this object, not what is in the file."""
        self.name = name
        return self

    def set_attr(self, name: str, value: Any) -> Subgraph:  # type: ignore[override]
        """Sets an attribute of this object, not of the file."""
        self.attrs[name] = value
        return self

    def get_graph(self) -> Graph:
        """The graph."""
        return self.graph

    def get_parent(self) -> Subgraph | None:
        """None for the root."""
        return self._parent

    def get_children_num(self) -> int:
        """How many children."""
        return len(self._children)

    def get_children(self) -> list[Subgraph]:
        """Partitions of the root; layers of a partition."""
        return list(self._children)

    def is_child(self, subgraph: Subgraph) -> bool:
        """Whether it is one of the children."""
        return subgraph in self._children

    def toposort_child_subgraph(self) -> list[Subgraph]:
        """Children in execution order."""
        if self.graph.model is None:
            return list(self._children)
        from npuforge.board_runtime.xmodel_source import execution_order

        order = execution_order(self.graph.model, [child._stored for child in self._children])
        return [self._children[place] for place in order]

    def get_op_num(self) -> int:
        """How many ops, those of all children."""
        return len(self.get_ops())

    def get_ops(self) -> list[Op]:
        """All ops, in the file's order. UsageError for a `.bin`."""
        if self._parent is None:
            return self.graph.get_ops()
        inside = set(self._op_names())
        return [op for op in self.graph.get_ops() if op.get_name() in inside]

    def toposort(self) -> list[Op]:
        """All ops, every one behind what it reads."""
        return self.get_ops()

    def has_op(self, op: Op | str) -> bool:
        """Whether the op is in it."""
        name = op if isinstance(op, str) else op.get_name()
        return any(name == own.get_name() for own in self.get_ops())

    def find_child_subgraph_by_op(self, op: Op) -> Subgraph | None:
        """The child that has it; None if none does."""
        return self.find_child_subgraph_by_op_name(op.get_name())

    def find_child_subgraph_by_op_name(self, name: str) -> Subgraph | None:
        """The same, by the op's name."""
        return next((child for child in self._children if name in child._op_names()), None)

    def get_tensor_producer(self, tensor: Tensor) -> Op | None:
        """The op in this subgraph that gives the tensor."""
        return next((op for op in self.get_ops() if op.get_output_tensor().name == tensor.name), None)

    def _op_names(self) -> list[str]:
        return self._ops + [name for child in self._children for name in child._op_names()]

    def tensors(self, specs: Iterable[dict[str, Any]]) -> list[Tensor]:
        """What the native runner says about this subgraph's tensors; order, int8 form and further attributes as the file has them."""
        return [self._tensor(spec) for spec in specs]

    def _tensor(self, spec: dict[str, Any]) -> Tensor:
        keys = ("fix_point", "scale", "zero_point", "image_mean")
        attrs = {key: spec[key] for key in keys if key in spec}
        stored = None if self.is_root or self.graph.model is None else self.graph.get_tensor(spec["name"])
        if stored is None:
            dtype = {"int8": "xint8"}.get(spec["dtype"], spec["dtype"])
            return Tensor(spec["name"], list(spec["dims"]), dtype, attrs)
        return Tensor(stored.name, list(stored.dims), stored.dtype, stored.attrs | attrs, stored.producer)

    def _runs(self) -> bool:
        return self.graph.runnable and (
            self.is_root or (self._parent is self.root and self.attrs.get("device") != "USER")
        )

    def get_input_tensors(self) -> list[Tensor]:
        """What a runner of this subgraph takes; of one that none runs, the tensors that come from outside of it."""
        if self._runs():
            return self.tensors(self.graph.runner(self).get_input_tensors())
        if self.graph.model is None:
            return []
        inside = self.get_ops()
        read = [tensor for op in inside for tensor in op.get_input_tensors()]
        return list(dict.fromkeys(tensor for tensor in read if tensor.producer not in inside))

    def get_output_tensors(self) -> list[Tensor]:
        """What a runner of this subgraph gives; of one that none runs, the tensors that are read outside of it, or by nobody."""
        if self._runs():
            return self.tensors(self.graph.runner(self).get_output_tensors())
        if self.graph.model is None:
            return self.root.get_input_tensors()
        inside = self.get_ops()
        return [
            op.get_output_tensor()
            for op in inside
            if not op.get_fanout_num() or any(reader not in inside for reader in op.get_fanout_ops())
        ]

    def __repr__(self) -> str:
        return f"<xir.Subgraph named '{self.name}'>"

    def __str__(self) -> str:
        number = "" if self.graph.model is None else f", op_num: {self.get_op_num()}"
        return f"{{name: '{self.name}'{number}, attrs: {self.attrs}}}"


class Graph(Attributes):
    """One compiled network."""

    def __init__(self, source: Path | bytes | None, model: Any = None, reason: str = "") -> None:
        self._source, self.model, self._reason = source, model, reason
        self._sessions: dict[tuple[str, int], Session] = {}
        session = None if source is None else self.session("sim" if "sim" in _devices() else _devices()[0], 1)
        self.name = model.name if session is None else session.name
        self.attrs = {} if model is None else _values(model.attrs)
        self._root = Subgraph(self, "root", {} if model is None or model.root is None else _values(model.root.attrs))
        if model is None:
            assert session is not None
            self._of_bin(session.meta)
        elif model.root is not None:
            self._of_xmodel(model, session)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"graph {self.name}"

    def _of_bin(self, meta: dict[str, Any]) -> None:
        arch = {"dpu_name": meta["arch"]["name"], "dpu_fingerprint": int(meta["fingerprint"], 16)}
        Subgraph(self, "subgraph_inputs", {"device": "USER"}, parent=self._root)
        for index, partition in enumerate(meta["partitions"]):
            npu = partition["device"] == "NPU"
            attrs = {"device": "DPU" if npu else "CPU", "runner": dict.fromkeys(("run", "sim", "csim"), "npuforge")}
            name = f"subgraph_{'npu' if npu else 'cpu'}_{index}"
            Subgraph(self, name, attrs | (arch if npu else {}), index, parent=self._root)

    def _of_xmodel(self, model: Any, session: Session | None) -> None:
        from npuforge.board_runtime.xmodel_source import check_partitions

        if session is not None:
            check_partitions(model, session.name, [partition["device"] for partition in session.meta["partitions"]])
        for child in model.root.children:
            self._add(child, self._root)

    def _add(self, stored: Any, parent: Subgraph) -> None:
        attrs = _values(stored.attrs)
        partition = attrs.get("npuforge_partition", -1) if parent.is_root else -1
        own = Subgraph(self, stored.name, attrs, partition, stored.ops, parent, stored)
        for child in stored.children:
            self._add(child, own)

    @property
    def runnable(self) -> bool:
        """False for an `.xmodel` that can only be looked at: another compiler's, or one without an NPU partition. Its runners say why."""
        return self._source is not None

    @staticmethod
    def deserialize(path: str | os.PathLike[str]) -> Graph:
        """Reads an `.xmodel` of any compiler, a `.bin` or a build folder. FormatError names what is wrong."""
        file = bin_path(path)
        if file.suffix != ".xmodel":
            return Graph(file)
        from npuforge.board_runtime.xmodel_source import open_xmodel

        source = open_xmodel(file)
        return Graph(source.image, source.model, source.reason)

    def get_name(self) -> str:
        """The network's name."""
        return self.name

    def get_root_subgraph(self) -> Subgraph:
        """The whole network."""
        return self._root

    @cached_property
    def _ops(self) -> dict[str, Op]:
        if self.model is None:
            raise UsageError(f"{self.label}: a .bin has no ops; open the .xmodel beside it")
        return ops_of(self, self.model)

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return {op.get_output_tensor().name: op.get_output_tensor() for op in self._ops.values()}

    def get_ops(self) -> list[Op]:
        """All ops, in the file's order. UsageError for a `.bin`, here and below."""
        return list(self._ops.values())

    def toposort(self) -> list[Op]:
        """All ops, every one behind what it reads."""
        return self.get_ops()

    def get_op_num(self) -> int:
        """How many ops."""
        return len(self._ops)

    def get_op(self, name: str) -> Op | None:
        """The op of that name; None if there is none."""
        return self._ops.get(name)

    def get_head_ops(self) -> list[Op]:
        """Ops that read nothing: network inputs, constants."""
        return [op for op in self._ops.values() if op.get_input_num() == 0]

    def get_tail_ops(self) -> list[Op]:
        """Ops that nobody reads."""
        return [op for op in self._ops.values() if op.get_fanout_num() == 0]

    def get_tensors(self) -> list[Tensor]:
        """One of every op."""
        return list(self._tensors.values())

    def get_tensor(self, name: str) -> Tensor | None:
        """The tensor of that name; None if there is none."""
        return self._tensors.get(name)

    def get_tensor_producer(self, tensor: Tensor) -> Op | None:
        """The op that gives it; None if it is of another graph."""
        known = self.get_tensor(tensor.name)
        return None if known is None else known.producer

    def get_leaf_subgraph(self, op: Op) -> Subgraph | None:
        """The leaf that has the op."""
        found: Subgraph | None = self._root
        while found is not None and not found.is_leaf:
            found = found.find_child_subgraph_by_op(op)
        return found

    def __repr__(self) -> str:
        return f"<xir.Graph named '{self.name}'>"

    def __str__(self) -> str:
        number = "" if self.model is None else f", op_num: {self.get_op_num()}"
        return f"{{name: '{self.name}'{number}, attrs: {self.attrs}}}"

    def session(self, device: str, threads: int) -> Session:
        """The session that all runners of this graph on `device` share. UsageError where it is not `runnable`."""
        if self._source is None:
            raise UsageError(self._reason)
        key = (device, threads)
        if key not in self._sessions:
            self._sessions[key] = Session(
                self._source if isinstance(self._source, bytes) else os.fspath(self._source), *key
            )
        return self._sessions[key]

    def runner(self, subgraph: Subgraph, device: str = "", threads: int = 1, workers: int = 1) -> Any:
        """The native runner of a subgraph; the root runs the whole network."""
        from npuforge.board_runtime import _native

        if subgraph.attrs.get("device") == "USER":
            raise UsageError(f"subgraph {subgraph.name}: holds the network's inputs; nothing to run")
        parent = subgraph.get_parent()
        if parent is not None and not parent.is_root:
            raise UsageError(
                f"subgraph {subgraph.name}: a layer of {parent.name}; a runner runs {parent.name} as a whole"
            )
        if not self.runnable:
            raise UsageError(self._reason)
        if subgraph.partition < 0 and parent is not None:
            from npuforge.board_runtime.output_subgraph import OutputRunner

            return OutputRunner(self.model, self.model.root.children[parent.get_children().index(subgraph)])
        chosen = device or ("sim" if "sim" in _devices() else _devices()[0])
        ports = None if self.model is None or subgraph.is_root else self._ports(subgraph)
        return _native.Runner(self.session(chosen, threads).native, subgraph.partition, workers, ports)

    def _ports(self, subgraph: Subgraph) -> tuple[list[tuple[str, bool, bool]], ...]:
        """Inputs and outputs of a partition as the file has them: name, whether it is the NPU's form (XINT8 or BFLOAT16), whether something reads it."""
        from npuforge.compile.xir.listing import border

        child = self.model.root.children[self._root.get_children().index(subgraph)]
        forms = {op.tensor.name: op.tensor.dtype in ("XINT8", "BFLOAT16") for op in self.model.ops}
        read = {source for op in self.model.ops for source in op.inputs()}
        inner = {op.tensor.name for op in self.model.ops if op.name in read}
        return tuple([(name, forms[name], name in inner) for name in side] for side in border(self.model, child))


def _values(attrs: dict[str, Any]) -> dict[str, Any]:
    return {name: attr.value for name, attr in attrs.items()}


def _devices() -> tuple[str, ...]:
    from npuforge.board_runtime.session import DEVICES

    if not DEVICES:
        raise UsageError("this build of npuforge has no device; rebuild it with the simulator")
    return DEVICES
