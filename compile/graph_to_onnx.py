"""Writes a `Graph` back as ONNX, fused activations expanded: what the float executors run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.compile.steps.onnx_nodes import make_node, split_operator, value_info
from npuforge.hw_kernels.formulas import SILU_EDGE, SILU_POLYNOMIAL


def pre_activation(node: Node) -> str:
    """Name of the tensor before the fused activation of `node`, as `graph_to_onnx` calls it (its output where none is fused)."""
    return node.outputs[0] if node.activation.kind == "none" else f"{node.outputs[0]}/pre_activation"


def graph_to_onnx(graph: Graph, extra_outputs: Iterable[str] = ()) -> onnx.ModelProto:
    """The graph as an ONNX model that computes the same; `extra_outputs`: inner tensors (also `pre_activation(node)`) to be outputs too."""
    writer = _Writer(graph)
    for node in graph.nodes:
        writer.write(node)
    names = list(dict.fromkeys([*graph.outputs, *extra_outputs]))
    outputs = [value_info(graph.tensors[t]) if t in graph.tensors else onnx.ValueInfoProto(name=t) for t in names]
    domains = sorted({split_operator(n.op)[0] for n in graph.nodes} - {""})
    model = helper.make_model(
        helper.make_graph(
            writer.nodes,
            graph.name,
            [value_info(graph.tensors[t]) for t in graph.inputs],
            outputs,
            writer.initialisers(),
        ),
        opset_imports=[helper.make_opsetid("", graph.opset), *(helper.make_opsetid(d, 1) for d in domains)],
        ir_version=10,
        producer_name="npuforge",
    )
    return model


class _Writer:
    """Collects ONNX nodes and constants."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}
        self._used: set[str] = set()

    def initialisers(self) -> list[onnx.TensorProto]:
        """Constants that the nodes read."""
        own = {k: v for k, v in self.graph.constants.items() if k in self._used}
        return [numpy_helper.from_array(np.asarray(v, order="C"), k) for k, v in {**own, **self._constants}.items()]

    def constant(self, value: object, dtype: type, wanted: str) -> str:
        name = f"{wanted}#{len(self._constants)}"
        self._constants[name] = np.asarray(value, dtype)
        return name

    def emit(
        self, op: str, inputs: list[str], output: str | list[str], attrs: Mapping[str, object] | None = None
    ) -> str:
        outputs = [output] if isinstance(output, str) else output
        self._used.update(inputs)
        self.nodes.append(make_node(op, inputs, outputs, attrs or {}, f"{outputs[0]}#{len(self.nodes)}"))
        return outputs[0]

    def write(self, node: Node) -> None:
        """One node of the graph with its activation."""
        special = _SPECIAL.get(node.op)
        inner = pre_activation(node)
        if node.op == "Activation":
            self.emit("Identity", node.inputs, inner)
        elif special is not None and special(self, node, inner):
            pass
        else:
            attrs = {k: v for k, v in node.attrs.items() if k not in _NOT_ONNX}
            if node.op == "AveragePool" and all(d == 1 for d in attrs.get("dilations", [1])):
                attrs.pop("dilations", None)
            outputs = [inner if i == 0 else t for i, t in enumerate(node.outputs)]
            self.emit(node.op, node.inputs, outputs, attrs)
        if node.activation.kind != "none":
            self.activation(node.activation, inner, node.outputs[0])

    def activation(self, activation: Activation, x: str, y: str) -> None:
        """The activation in ONNX's own operators."""
        kind, number = activation.kind, lambda value: self.constant(value, np.float32, y)
        if kind in ("Relu", "Sigmoid", "Tanh", "Mish", "HardSwish", "Softplus", "Erf"):
            self.emit(kind, [x], y)
        elif kind in ("LeakyRelu", "Elu"):
            self.emit(kind, [x], y, {"alpha": activation.alpha})
        elif kind == "HardSigmoid":
            self.emit(kind, [x], y, {"alpha": activation.alpha, "beta": activation.beta})
        elif kind == "Clip":
            low = number(activation.low) if activation.low > -math.inf else ""
            high = number(activation.high) if activation.high < math.inf else ""
            self.emit("Clip", [x, low, high] if high else [x, low], y)
        elif kind == "PRelu":
            assert activation.slope is not None
            self.emit("PRelu", [x, self.constant(np.reshape(activation.slope, (-1, 1, 1)), np.float32, y)], y)
        elif kind == "Silu":
            self.emit("Mul", [x, self.emit("Sigmoid", [x], f"{y}#gate")], y)
        elif kind == "ClipSigmoid":
            self.emit("Clip", [self.emit("Sigmoid", [x], f"{y}#sigmoid"), number(0.1), number(0.9)], y)
        elif kind == "SiluPolynomial":
            self._silu_polynomial(x, y)
        elif kind == "Gelu":
            scaled = self.emit("Mul", [x, number(math.sqrt(0.5))], f"{y}#scaled")
            self._gelu(x, self.emit("Erf", [scaled], f"{y}#erf"), y)
        elif kind == "CustomGELU":
            cube = self.emit("Mul", [self.emit("Mul", [x, x], f"{y}#square"), x], f"{y}#cube")
            inner = self.emit("Add", [x, self.emit("Mul", [cube, number(0.044715)], f"{y}#part")], f"{y}#inner")
            scaled = self.emit("Mul", [inner, number(math.sqrt(2.0 / math.pi))], f"{y}#scaled")
            self._gelu(x, self.emit("Tanh", [scaled], f"{y}#tanh"), y)
        else:
            raise UnsupportedError(f"tensor '{y}': the activation {kind} has no ONNX form")

    def _silu_polynomial(self, x: str, y: str) -> None:
        """x/2 + c0 + u (c2 + u c4) with u = x^2 inside [-8, 8]; Relu(x) outside."""

        def number(value: float) -> str:
            return self.constant(value, np.float32, y)

        def step(op: str, *inputs: str) -> str:
            return self.emit(op, list(inputs), f"{y}#{op}{len(self.nodes)}")

        square = step("Mul", x, x)
        c0, c2, c4 = (number(c) for c in SILU_POLYNOMIAL)
        even = step("Add", step("Mul", step("Add", step("Mul", square, c4), c2), square), c0)
        value = step("Add", step("Mul", x, number(0.5)), even)
        outside = step("Greater", step("Abs", x), number(SILU_EDGE))
        self.emit("Where", [outside, step("Relu", x), value], y)

    def _gelu(self, x: str, gate: str, y: str) -> None:
        one, half = self.constant(1.0, np.float32, y), self.constant(0.5, np.float32, y)
        product = self.emit("Mul", [x, self.emit("Add", [gate, one], f"{y}#plus")], f"{y}#product")
        self.emit("Mul", [product, half], y)


