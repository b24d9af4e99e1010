"""One walk over the imported graph: constants are computed, static shapes of everything else inferred (ONNX's inference; custom operators by
their own `infer`). A dimension that only the data decide is -1, and an error that names the node where a convolution follows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from npuforge.compile.ir.errors import ModelError, NpuforgeError, UnsupportedError
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.steps.constant_grids import keep_grid
from npuforge.compile.steps.custom_nodes import refuse_malformed
from npuforge.compile.steps.onnx_nodes import infer_node, refuse_unknown_words, run_node, split_operator
from npuforge.compile.steps.rewrite import Editor
from npuforge.compile.steps.size_remedy import shape_remedy
from npuforge.hw_kernels import operator as operators
from npuforge.hw_kernels.activations import CURVES

OPEN = -1  # a dimension that only the data decide (boxes that survive NMS); allowed where no convolution follows
FOLD_LIMIT = 1 << 26  # elements: a larger constant is not written out
LARGEST_TENSOR = 1 << 34  # elements: no board holds it
_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}


def custom_activation(op: str) -> str | None:
    """The activation kind of a custom operator that the kit fuses (`com.example::CustomGELU`), None for any other."""
    domain, op_type = split_operator(op)
    affine = operators.find("Affine")
    return op_type if domain and op_type in CURVES and affine is not None and op in affine.onnx else None


def find_operator(op: str) -> operators.Op | None:
    """The registered operator called `op`, in the kit's vocabulary or by its ONNX name."""
    found = operators.find(op)
    if found is None and custom_activation(op) is None:
        return next((o for o in operators.registry().values() if op in o.onnx), None)
    return found


@dataclass
class Doubles:
    """Constants in double precision, as the file has them, by name, and the Casts to it: what is computed of them at import is, the graph has float32."""

    values: dict[str, np.ndarray] = field(default_factory=dict)
    casts: set[str] = field(default_factory=set)

    def run(self, graph: Graph, node: Node) -> list[np.ndarray]:
        """Outputs of a node whose inputs are all constants; those in double precision are kept."""
        exact = {t: self.values[t] for t in node.inputs if t in self.values}
        exact = {
            t: v for t, v in exact.items() if np.array_equal(v.astype(np.float32), graph.constants[t], equal_nan=True)
        }
        if not exact and node.name not in self.casts:
            return run_node(node, graph.constants, graph.opset)
        wide = replace(node, attrs=node.attrs | {"to": onnx.TensorProto.DOUBLE}) if node.name in self.casts else node
        with np.errstate(over="ignore"):  # what float32 does not hold is infinite
            found = run_node(wide, {**graph.constants, **exact}, graph.opset)
            for name, value in zip((t for t in node.outputs if t), found, strict=True):
                if value.dtype == np.float64:
                    self.values[name] = value
            return [v.astype(np.float32) if v.dtype == np.float64 else v for v in found]


def propagate(graph: Graph, doubles: Doubles | None = None) -> None:
    """Folds constant sub-graphs and fills `graph.tensors` with the static shape of every tensor that is left."""
    doubles = doubles or Doubles()
    for name, value in graph.constants.items():
        graph.tensors[name] = TensorInfo(name, value.shape, value.dtype.name)
    kept: list[Node] = []
    for node in _lowered(graph, _expand_softmax(graph)):
        values = _constant_outputs(graph, node, doubles)
        if values is None:
            _infer(graph, node)
            kept.append(node)
            continue
        _keep(graph, node, values)
        keep_grid(graph, node)
    graph.nodes = kept
    _refuse_open_convolutions(graph)
    _write_constant_outputs(graph)


def fill_shapes(graph: Graph) -> None:
    """`graph.tensors` of the tensors whose shape is known with every node left as it is; the others are absent. ModelError for a custom node that its
    operator refuses."""
    for name, value in graph.constants.items():
        graph.tensors[name] = TensorInfo(name, value.shape, value.dtype.name)
    for node in graph.nodes:
        known = all(t in graph.tensors and OPEN not in graph.tensors[t].shape for t in node.inputs if t)
        custom = find_operator(node.op) if split_operator(node.op)[0] else None
        if custom is not None:
            refuse_malformed(node, custom)
            if known:
                _infer(graph, node)
            continue
        values = None
        with contextlib.suppress(NpuforgeError):
            values = _constant_outputs(graph, node, Doubles())
            if values is None:
                _infer(graph, node)
        if values is not None:
            _keep(graph, node, values)


def _keep(graph: Graph, node: Node, values: list[np.ndarray]) -> None:
    """The node's outputs as constants."""
    for name, value in zip((t for t in node.outputs if t), values, strict=True):
        graph.constants[name] = value
        graph.tensors[name] = TensorInfo(name, value.shape, value.dtype.name)


