"""The part of the vendor's `xir` module that applications use, over our own files: Graph, Subgraph, Tensor.

    graph = xir.Graph.deserialize("build/model.xmodel")
    subgraphs = graph.get_root_subgraph().toposort_child_subgraph()
    npu = [s for s in subgraphs if s.has_attr("device") and s.get_attr("device").upper() == "DPU"]

Children of the root of an `.xmodel`: those of the file, with their names and attributes. A `.bin` or a build folder is accepted in its place (no
protobuf needed): one `USER` subgraph for the network's inputs, then the partitions in order, `DPU` or `CPU`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npuforge.board_runtime.session import Session, bin_path
from npuforge.compile.ir.errors import FormatError, UsageError


@dataclass(frozen=True)
class Tensor:
    """Name, dims (feature maps as N, H, W, C), dtype (`xint8`, `float32`, `uint8`, …), attributes (`fix_point`, `scale`, `zero_point`)."""

    name: str
    dims: list[int]
    dtype: str
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def get_element_num(self) -> int:
        """Product of the dimensions."""
        product = 1
        for dim in self.dims:
            product *= dim
        return product

    def has_attr(self, name: str) -> bool:
        """True if the attribute exists."""
        return name in self.attrs

    def get_attr(self, name: str) -> Any:
        """The attribute's value; UsageError if there is none (for instance `fix_point` where scales are per channel)."""
        if name not in self.attrs:
            raise UsageError(f"tensor {self.name}: no attribute {name!r}; found: {', '.join(self.attrs) or 'none'}")
        return self.attrs[name]

    @staticmethod
    def of(spec: dict[str, Any]) -> Tensor:
        """From what the native runner says about a tensor."""
        attrs: dict[str, Any] = {
            key: spec[key] for key in ("fix_point", "scale", "zero_point", "image_mean") if key in spec
        }
        dtype = {"int8": "xint8"}.get(spec["dtype"], spec["dtype"])
        return Tensor(spec["name"], list(spec["dims"]), dtype, attrs)


class Subgraph:
    """The root, or one child. `partition`: index in the `.bin`, -1 for the root and for children that are none."""

    def __init__(
        self, graph: Graph, name: str, attrs: dict[str, Any], partition: int, children: list[Subgraph]
    ) -> None:
        self.graph, self.name, self.attrs, self.partition, self._children = graph, name, attrs, partition, children

    @property
    def is_root(self) -> bool:
        """True for the whole network."""
        return bool(self._children)

    @property
    def is_leaf(self) -> bool:
        """True without children."""
        return not self._children

    def get_name(self) -> str:
        """The name."""
        return self.name

    def has_attr(self, name: str) -> bool:
        """True if the attribute exists."""
        return name in self.attrs

    def get_attr(self, name: str) -> Any:
        """The attribute's value."""
        if name not in self.attrs:
            raise UsageError(f"subgraph {self.name}: no attribute {name!r}; found: {', '.join(self.attrs) or 'none'}")
        return self.attrs[name]

    def set_attr(self, name: str, value: Any) -> Subgraph:
        """Sets an attribute of this object, not of the file."""
        self.attrs[name] = value
        return self

    def get_children(self) -> list[Subgraph]:
        """Partitions of the root."""
        return list(self._children)

    def toposort_child_subgraph(self) -> list[Subgraph]:
        """Partitions in execution order."""
        return list(self._children)

    @property
    def onnx_order(self) -> bool:
        """Whether arrays other than int8 have ONNX's order of axes: CPU subgraphs of an `.xmodel`."""
        return self.graph.model is not None and self.attrs.get("device") == "CPU"

    def tensors(self, specs: Iterable[dict[str, Any]]) -> list[Tensor]:
        """What the native runner says about this subgraph's tensors, with order and int8 form as the file has them."""
        tensors = [Tensor.of(spec) for spec in specs]
        if not self.onnx_order:
            return tensors
        stored = {op.tensor.name: op.tensor for op in self.graph.model.ops}
        return [
            replace(t, dims=list(s.shape), dtype="xint8" if s.dtype == "XINT8" else t.dtype) if s else t
            for t, s in ((t, stored.get(t.name)) for t in tensors)
        ]

    def get_input_tensors(self) -> list[Tensor]:
        """What a runner of this subgraph takes."""
        return self.tensors(self.graph.runner(self).get_input_tensors())

    def get_output_tensors(self) -> list[Tensor]:
        """What a runner of this subgraph gives."""
        return self.tensors(self.graph.runner(self).get_output_tensors())


