"""Reads an .xmodel. The vendor's library crashes on a file whose structure is wrong; here everything is checked first, each fault a FormatError.

Shared with the writer: `check_structure` refuses names that are unknown, doubled or out of order, tensors without a valid type, constants of
the wrong length, subgraphs that are leaf and parent at once, share an op, or depend on each other in a circle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.message import DecodeError

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.model import XModel, XOp, XSubgraph, from_message
from npuforge.compile.xir.schema import message_class


def parse_xmodel(data: bytes, name: str = "xmodel") -> XModel:
    """The model in `data`, checked. `name` is what messages call the file."""
    if not data:
        raise FormatError(f"{name}: the file is empty; expected an .xmodel")
    try:
        message = message_class("Graph").FromString(data)
    except DecodeError as error:
        raise FormatError(
            f"{name}: not an .xmodel or damaged ({len(data)} bytes do not parse as serial_v2.Graph: {error})"
        ) from None
    try:
        model = from_message(message)
        check_structure(model)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    return model


def read_xmodel(path: Path | str) -> XModel:
    """The model in the file, checked. FormatError if it is damaged or cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
    return parse_xmodel(data, str(path))


def check_structure(model: XModel) -> None:
    """FormatError with the first fault found."""
    if not model.ops:
        raise FormatError("there are no ops; expected at least one")
    known: set[str] = set()
    tensors: dict[str, str] = {}
    for index, op in enumerate(model.ops):
        _check_op(index, op, known)
        if op.tensor.name in tensors:
            raise FormatError(
                f"ops {tensors[op.tensor.name]!r} and {op.name!r} both have a tensor {op.tensor.name!r}; runtimes find tensors by name"
            )
        known.add(op.name)
        tensors[op.tensor.name] = op.name
    for index, name in enumerate(model.attrs):
        _check_attr_name(name, f"graph attribute {index}")
    if model.root is not None:
        _check_subgraphs(model, model.root, known)


def _check_attr_name(name: str, where: str) -> None:
    if not name or name.startswith("__"):
        raise FormatError(
            f"{where} is called {name!r}; names are not empty and those starting with __ are never stored"
        )


def _check_op(index: int, op: XOp, known: set[str]) -> None:
    if not op.name or not op.type:
        raise FormatError(f"op {index} has the name {op.name!r} and the type {op.type!r}; neither may be empty")
    where = op.label
    if op.name in known:
        raise FormatError(f"{where}: the name appears twice")
    seen: set[str] = set()
    for arg, producers in op.args:
        if arg in seen:
            raise FormatError(f"{where}: argument {arg!r} appears twice")
        seen.add(arg)
        for producer in producers:
            if producer not in known:
                raise FormatError(f"{where}: argument {arg!r} names {producer!r}, which is no op before it")
    tensor = op.tensor
    if not tensor.name:
        raise FormatError(f"{where}: its tensor has no name")
    if tensor.data_type == "UNKNOWN" or not 1 <= tensor.bit_width <= 64:
        raise FormatError(
            f"{where}: tensor type {tensor.dtype}; expected INT, UINT, XINT, XUINT, FLOAT or BFLOAT of 1 to 64 bits"
        )
    if any(d <= 0 for d in tensor.shape):
        raise FormatError(f"{where}: tensor shape {tensor.shape}; every dimension must be positive")
    for name in (*op.attrs, *tensor.attrs):
        _check_attr_name(name, f"{where}: an attribute")
    if op.type in ("const", "const-fix"):
        data, size = op.get("data"), math.prod(tensor.shape) * tensor.bit_width // 8
        if isinstance(data, bytes) and data and len(data) != size:
            raise FormatError(
                f"{where}: {len(data)} bytes of data; {tensor.shape} of {tensor.dtype} needs {size} (or none)"
            )


def _check_subgraphs(model: XModel, root: XSubgraph, known: set[str]) -> None:
    owner: dict[str, str] = {}
    for subgraph in root.walk():
        where = f"subgraph {subgraph.name!r}"
        names = [c.name for c in subgraph.children]  # a leaf may be called as its parent: the vendor's compiler does so
        if not subgraph.name or len(set(names)) != len(names):
            raise FormatError(f"{where}: the name is empty or two of its children are called the same")
        if subgraph is not root and bool(subgraph.ops) == bool(subgraph.children):
            raise FormatError(
                f"{where} has {len(subgraph.ops)} ops and {len(subgraph.children)} children; expected either, not both"
            )
        if subgraph is root and subgraph.children and subgraph.ops:
            raise FormatError(f"{where}, the root, lists ops beside its children")
        for name in subgraph.attrs:
            _check_attr_name(name, f"{where}: an attribute")
        for op in subgraph.ops:
            if op not in known:
                raise FormatError(f"{where} names {op!r}, which is no op of the file")
            if op in owner:
                raise FormatError(f"op {op!r} is in the subgraphs {owner[op]!r} and {subgraph.name!r}; expected one")
            owner[op] = subgraph.name
        order = subgraph.get("children_topological_sort")
        if order is not None:
            _check_order(subgraph, order)
    for parent in root.walk():
        if len(parent.children) > 1:
            _check_acyclic(model, parent)


def _check_order(subgraph: XSubgraph, order: object) -> None:
    children = {c.name for c in subgraph.children}
    if not isinstance(order, list) or not all(isinstance(n, str) for n in order):
        raise FormatError(f"subgraph {subgraph.name!r}: children_topological_sort is not a list of names")
    unknown = [n for n in order if n not in children]
    if unknown or len(set(order)) != len(order):
        raise FormatError(
            f"subgraph {subgraph.name!r}: children_topological_sort names {unknown or order!r}, expected children, each once"
        )


def _check_acyclic(model: XModel, parent: XSubgraph) -> None:
    """Siblings must be executable one after the other."""
    place = {op: child.name for child in parent.children for leaf in child.leaves() for op in leaf.ops}
    needs: dict[str, set[str]] = {child.name: set() for child in parent.children}
    for op in model.ops:
        if op.name in place:
            sources = {place[p] for p in op.inputs() if p in place}
            needs[place[op.name]] |= sources - {place[op.name]}
    done: set[str] = set()
    waiting = set(needs)
    while waiting:
        ready = {name for name in waiting if needs[name] <= done}
        if not ready:
            raise FormatError(f"the subgraphs {_some(waiting)} depend on each other in a circle")
        done |= ready
        waiting -= ready


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(repr(n) for n in listed[:3]) + (" …" if len(listed) > 3 else "")