def _write_constant_outputs(graph: Graph) -> None:
    """An output that does not depend on the input (anchors, a shape) is copied out by a node, as every output has one that writes it."""
    for name in dict.fromkeys(graph.outputs):
        if name not in graph.constants:
            continue
        value = f"{name}/constant"
        graph.constants[value] = graph.constants.pop(name)
        graph.tensors[value] = TensorInfo(value, graph.tensors[name].shape, graph.tensors[name].dtype)
        for node in graph.nodes:
            node.inputs = [value if t == name else t for t in node.inputs]
        graph.nodes.append(Node(f"{name}/copy", "Identity", [value], [name], sources=[f"{name}/copy"]))


def _refuse_open_convolutions(graph: Graph) -> None:
    editor = Editor(graph)
    region = editor.reaches_convolution()
    for node in graph.nodes:
        if id(node) in region and any(OPEN in graph.tensors[t].shape for t in node.outputs if t):
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}): the shape of its output {graph.tensors[node.outputs[0]].shape} depends on the data and a "
                "convolution follows; export the network with static shapes in front of its convolutions"
            )


def _constant_outputs(graph: Graph, node: Node, doubles: Doubles) -> list[np.ndarray] | None:
    domain, op = split_operator(node.op)
    if domain:
        return None
    if op in ("Shape", "Size") and node.inputs[0] in graph.tensors and OPEN not in graph.tensors[node.inputs[0]].shape:
        shape = graph.tensors[node.inputs[0]].shape
        if op == "Size":
            return [np.asarray(math.prod(shape), np.int64)]
        return [np.asarray(shape[node.attrs.get("start", 0) : node.attrs.get("end", len(shape))], np.int64)]
    if op in _RANDOM or any(t and t not in graph.constants for t in node.inputs):
        return None
    try:
        _infer(graph, node)
        if any(math.prod(graph.tensors[t].shape) > FOLD_LIMIT for t in node.outputs if t):
            return None
    except NpuforgeError:
        pass  # no schema inference for this one; it is run below, and refused there if it cannot be
    try:
        return doubles.run(graph, node)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise ModelError(
            f"node '{node.name}' ({node.op}) has constant inputs and cannot be evaluated: {first}; export the network again"
        ) from error


def _infer(graph: Graph, node: Node) -> None:
    for name in node.inputs:
        if name and name not in graph.tensors:
            raise ModelError(
                f"node '{node.name}' ({node.op}) reads '{name}', which nothing before it writes; export the network again"
            )
    domain, _ = split_operator(node.op)
    if domain:
        _infer_custom(graph, node)
        return
    refuse_unknown_words(node)
    try:
        found = infer_node(node, graph.tensors, graph.constants, graph.opset)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        shapes = ", ".join(f"{t} {list(graph.tensors[t].shape)}" for t in node.inputs if t)
        raise ModelError(
            f"node '{node.name}' ({node.op}): shapes do not fit ({first}; inputs: {shapes}); {shape_remedy(node, graph)}"
        ) from error
    for name, (shape, dtype) in zip(node.outputs, found, strict=True):
        if not name:
            continue
        if shape is None:
            shape = _own_shape(graph, node, node.outputs.index(name))
        if shape is None:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}): not even the number of dimensions of '{name}' is known before the data; "
                "export the network without this node (post-processing is done by the runtime's head)"
            )
        if any(d is not None and d < 0 for d in shape):
            raise ModelError(
                f"node '{node.name}' ({node.op}): its output '{name}' would have the shape {list(shape)}; "
                "the sizes of its inputs and attributes do not fit, export the network again"
            )
        if math.prod(d or 1 for d in shape) > LARGEST_TENSOR:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}): its output '{name}' would have the shape {list(shape)}, more than {LARGEST_TENSOR} elements; "
                "give a smaller --shape, or export the network again"
            )
        graph.tensors[name] = TensorInfo(name, tuple(OPEN if d is None else int(d) for d in shape), dtype)
    if node.op == "Reshape":
        _check_reshape(graph, node)
    if node.op == "Transpose":
        _check_transpose(graph, node)


def _check_transpose(graph: Graph, node: Node) -> None:
    rank = len(graph.tensors[node.inputs[0]].shape)
    perm = node.attrs.get("perm")
    if perm and sorted(perm) != list(range(rank)):
        raise ModelError(
            f"node '{node.name}' (Transpose): attribute perm is {perm}, expected an order of the {rank} dimensions of its input; export it again"
        )