class Graph:
    """One compiled network."""

    def __init__(self, source: Path | bytes, model: Any = None) -> None:
        self._source, self.model = source, model
        self._sessions: dict[tuple[str, int], Session] = {}
        session = self.session("sim" if "sim" in _devices() else _devices()[0], 1)
        self.name, meta = session.name, session.meta
        children = self._of_bin(meta) if model is None else self._of_xmodel(model)
        attrs = {} if model is None else {name: attr.value for name, attr in model.root.attrs.items()}
        self._root = Subgraph(self, "root", attrs, -1, children)

    def _of_bin(self, meta: dict[str, Any]) -> list[Subgraph]:
        arch = {"dpu_name": meta["arch"]["name"], "dpu_fingerprint": int(meta["fingerprint"], 16)}
        children = [Subgraph(self, "subgraph_inputs", {"device": "USER"}, -1, [])]
        for index, partition in enumerate(meta["partitions"]):
            npu = partition["device"] == "NPU"
            attrs = {"device": "DPU" if npu else "CPU", "runner": dict.fromkeys(("run", "sim", "csim"), "npuforge")}
            name = f"subgraph_{'npu' if npu else 'cpu'}_{index}"
            children.append(Subgraph(self, name, attrs | (arch if npu else {}), index, []))
        return children

    def _of_xmodel(self, model: Any) -> list[Subgraph]:
        children = []
        for child in model.root.children:
            attrs = {name: attr.value for name, attr in child.attrs.items()}
            if attrs.get("device") == "DPU" and "npuforge_partition" not in attrs:
                raise FormatError(
                    f"subgraph {child.name!r}: no attribute npuforge_partition; compile the network again"
                )
            children.append(Subgraph(self, child.name, attrs, attrs.get("npuforge_partition", -1), []))
        return children

    @staticmethod
    def deserialize(path: str | os.PathLike[str]) -> Graph:
        """Reads an `.xmodel`, a `.bin` or a build folder. FormatError names what is wrong."""
        file = bin_path(path)
        return Graph(*_embedded_bin(file)) if file.suffix == ".xmodel" else Graph(file)

    def get_name(self) -> str:
        """The network's name."""
        return self.name

    def get_root_subgraph(self) -> Subgraph:
        """The whole network."""
        return self._root

    def session(self, device: str, threads: int) -> Session:
        """The session that all runners of this graph on `device` share."""
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
        if subgraph.partition < 0 and not subgraph.is_root:
            from npuforge.board_runtime.output_subgraph import OutputRunner

            return OutputRunner(self.model, next(c for c in self.model.root.children if c.name == subgraph.name))
        chosen = device or ("sim" if "sim" in _devices() else _devices()[0])
        return _native.Runner(self.session(chosen, threads).native, subgraph.partition, workers)


def _devices() -> tuple[str, ...]:
    from npuforge.board_runtime.session import DEVICES

    if not DEVICES:
        raise UsageError("this build of npuforge has no device; rebuild it with the simulator")
    return DEVICES


def _embedded_bin(path: Path) -> tuple[bytes, Any]:
    """The `.bin` inside the NPU subgraphs of an `.xmodel` (`reg_id_to_parameter_value`, `REG_0`), and the model itself."""
    from npuforge.compile.xir.validate import read_checked

    model = read_checked(path)
    images = list(_images(model))
    if not images:
        raise FormatError(
            f"{path}: no DPU subgraph holds a .bin in reg_id_to_parameter_value['REG_0']; not compiled by npuforge"
        )
    if any(image != images[0] for image in images):
        raise FormatError(f"{path}: the DPU subgraphs hold different .bin images")
    return images[0], model


def _images(model: Any) -> Iterator[bytes]:
    for child in model.by_device("DPU"):
        image = (child.get("reg_id_to_parameter_value") or {}).get("REG_0")
        if image:
            yield bytes(image)
