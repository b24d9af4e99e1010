"""Float execution of networks: the file itself (`FloatReference`) and the graph after fuse (`GraphExecutor`), both in ONNX Runtime.

A node of a domain that ONNX Runtime does not know is run by the operator's own `reference`: the model is split around it. Any tensor can be asked for by
name. `graph_to_onnx` writes a `Graph` back as ONNX, fused activations expanded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from npuforge.compile.ir.errors import ModelError, UnsupportedError, UsageError
from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.compile.steps.import_onnx import prepare_model
from npuforge.compile.steps.infer import custom_activation, find_operator
from npuforge.compile.steps.onnx_nodes import STANDARD, attributes, make_node, operator_name, split_operator, value_info
from npuforge.hw_kernels.activations import apply_activation

Feeds = Mapping[str, np.ndarray]
_GPU = (
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "DmlExecutionProvider",
)
_KNOWN_DOMAINS = (*STANDARD, "ai.onnx.ml", "com.microsoft")


def default_providers() -> list[str]:
    """A GPU provider when ONNX Runtime has one (TensorRT is left to the user), then the CPU."""
    available = onnxruntime.get_available_providers()
    return [p for p in _GPU[1:] if p in available] + ["CPUExecutionProvider"]


# ---- running a model, split around custom nodes
@dataclass
class _Segment:
    """A run of nodes for one session, or one custom node."""

    inputs: list[str]
    outputs: list[str]
    session: onnxruntime.InferenceSession | None
    node: Node | None = None


class OnnxRunner:
    """Runs an ONNX model and returns any of its tensors. `providers`: ONNX Runtime's names; `threads`: 0 leaves the number to it."""

    def __init__(
        self,
        model: onnx.ModelProto,
        wanted: Sequence[str] = (),
        providers: Sequence[str] | None = None,
        threads: int = 0,
    ) -> None:
        self.model = model
        self.wanted = list(dict.fromkeys([*wanted] or [v.name for v in model.graph.output]))
        self.inputs = {v.name: v for v in model.graph.input}
        self._constants = {i.name: i for i in model.graph.initializer}
        self._providers = list(providers) if providers is not None else default_providers()
        self._threads = threads
        known = set(self.inputs) | set(self._constants) | {t for n in model.graph.node for t in n.output}
        for name in self.wanted:
            if name not in known:
                raise UsageError(
                    f"the model has no tensor '{name}'; ask for an input, an output or the output of a node"
                )
        self._segments = self._split()

    @property
    def provider(self) -> str:
        """The execution provider in use, as ONNX Runtime reports it."""
        session = next((s.session for s in self._segments if s.session is not None), None)
        return session.get_providers()[0] if session is not None else "CPUExecutionProvider"

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """The wanted tensors for one set of inputs."""
        for name in self.inputs:
            if name not in feeds:
                raise UsageError(f"input '{name}' is missing; the model's inputs: {', '.join(self.inputs)}")
        values: dict[str, np.ndarray] = {
            name: _as_declared(np.asarray(feeds[name]), v) for name, v in self.inputs.items()
        }
        pending = {t: sum(t in s.inputs for s in self._segments) for s in self._segments for t in s.inputs}
        for segment in self._segments:
            if segment.session is not None:
                found = _run_session(segment.session, segment.outputs, {t: values[t] for t in segment.inputs})
            else:
                assert segment.node is not None
                found = self._custom(segment.node, values)
            values.update(zip(segment.outputs, found, strict=True))
            for name in segment.inputs:
                pending[name] -= 1
                if pending[name] == 0 and name not in self.wanted:
                    values.pop(name, None)
        return {t: values[t] if t in values else numpy_helper.to_array(self._constants[t]) for t in self.wanted}

    def _custom(self, node: Node, values: Feeds) -> list[np.ndarray]:
        inputs = [values[t] if t in values else numpy_helper.to_array(self._constants[t]) for t in node.inputs if t]
        operator = find_operator(node.op)
        if operator is not None:
            found = operator.reference(node, [v.astype(np.float64) if v.dtype.kind == "f" else v for v in inputs])
        elif (kind := custom_activation(node.op)) is not None:
            found = [apply_activation(inputs[0].astype(np.float64), Activation(kind))]
        else:
            raise UnsupportedError(
                f"node '{node.name}': no operator '{node.op}' is known; install the package that registers it"
            )
        return [np.asarray(v, np.float32) if np.asarray(v).dtype.kind == "f" else np.asarray(v) for v in found]

    def _split(self) -> list[_Segment]:
        graph = self.model.graph
        levels = _alternate(list(graph.node))
        segments: list[_Segment] = []
        for level in sorted(set(levels)):
            nodes = [n for n, found in zip(graph.node, levels, strict=True) if found == level]
            if nodes[0].domain not in _KNOWN_DOMAINS:
                for n in nodes:
                    node = Node(
                        n.name,
                        operator_name(n.domain, n.op_type),
                        list(n.input),
                        list(n.output),
                        attributes(n),
                        sources=[n.name],
                    )
                    inputs = [t for t in n.input if t and t not in self._constants]
                    segments.append(_Segment(inputs, list(n.output), None, node))
            else:
                later = {t for n, found in zip(graph.node, levels, strict=True) if found > level for t in n.input}
                segments.append(self._session(nodes, later))
        return segments

    def _session(self, nodes: list[onnx.NodeProto], later: set[str]) -> _Segment:
        written = {t for n in nodes for t in n.output if t}
        read = dict.fromkeys(t for n in nodes for t in n.input if t and t not in written)
        inputs = [t for t in read if t not in self._constants]
        outputs = [t for n in nodes for t in n.output if t and (t in later or t in self.wanted)]
        if not outputs:
            outputs = [nodes[-1].output[0]]
        model = helper.make_model(
            helper.make_graph(
                nodes,
                "segment",
                [self.inputs.get(t) or helper.make_tensor_value_info(t, onnx.TensorProto.FLOAT, None) for t in inputs],
                [onnx.ValueInfoProto(name=t) for t in outputs],
                [self._constants[t] for t in read if t in self._constants],
            ),
            opset_imports=list(self.model.opset_import),
            ir_version=min(self.model.ir_version, 10) if self.model.ir_version >= 4 else 4,
        )
        return _Segment(inputs, outputs, make_session(model, self._providers, self._threads))


