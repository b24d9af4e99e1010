"""Raises the nodes of an older ONNX file to one operator set, so that every later step knows one form of each operator.

Models of operator set 7 to 17 are written in the form of 18 (axes, splits, limits as inputs; Upsample as Resize; Softmax over one axis); newer
models keep their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.compile.ir.graph import Graph, Node

TARGET = 18

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")


class _Upgrade:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.version = graph.opset
        self.before: list[Node] = []  # nodes that the one at hand reads

    def constant(self, node: Node, label: str, value: Any, dtype: str) -> str:
        name = f"{node.outputs[0]}/{label}"
        self.graph.constants[name] = np.asarray(value, dtype)
        return name

    def attribute_to_input(self, node: Node, label: str, position: int, dtype: str = "int64") -> None:
        if label in node.attrs:
            node.inputs += [""] * (position + 1 - len(node.inputs))
            node.inputs[position] = self.constant(node, label, node.attrs.pop(label), dtype)

    # ---- one method per operator that changed
    def clip(self, node: Node) -> None:
        self.attribute_to_input(node, "min", 1, "float32")
        self.attribute_to_input(node, "max", 2, "float32")

    def pad(self, node: Node) -> None:
        self.attribute_to_input(node, "pads", 1)
        self.attribute_to_input(node, "value", 2, "float32")

    def slice(self, node: Node) -> None:
        for position, label in enumerate(("starts", "ends", "axes"), start=1):
            self.attribute_to_input(node, label, position)

    def split(self, node: Node) -> None:
        self.attribute_to_input(node, "split", 1)
        if len(node.inputs) < 2 or not node.inputs[1]:
            node.attrs["num_outputs"] = len(node.outputs)

    def axes(self, node: Node) -> None:
        self.attribute_to_input(node, "axes", 1)

    def top_k(self, node: Node) -> None:
        if "k" in node.attrs:
            node.attrs["k"] = [node.attrs["k"]]
        self.attribute_to_input(node, "k", 1)

    def upsample(self, node: Node) -> None:
        node.op = "Resize"
        if "scales" in node.attrs:
            node.inputs = [node.inputs[0], self.constant(node, "scales", node.attrs.pop("scales"), "float32")]
        node.inputs = [node.inputs[0], "", *node.inputs[1:]]
        node.attrs = {
            "mode": node.attrs.get("mode", "nearest"),
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }

    def resize(self, node: Node) -> None:
        if self.version == 10:
            scales = self.graph.constants.get(node.inputs[1])
            down = scales is not None and bool((scales < 1).any())
            node.attrs["coordinate_transformation_mode"] = "asymmetric"
            if (
                scales is not None
                and down
                and bool((scales > 1).any())
                and node.attrs.get("mode", "nearest") == "nearest"
            ):
                self._grow_first(node, scales)
                return
            node.inputs = [node.inputs[0], "", node.inputs[1]]
            node.attrs["nearest_mode"] = "ceil" if down else "floor"

    def _grow_first(self, node: Node, scales: np.ndarray) -> None:
        """Axes that grow round down and those that shrink round up (ONNX Runtime): two nodes, one after the other."""
        grown = f"{node.name}/grown"
        growing = self.constant(node, "growing", np.maximum(scales, 1), "float32")
        attrs = node.attrs | {"nearest_mode": "floor"}
        self.before.append(
            Node(grown, node.op, [node.inputs[0], "", growing], [grown], attrs, sources=list(node.sources))
        )
        node.inputs = [grown, "", self.constant(node, "shrinking", np.minimum(scales, 1), "float32")]
        node.attrs["nearest_mode"] = "ceil"

    def dropout(self, node: Node) -> None:
        training = node.inputs[2] if len(node.inputs) > 2 else ""
        if training and bool(np.any(self.graph.constants.get(training, True))):
            raise UnsupportedError(
                f"node '{node.name}' (Dropout) is in training mode, or may be; export the network with model.eval()"
            )
        node.attrs = {}
        node.inputs = node.inputs[:1]

    def batch_normalization(self, node: Node) -> None:
        node.outputs = node.outputs[:1]
        node.attrs = {"epsilon": node.attrs.get("epsilon", 1e-5)}

    def roi_align(self, node: Node) -> None:
        if self.version < 16:
            node.attrs.setdefault("coordinate_transformation_mode", "output_half_pixel")

    def scatter(self, node: Node) -> None:
        node.op = "ScatterElements"

    def cast(self, node: Node) -> None:
        if isinstance(node.attrs.get("to"), str):
            raise ModelError(
                f"node '{node.name}' (Cast): 'to' is a string; the file does not follow operator set {self.version}"
            )


_ANY = 1 << 16  # whatever the operator set
_CHANGED: dict[str, tuple[int, Callable[[_Upgrade, Node], None]]] = {
    "Clip": (11, _Upgrade.clip),
    "Pad": (11, _Upgrade.pad),
    "Slice": (10, _Upgrade.slice),
    "Split": (18, _Upgrade.split),
    "Squeeze": (13, _Upgrade.axes),
    "Unsqueeze": (13, _Upgrade.axes),
    "ReduceSum": (13, _Upgrade.axes),
    "TopK": (10, _Upgrade.top_k),
    "Upsample": (10, _Upgrade.upsample),
    "Resize": (11, _Upgrade.resize),
    "Dropout": (_ANY, _Upgrade.dropout),
    "BatchNormalization": (14, _Upgrade.batch_normalization),
    "RoiAlign": (16, _Upgrade.roi_align),
    "Scatter": (_ANY, _Upgrade.scatter),
    "Cast": (9, _Upgrade.cast),
    **{f"Reduce{kind}": (18, _Upgrade.axes) for kind in _REDUCTIONS},
}


def upgrade(graph: Graph) -> None:
    """Rewrites `graph.nodes` in the form of operator set 18 (or the model's own where it is newer) and sets `graph.opset`.

    Softmax before 13 works on the flattened tail: kept here as attribute `flatten`, resolved once shapes are known (`fold`).
    """
    changes = _Upgrade(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "BatchNormalization" and node.attrs.get("training_mode"):
            raise UnsupportedError(
                f"node '{node.name}' (BatchNormalization) is in training mode; export the network with model.eval()"
            )
        before, change = _CHANGED.get(node.op, (0, None))
        if change is not None and graph.opset < before:
            change(changes, node)
        if node.op == "Resize":
            node.inputs = [
                "" if i and t in graph.constants and graph.constants[t].size == 0 else t
                for i, t in enumerate(node.inputs)
            ]
            while not node.inputs[-1]:
                node.inputs.pop()
        if node.op in ("Softmax", "LogSoftmax", "Hardmax") and graph.opset < 13:
            node.attrs["flatten"] = node.attrs.pop("axis", 1)
        nodes += [*changes.before, node]
        changes.before.clear()
    graph.nodes = nodes
    graph.opset = max(graph.opset, TARGET)
