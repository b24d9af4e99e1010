"""Runs an ONNX model in ONNX Runtime, split around nodes of domains that it does not know: those are run by the operator's own `reference`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from npuforge.compile.ir.errors import ModelError, UnsupportedError, UsageError
from npuforge.compile.ir.graph import Activation, Node
from npuforge.compile.steps.infer import custom_activation, find_operator
from npuforge.compile.steps.onnx_nodes import STANDARD, attributes, operator_name
from npuforge.hw_kernels.activations import apply_activation
from npuforge.hw_kernels.bindings.model_types import tensor_types

Feeds = Mapping[str, np.ndarray]
_GPU = (
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "DmlExecutionProvider",
)
OPERATOR_DOMAINS = (*STANDARD, "ai.onnx.ml", "com.microsoft")


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
        self._types: dict[str, str] = {}
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
            for name in dict.fromkeys(segment.inputs):  # an operator may read a tensor twice
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
        if max(levels, default=0) > 0:
            self._types = tensor_types(self.model)
            custom = {t for n in graph.node if n.domain not in OPERATOR_DOMAINS for t in n.output}
            for name in custom & self._types.keys():  # `_custom` gives real numbers as float32
                self._types[name] = "float32" if np.dtype(self._types[name]).kind == "f" else self._types[name]
        segments: list[_Segment] = []
        for level in sorted(set(levels)):
            nodes = [n for n, found in zip(graph.node, levels, strict=True) if found == level]
            if nodes[0].domain not in OPERATOR_DOMAINS:
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
                [self.inputs.get(t) or self._between(t) for t in inputs],
                [onnx.ValueInfoProto(name=t) for t in outputs],
                [self._constants[t] for t in read if t in self._constants],
            ),
            opset_imports=list(self.model.opset_import),
            ir_version=min(self.model.ir_version, 10) if self.model.ir_version >= 4 else 4,
        )
        return _Segment(inputs, outputs, make_session(model, self._providers, self._threads))

    def _between(self, tensor: str) -> onnx.ValueInfoProto:
        """A tensor that goes from one segment to another; float32 where nobody knows better."""
        dtype = np.dtype(self._types.get(tensor, "float32"))
        return helper.make_tensor_value_info(tensor, helper.np_dtype_to_tensor_dtype(dtype), None)


def _alternate(nodes: list[onnx.NodeProto]) -> list[int]:
    """Level of each node such that a level is either all standard (even) or all custom (odd) and reads earlier levels only."""
    level_of: dict[str, int] = {}
    levels = []
    for node in nodes:
        parity = 0 if node.domain in OPERATOR_DOMAINS else 1
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