def _check_reshape(graph: Graph, node: Node) -> None:
    """ModelError where a Reshape changes the number of elements: the usual sign of a size that the exporter wrote into the graph."""
    before, after = (graph.tensors[t].shape for t in (node.inputs[0], node.outputs[0]))
    if OPEN not in (*before, *after) and math.prod(before) != math.prod(after):
        raise ModelError(
            f"node '{node.name}' (Reshape): attribute or input 'shape' asks for {list(after)}, its input is {list(before)}: the file holds this size "
            "for another input size; give --shape the size that the model was exported for, or export it with dynamic height and width"
        )


def _own_shape(graph: Graph, node: Node, position: int) -> tuple[int, ...] | None:
    """The registered operator's word where ONNX's inference has none."""
    operator = find_operator(node.op)
    shapes = [graph.tensors[t].shape for t in node.inputs if t]
    if operator is None or operator.shape_from_values or any(OPEN in s for s in shapes):
        return None
    try:
        return operator.infer(node, shapes)[position]
    except (NpuforgeError, ValueError, KeyError, IndexError, TypeError):
        return None


def _infer_custom(graph: Graph, node: Node) -> None:
    operator = find_operator(node.op)
    if operator is None and custom_activation(node.op) is not None:
        graph.tensors[node.outputs[0]] = TensorInfo(node.outputs[0], graph.tensors[node.inputs[0]].shape)
        return
    if operator is None:
        raise UnsupportedError(
            "; ".join(
                (
                    f"node '{node.name}': no operator '{node.op}' is known; add an operator folder (hw_kernels/ops/<op>/op.py) or install the "
                    "package that registers it under the entry-point group 'npuforge.ops'",
                    *operators.refused_packages(),
                )
            )
        )
    inferred = _asked(operator, node, graph)
    dtypes = operator.output_types(node, [graph.tensors[t].dtype for t in node.inputs if t])
    for name, shape, dtype in zip(node.outputs, inferred, dtypes, strict=False):
        if name:
            graph.tensors[name] = TensorInfo(name, tuple(int(d) for d in shape), dtype)


def _asked(operator: operators.Op, node: Node, graph: Graph) -> list[tuple[int, ...]]:
    """The operator's own rule of shapes; whatever it throws is about the node."""
    shapes = [graph.tensors[t].shape for t in node.inputs if t]
    try:
        return operator.infer(node, shapes)
    except NpuforgeError:
        raise
    except Exception as error:
        raise ModelError(
            f"node '{node.name}' ({node.op}): shapes {shapes} are refused by the operator: {error}; export the network again, or give another --shape"
        ) from error


def _lowered(graph: Graph, nodes: Iterator[Node]) -> Iterator[Node]:
    """Yields the nodes in order, custom operators in the simpler ones that they lower to."""
    for node in nodes:
        operator = find_operator(node.op) if split_operator(node.op)[0] else None
        if operator is not None:
            refuse_malformed(node, operator)
            lowers = type(operator).lower is not operators.Op.lower
            if lowers and all(t in graph.tensors and OPEN not in graph.tensors[t].shape for t in node.inputs if t):
                _asked(operator, node, graph)  # `lower` relies on what this refuses
        lowered = operator.lower(node, graph) if operator is not None else None
        if lowered is None:
            yield node
            continue
        for part in lowered:
            for name in part.inputs:
                if name in graph.constants and name not in graph.tensors:
                    value = graph.constants[name]
                    graph.tensors[name] = TensorInfo(name, value.shape, value.dtype.name)
            yield part


def _expand_softmax(graph: Graph) -> Iterator[Node]:
    """Yields the nodes in order; a Softmax of an operator set before 13 (over the flattened tail) in today's form, when its shape is known."""
    for node in graph.nodes:
        if "flatten" not in node.attrs:
            yield node
            continue
        shape = graph.tensors[node.inputs[0]].shape
        axis = node.attrs.pop("flatten") % max(len(shape), 1)
        wide = [a for a in range(axis, len(shape)) if shape[a] != 1]
        if len(wide) <= 1:
            node.attrs["axis"] = wide[0] if wide else axis
            yield node
            continue
        source, target = node.inputs[0], node.outputs[0]
        flat, back = f"{target}/flat", f"{target}/shape"
        graph.constants[flat] = np.asarray([math.prod(shape[:axis]), math.prod(shape[axis:])], np.int64)
        graph.constants[back] = np.asarray(shape, np.int64)
        for name in (flat, back):
            graph.tensors[name] = TensorInfo(name, graph.constants[name].shape, "int64")
        yield Node(f"{node.name}/flatten", "Reshape", [source, flat], [f"{target}/in"], {}, sources=list(node.sources))
        node.inputs, node.outputs, node.attrs["axis"] = [f"{target}/in"], [f"{target}/out"], 1
        yield node
        yield Node(
            f"{node.name}/unflatten", "Reshape", [f"{target}/out", back], [target], {}, sources=list(node.sources)
        )
