"""Quantised operators (QLinearConv, com.microsoft's QLinear…) become float operators between DequantizeLinear and QuantizeLinear.

Operators that only move integers (MaxPool, Concat, Reshape … on int8 tensors) get the same pair around them, so that `dequantise` sees one form. Dynamically
quantised ones (DynamicQuantizeLinear with ConvInteger or MatMulInteger) measure their scales at run time: their weights become float again. Runs before
the operator set is raised and shapes are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.compile.ir.graph import Graph, Node

MICROSOFT = "com.microsoft::"
MOVES_INTEGERS = (
    *("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Concat", "Gather"),
    *("Resize", "Upsample", "DepthToSpace", "SpaceToDepth", "Identity", "Expand", "Tile"),
)


class DynamicQuantisationWarning(UserWarning):
    """The model chose its activations' scales at run time; it is treated as a float model."""


def expand_quantised(graph: Graph) -> list[Warning]:
    """Rewrites `graph.nodes` (in topological order, as ONNX has them); what the user should know about it."""
    expander = _Expander(graph)
    for node in graph.nodes:
        expander.visit(node)
    graph.nodes = expander.nodes
    if not expander.dynamic:
        return []
    return [
        DynamicQuantisationWarning(
            f"the model is quantised dynamically: {expander.dynamic} integer convolutions or products (first: '{expander.first_dynamic}') "
            "have float weights again; calibration images choose the scales"
        )
    ]