_NOT_ONNX = ("ceil_pads",)


def _affine(writer: _Writer, node: Node, y: str) -> bool:
    shape = (1, -1, 1, 1)
    scale = writer.constant(np.reshape(node.attrs["scale"], shape), np.float32, y)
    bias = writer.constant(np.reshape(node.attrs["bias"], shape), np.float32, y)
    writer.emit("Add", [writer.emit("Mul", [node.inputs[0], scale], f"{y}#scaled"), bias], y)
    return True


def _channel_gather(writer: _Writer, node: Node, y: str) -> bool:
    indices, x = np.asarray(node.attrs["indices"], np.int64), node.inputs[0]
    info: TensorInfo = writer.graph.tensors[x]
    if (indices < 0).any():
        zero = writer.constant(np.zeros((1, 1, *info.shape[2:])), np.float32, y)
        x = writer.emit("Concat", [x, zero], f"{y}#extended", {"axis": 1})
        indices = np.where(indices < 0, info.shape[1], indices)
    writer.emit("Gather", [x, writer.constant(indices, np.int64, y)], y, {"axis": 1})
    return True


def _pool(writer: _Writer, node: Node, y: str) -> bool:
    added = node.attrs.get("ceil_pads", [0, 0, 0, 0])
    if not any(added):
        return False
    attrs = {
        k: v for k, v in node.attrs.items() if k not in ("ceil_pads", "dilations" if node.op == "AveragePool" else "")
    }
    attrs |= {"pads": [p - a for p, a in zip(attrs["pads"], added, strict=True)], "ceil_mode": 1}
    writer.emit(node.op, node.inputs, y, attrs)
    return True


def _resize(writer: _Writer, node: Node, y: str) -> bool:
    if "sizes" not in node.attrs:
        return False
    attrs = {k: v for k, v in node.attrs.items() if k not in ("sizes", "scales")}
    shape = writer.graph.tensors[node.inputs[0]].shape
    scales = np.asarray([1.0, 1.0, *node.attrs["scales"]], np.float32)
    if [int(np.floor(np.float32(s) * np.float32(d))) for s, d in zip(scales[2:], shape[2:], strict=True)] == list(
        node.attrs["sizes"]
    ):
        writer.emit("Resize", [node.inputs[0], "", writer.constant(scales, np.float32, y)], y, attrs)
    else:
        sizes = writer.constant([*shape[:2], *node.attrs["sizes"]], np.int64, y)
        writer.emit("Resize", [node.inputs[0], "", "", sizes], y, attrs)
    return True


_SPECIAL: dict[str, Callable[[_Writer, Node, str], bool]] = {
    "Affine": _affine,
    "ChannelGather": _channel_gather,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "Resize": _resize,
}