def _alternate(nodes: list[onnx.NodeProto]) -> list[int]:
    """Level of each node such that a level is either all standard (even) or all custom (odd) and reads earlier levels only."""
    level_of: dict[str, int] = {}
    levels = []
    for node in nodes:
        parity = 0 if node.domain in _KNOWN_DOMAINS else 1
        level = max((level_of.get(t, 0) for t in node.input), default=0)
        if parity == 1:  # custom nodes run one by one, in order
            level = level if level % 2 == 1 else level + 1
        elif level % 2 == 1:
            level += 1
        levels.append(level)
        for name in node.output:
            level_of[name] = level
    return levels


def make_session(model: onnx.ModelProto, providers: Sequence[str], threads: int) -> onnxruntime.InferenceSession:
    """ONNX Runtime with the model, as every float run of the kit uses it. `threads`: 0 leaves the number to it. ModelError where it refuses."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=list(providers))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise ModelError(f"ONNX Runtime {onnxruntime.__version__} refuses the model: {first}") from error


def _as_declared(array: np.ndarray, value: onnx.ValueInfoProto) -> np.ndarray:
    """Real numbers in the precision that the model's input declares (half, double)."""
    code = value.type.tensor_type.elem_type
    if array.dtype.kind != "f" or code not in (
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.DOUBLE,
    ):
        return array
    return array.astype(onnx.helper.tensor_dtype_to_np_dtype(code), copy=False)


def _run_session(session: onnxruntime.InferenceSession, outputs: list[str], feeds: Feeds) -> list[np.ndarray]:
    try:
        found: list[np.ndarray] = session.run(outputs, feeds)
    except Exception as error:  # its exceptions share no base class
        first = (str(error).splitlines() or [""])[0]
        raise ModelError(f"ONNX Runtime {onnxruntime.__version__} cannot run the model: {first}") from error
    return found


class FloatReference:
    """The float meaning of an ONNX file, untouched by the compiler. `outputs`: tensors wanted besides the model's own outputs, by ONNX name."""

    def __init__(
        self,
        source: str | Path | onnx.ModelProto,
        shapes: dict[str, tuple[int, ...]] | None = None,
        providers: Sequence[str] | None = None,
        outputs: Iterable[str] = (),
        threads: int = 0,
    ) -> None:
        model = prepare_model(source, shapes)
        names = [v.name for v in model.graph.output]
        self._runner = OnnxRunner(model, [*names, *outputs], providers, threads)
        self.input_names = [v.name for v in model.graph.input]
        self.output_names = names

    @property
    def provider(self) -> str:
        """The execution provider in use."""
        return self._runner.provider

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """All wanted tensors for one set of inputs (in the file's own layout)."""
        return self._runner.run(feeds)


class GraphExecutor:
    """Float execution of a `Graph` (after fuse). `outputs`: tensors wanted, the graph's outputs if none; inputs are N, C, H, W as in the graph."""

    def __init__(
        self, graph: Graph, outputs: Iterable[str] = (), providers: Sequence[str] | None = None, threads: int = 0
    ) -> None:
        wanted = list(outputs) or list(graph.outputs)
        inner = [t for t in wanted if t not in graph.outputs and t not in graph.inputs]
        self._runner = OnnxRunner(graph_to_onnx(graph, inner), wanted, providers, threads)

    @property
    def provider(self) -> str:
        """The execution provider in use."""
        return self._runner.provider

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """All wanted tensors for one set of inputs."""
        return self._runner.run(feeds)


class NodesExecutor:
    """Runs some nodes of a `Graph` in ONNX Runtime on float values: the CPU partitions for the integer executor's `run_cpu`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._runners: dict[tuple[str, ...], OnnxRunner] = {}

    def __call__(self, nodes: list[Node], values: Feeds) -> dict[str, np.ndarray]:
        """All tensors that `nodes` (in order) write, from the float tensors known."""
        key = tuple(n.name for n in nodes)
        runner = self._runners.get(key)
        if runner is None:
            written = [t for n in nodes for t in n.outputs if t]
            constants = self._graph.constants
            read = dict.fromkeys(t for n in nodes for t in n.inputs if t and t not in written and t not in constants)
            part = replace(self._graph, nodes=nodes, inputs=list(read), outputs=written, partitions=[])
            runner = self._runners[key] = OnnxRunner(graph_to_onnx(part), written)
        return runner.run({t: np.asarray(values[t], np.float32) for t in runner.inputs})


# ---- Graph → ONNX
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
        return [numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in {**own, **self._constants}.items()]

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
        if kind in ("Relu", "Sigmoid", "Tanh", "Mish", "HardSwish"):
            self.emit(kind, [x], y)
        elif kind == "LeakyRelu":
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