class _Expander:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.grids: dict[str, tuple[str, str]] = {}  # integer tensor -> names of its scale and zero point
        self.float_of: dict[str, str] = {}  # output of a DynamicQuantizeLinear -> the float tensor
        self.dynamic = 0
        self.first_dynamic = ""
        self._names = {n.name for n in graph.nodes}
        self._tensors = {t for n in graph.nodes for t in (*n.inputs, *n.outputs)} | set(graph.constants)

    # ---- building
    def fresh(self, wanted: str, taken: set[str]) -> str:
        name, count = wanted, 1
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        taken.add(name)
        return name

    def constant(self, wanted: str, value: np.ndarray) -> str:
        name = self.fresh(wanted, self._tensors)
        self.graph.constants[name] = value
        return name

    def emit(
        self,
        origin: Node,
        label: str,
        op: str,
        inputs: list[str],
        output: str = "",
        attrs: dict[str, Any] | None = None,
    ) -> str:
        """A node made from `origin` (with its name if `label` is empty); its output, named freshly where no name is given."""
        name = self.fresh(f"{origin.name}/{label}", self._names) if label else origin.name
        target = output or self.fresh(f"{origin.outputs[0]}/{label or 'real'}", self._tensors)
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        self.nodes.append(Node(name, op, inputs, [target], attrs or {}, sources=[origin.name]))
        return target

    def real(self, origin: Node, label: str, tensor: str, scale: str, zero: str, axis: int | None = None) -> str:
        """Float form of an integer tensor. `axis`: of a scale per channel."""
        attrs = {} if axis is None or self.size(scale) == 1 else {"axis": axis}
        return self.emit(origin, label, "DequantizeLinear", [tensor, scale, zero], attrs=attrs)

    def integer(self, origin: Node, tensor: str, scale: str, zero: str, output: str) -> None:
        """QuantizeLinear at the end of `origin`."""
        self.emit(origin, "quantise", "QuantizeLinear", [tensor, scale, zero], output)
        self.grids[output] = (scale, zero)

    def size(self, tensor: str) -> int:
        return int(self.graph.constants[tensor].size) if tensor in self.graph.constants else 1

    def known(self, node: Node, position: int, what: str) -> np.ndarray:
        """The constant at an input; UnsupportedError where it is computed."""
        name = node.inputs[position] if position < len(node.inputs) else ""
        value = self.graph.constants.get(name)
        if value is None:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}): its {what} '{name}' is computed at run time, expected a constant; "
                "quantise the model statically, or export the float model"
            )
        return value

    # ---- one node
    def visit(self, node: Node) -> None:
        op = node.op.removeprefix(MICROSOFT)
        rule = _RULES.get(op)
        if op in ("QuantizeLinear", "DequantizeLinear"):
            node.op = op
            if op == "QuantizeLinear":
                self.grids[node.outputs[0]] = (node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else "")
            self.nodes.append(node)
        elif rule is not None:
            node.inputs += [""] * (9 - len(node.inputs))
            if node.attrs.pop("channels_last", 0):
                self.grids.setdefault(node.inputs[0], (node.inputs[1], node.inputs[2]))
                self._channels_first(node, rule)
            else:
                rule(self, node)
        elif op == "NhwcMaxPool" and node.inputs[0] in self.grids:
            node.op = "MaxPool"
            self._channels_first(node, _Expander._moves)
        elif node.op in MOVES_INTEGERS and self._moves(node):
            pass
        else:
            self.nodes.append(node)

    def _channels_first(self, node: Node, rule: Callable[[_Expander, Node], object]) -> None:
        """A node on [N, H, W, C] (what ONNX Runtime's layout optimisation writes): the same on [N, C, H, W] between transposes of the integers."""
        x, y = node.inputs[0], node.outputs[0]
        inner = [self.fresh(f"{t}/channels_first", self._tensors) for t in (x, y)]
        for source, target, perm in ((x, inner[0], [0, 3, 1, 2]), (inner[1], y, [0, 2, 3, 1])):
            if source != x:
                node.inputs[0], node.outputs = inner[0], [inner[1]]
                rule(self, node)
            name = self.fresh(f"{node.name}/transpose", self._names)
            self._moves(Node(name, "Transpose", [source], [target], {"perm": perm}, sources=[node.name]))

    def _moves(self, node: Node) -> bool:
        count = len(node.inputs) if node.op == "Concat" else 1
        grids = {self.grids.get(t) for t in node.inputs[:count]}
        if len(grids) != 1 or None in grids:
            return False
        grid = grids.pop()
        assert grid is not None
        inputs = [self.real(node, f"dequantise{i}", t, *grid) for i, t in enumerate(node.inputs[:count])]
        outputs = [self.fresh(f"{t}/real", self._tensors) if t else "" for t in node.outputs]
        self.nodes.append(
            Node(node.name, node.op, [*inputs, *node.inputs[count:]], outputs, node.attrs, sources=node.sources)
        )
        for tensor, target in zip(outputs, node.outputs, strict=True):
            if target:
                self.integer(node, tensor, *grid, target)
        return True

    # ---- rules
    def convolution(self, node: Node) -> None:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = node.inputs[:9]
        inputs = [self.real(node, "x", x, x_scale, x_zero), self.real(node, "w", w, w_scale, w_zero, 0)]
        if bias:
            inputs.append(self._bias(node, bias, 1, 4, 1.0))
        real = self.emit(node, "", "Conv", inputs, attrs=node.attrs)
        self.integer(node, real, y_scale, y_zero, node.outputs[0])

    def _bias(self, node: Node, bias: str, first: int, second: int, alpha: float) -> str:
        """int32 bias in units of the product of the two scales."""
        unit = np.asarray(
            self.known(node, first, "scale").astype(np.float64) * self.known(node, second, "scale") * alpha
        )
        shape = () if unit.size == 1 else (-1,)
        name = self.constant(f"{node.outputs[0]}/bias_scale", unit.astype(np.float32).reshape(shape))
        return self.real(node, "bias", bias, name, "", 0)

    def product(self, node: Node) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs[:8]
        inputs = [self.real(node, "a", a, a_scale, a_zero), self.real(node, "b", b, b_scale, b_zero, 1)]
        self.integer(node, self.emit(node, "", "MatMul", inputs), y_scale, y_zero, node.outputs[0])

    def gemm(self, node: Node) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = node.inputs[:9]
        attrs = {k: v for k, v in node.attrs.items() if k in ("alpha", "transA", "transB")}
        axis = 0 if attrs.get("transB", 0) else 1
        inputs = [self.real(node, "a", a, a_scale, a_zero), self.real(node, "b", b, b_scale, b_zero, axis)]
        if c:
            inputs.append(self._bias(node, c, 1, 4, float(attrs.get("alpha", 1.0))))
        if not y_scale:
            self.emit(node, "", "Gemm", inputs, node.outputs[0], attrs)
            return
        real = self.emit(node, "", "Gemm", inputs, attrs=attrs)
        self.integer(node, real, y_scale, y_zero, node.outputs[0])

    def two_operands(self, node: Node) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs[:8]
        op = node.op.removeprefix(MICROSOFT).removeprefix("QLinear")
        inputs = [self.real(node, "a", a, a_scale, a_zero), self.real(node, "b", b, b_scale, b_zero)]
        self.integer(node, self.emit(node, "", op, inputs), y_scale, y_zero, node.outputs[0])

    def one_operand(self, node: Node) -> None:
        x, x_scale, x_zero, y_scale, y_zero = node.inputs[:5]
        op = node.op.removeprefix(MICROSOFT).removeprefix("QLinear")
        attrs = {k: v for k, v in node.attrs.items() if k != "opset"}
        inputs = [self.real(node, "x", x, x_scale, x_zero)]
        if op == "ReduceMean" and self.graph.opset >= 18 and "axes" in attrs:
            inputs.append(self.constant(f"{node.outputs[0]}/axes", np.asarray(attrs.pop("axes"), np.int64)))
        self.integer(node, self.emit(node, "", op, inputs, attrs=attrs), y_scale, y_zero, node.outputs[0])

    def concat(self, node: Node) -> None:
        given = [t for t in node.inputs if t]
        if len(given) < 5 or len(given) % 3 != 2:
            raise ModelError(
                f"node '{node.name}' ({node.op}): {len(given)} inputs, expected the output's scale and zero point and three for every tensor joined; "
                "quantise the model again"
            )
        y_scale, y_zero = given[:2]
        triples = zip(given[2::3], given[3::3], given[4::3], strict=True)
        inputs = [self.real(node, f"x{i}", *triple) for i, triple in enumerate(triples)]
        real = self.emit(node, "", "Concat", inputs, attrs=node.attrs)
        self.integer(node, real, y_scale, y_zero, node.outputs[0])

    # ---- dynamic
    def dynamic_scale(self, node: Node) -> None:
        """y = x with scale 1 and zero point 0: what follows multiplies by the scale."""
        self.emit(node, "", "Identity", [node.inputs[0]], node.outputs[0])
        self.float_of[node.outputs[0]] = node.inputs[0]
        self.graph.constants[node.outputs[1]] = np.ones((), np.float32)
        if len(node.outputs) > 2 and node.outputs[2]:
            self.graph.constants[node.outputs[2]] = np.zeros((), np.uint8)

    def _centred(self, node: Node, weight: int, zero: int, columns: bool) -> np.ndarray:
        value = self.known(node, weight, "weights").astype(np.float32)
        if not node.inputs[zero]:
            return value
        shift = self.known(node, zero, "zero point").astype(np.float32)
        if shift.size > 1 and not columns:
            shift = shift.reshape(-1, *[1] * (value.ndim - 1))
        return np.asarray(value - (shift.reshape(-1) if shift.size > 1 and columns else shift), np.float32)

    def _float_input(self, node: Node, zero: int) -> str:
        x = node.inputs[0]
        if x in self.float_of:
            return self.float_of[x]
        one = self.constant(f"{node.outputs[0]}/one", np.ones((), np.float32))
        return self.real(node, "x", x, one, node.inputs[zero])

    def _count(self, node: Node) -> None:
        self.dynamic += 1
        self.first_dynamic = self.first_dynamic or node.name

    def integer_convolution(self, node: Node) -> None:
        weight = self.constant(f"{node.outputs[0]}/weight", self._centred(node, 1, 3, False))
        self.emit(node, "", "Conv", [self._float_input(node, 2), weight], node.outputs[0], node.attrs)
        self._count(node)

    def integer_product(self, node: Node) -> None:
        weight = self.constant(f"{node.outputs[0]}/weight", self._centred(node, 1, 3, True))
        self.emit(node, "", "MatMul", [self._float_input(node, 2), weight], node.outputs[0])
        self._count(node)

    def product_to_float(self, node: Node) -> None:
        """MatMulIntegerToFloat(A, B, a_scale, b_scale, a_zero, b_zero, bias)"""
        weight = self._centred(node, 1, 5, True) * self.known(node, 3, "scale").astype(np.float32)
        name = self.constant(f"{node.outputs[0]}/weight", np.asarray(weight, np.float32))
        if node.inputs[0] in self.float_of:
            x = self.float_of[node.inputs[0]]
        else:
            x = self.real(node, "x", node.inputs[0], node.inputs[2], node.inputs[4])
        self._float_product(node, x, name, node.inputs[6])

    def dynamic_product(self, node: Node) -> None:
        """DynamicQuantizeMatMul(A, B, b_scale, b_zero, bias)"""
        weight = self._centred(node, 1, 3, True) * self.known(node, 2, "scale").astype(np.float32)
        name = self.constant(f"{node.outputs[0]}/weight", np.asarray(weight, np.float32))
        self._float_product(node, node.inputs[0], name, node.inputs[4])

    def _float_product(self, node: Node, x: str, weight: str, bias: str) -> None:
        real = self.emit(node, "", "MatMul", [x, weight], "" if bias else node.outputs[0])
        if bias:
            self.emit(node, "bias", "Add", [real, bias], node.outputs[0])
        self._count(node)


_RULES: dict[str, Callable[[_Expander, Node], None]] = {
    "QLinearConv": _Expander.convolution,
    "QLinearMatMul": _Expander.product,
    "QGemm": _Expander.gemm,
    "QLinearAdd": _Expander.two_operands,
    "QLinearMul": _Expander.two_operands,
    "QLinearConcat": _Expander.concat,
    **{
        f"QLinear{op}": _Expander.one_operand
        for op in ("Sigmoid", "LeakyRelu", "GlobalAveragePool", "AveragePool", "Softmax", "ReduceMean")
    },
    "DynamicQuantizeLinear": _Expander.dynamic_scale,
    "ConvInteger": _Expander.integer_convolution,
    "MatMulInteger": _Expander.integer_product,
    "MatMulIntegerToFloat": _Expander.product_to_float,
    "DynamicQuantizeMatMul": _Expander.dynamic_product,
}
