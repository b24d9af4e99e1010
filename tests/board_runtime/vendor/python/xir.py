"""Stand-in for what device `dpu` uses of the vendor's module `xir`, over our reader. Owns no arithmetic (vart.py beside it does)."""

from __future__ import annotations

from typing import Any

from npuforge.compile.xir.listing import border
from npuforge.compile.xir.model import XModel, XSubgraph, XTensor
from npuforge.compile.xir.reader import read_xmodel


class Tensor:
    def __init__(self, tensor: XTensor, batch: int) -> None:
        self.name, self.dtype = tensor.name, tensor.dtype.lower()
        self.dims = [batch * tensor.shape[0], *tensor.shape[1:]]
        self.fix_point = tensor.attrs["fix_point"].value if self.dtype == "xint8" else 0


class Subgraph:
    def __init__(self, model: XModel, subgraph: XSubgraph) -> None:
        self.model, self.subgraph = model, subgraph
        self.attrs = {name: attr.value for name, attr in subgraph.attrs.items()}

    def get_name(self) -> str:
        return self.subgraph.name

    def has_attr(self, name: str) -> bool:
        return name in self.attrs

    def get_attr(self, name: str) -> Any:
        return self.attrs[name]

    def set_attr(self, name: str, value: Any) -> None:
        self.attrs[name] = value

    def toposort_child_subgraph(self) -> list[Subgraph]:
        return [Subgraph(self.model, child) for child in self.subgraph.children]

    def tensors(self, batch: int) -> tuple[list[Tensor], list[Tensor]]:
        """Inputs and outputs, sorted by name as the vendor's runners have them."""
        known = {op.tensor.name: op.tensor for op in self.model.ops}
        inputs, outputs = ([Tensor(known[name], batch) for name in side] for side in border(self.model, self.subgraph))
        return inputs, outputs


class Graph:
    def __init__(self, model: XModel) -> None:
        self.model = model

    @staticmethod
    def deserialize(path: str) -> Graph:
        return Graph(read_xmodel(path))

    def get_root_subgraph(self) -> Subgraph:
        assert self.model.root is not None
        return Subgraph(self.model, self.model.root)
