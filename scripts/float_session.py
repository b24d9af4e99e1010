"""A float run of any ONNX model: ONNX Runtime for what it knows, an operator's own `reference` for custom domains.

The graph is cut at its custom nodes. Each piece between them is one ONNX Runtime session, so that a model without custom operators
is exactly one session. Any intermediate tensor can be asked for by its ONNX name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.onnx_nodes import attributes, operator_name
from npuforge.hw_kernels.operator import find

STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "com.microsoft")


class FloatSession:
    """inputs, outputs: names in the model's order. `run` gives the outputs and what else was `wanted`."""

    def __init__(
        self,
        model: str | Path | onnx.ModelProto,
        *,
        wanted: Sequence[str] = (),
        threads: int = 0,
        providers: Sequence[str] | None = None,
    ) -> None:
        self._name = "model" if isinstance(model, onnx.ModelProto) else str(model)
        proto = model if isinstance(model, onnx.ModelProto) else _load(model)
        stored = {i.name for i in proto.graph.initializer}
        self.inputs = [v.name for v in proto.graph.input if v.name not in stored]
        self.outputs = [v.name for v in proto.graph.output]
        self.wanted = list(dict.fromkeys([*self.outputs, *wanted]))
        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = threads
        self._options.log_severity_level = 3
        self._providers = list(providers or ["CPUExecutionProvider"])
        self._constants = {i.name: onnx.numpy_helper.to_array(i) for i in proto.graph.initializer}
        self._steps: list[onnxruntime.InferenceSession | Node] = []
        available = set(self.inputs) | set(self._constants)
        waiting = list(proto.graph.node)
        while waiting:
            piece, waiting = _ready(waiting, available)
            if piece:
                self._steps.append(self._session(proto, piece, waiting))
            custom = [n for n in waiting if _is_custom(n) and all(not i or i in available for i in n.input)]
            if not piece and not custom:
                missing = next(i for n in waiting for i in n.input if i and i not in available)
                raise ModelError(f"{self._name}: tensor {missing!r} is used but nothing produces it")
            for node in custom:
                self._steps.append(_custom_node(node))
                available |= set(node.output)
            waiting = [n for n in waiting if n not in custom]
        missing_names = [n for n in self.wanted if n not in available]
        if missing_names:
            raise ModelError(f"{self._name}: there is no tensor called {missing_names[0]!r}")

    @property
    def provider(self) -> str:
        """The execution provider of the largest part."""
        sessions = [s for s in self._steps if not isinstance(s, Node)]
        return str(sessions[0].get_providers()[0]) if sessions else "numpy"

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All wanted tensors by name. Results of custom operators are float32, as their ONNX type says."""
        values: dict[str, np.ndarray] = dict(self._constants)
        values.update(feeds)
        for step in self._steps:
            if isinstance(step, Node):
                op = find(step.op)
                assert op is not None
                results = op.reference(step, [values[i] for i in step.inputs])
                values.update({name: np.asarray(r, np.float32) for name, r in zip(step.outputs, results, strict=False)})
            else:
                names = [o.name for o in step.get_outputs()]
                given = {i.name: values[i.name] for i in step.get_inputs()}
                values.update(zip(names, step.run(names, given), strict=True))
        return {name: values[name] for name in self.wanted}

    def _session(
        self, proto: onnx.ModelProto, piece: list[onnx.NodeProto], later: list[onnx.NodeProto]
    ) -> onnxruntime.InferenceSession:
        """A session over `piece`; its outputs are what later nodes or the caller need of it."""
        made = {o for n in piece for o in n.output if o}
        used = {i for n in piece for i in n.input if i}
        needed = [o for o in made if o in self.wanted or any(o in n.input for n in later)]
        known = {v.name: v for v in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)}
        borrowed = sorted(used - made - set(self._constants))
        inputs = [known.get(n) or onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in borrowed]
        outputs = [known.get(n) or onnx.ValueInfoProto(name=n) for n in sorted(needed)]
        constants = [i for i in proto.graph.initializer if i.name in used]
        graph = onnx.helper.make_graph(piece, "piece", inputs, outputs, constants)
        model = onnx.helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
        model.functions.extend(proto.functions)
        try:
            return onnxruntime.InferenceSession(model.SerializeToString(), self._options, providers=self._providers)
        except Exception as error:  # ONNX Runtime has no common base of its exceptions
            raise ModelError(f"{self._name}: ONNX Runtime cannot load it: {' '.join(str(error).split())}") from error


def _load(path: str | Path) -> onnx.ModelProto:
    try:
        return onnx.load(str(path))
    except Exception as error:  # protobuf's, onnx's and the system's errors alike
        raise ModelError(f"{path}: cannot be read as ONNX: {' '.join(str(error).split())}") from error


def _is_custom(node: onnx.NodeProto) -> bool:
    return node.domain not in STANDARD_DOMAINS


def _ready(waiting: list[onnx.NodeProto], available: set[str]) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Standard nodes whose inputs are known, in order, and the rest. `available` grows by their outputs."""
    piece: list[onnx.NodeProto] = []
    rest: list[onnx.NodeProto] = []
    for node in waiting:  # ONNX graphs are in topological order
        captured = {i for a in node.attribute for n in a.g.node for i in n.input} - {
            o for a in node.attribute for n in a.g.node for o in n.output
        }
        blocked = captured & {o for w in rest for o in w.output}
        if not _is_custom(node) and not blocked and all(not i or i in available for i in node.input):
            piece.append(node)
            available |= set(node.output)
        else:
            rest.append(node)
    return piece, rest


def _custom_node(proto: onnx.NodeProto) -> Node:
    op = operator_name(proto.domain, proto.op_type)
    if find(op) is None:
        raise UnsupportedError(
            f"node '{proto.name}': neither ONNX Runtime nor the kit knows the operator '{op}'; register it (entry-point group npuforge.ops)"
        )
    return Node(proto.name, op, list(proto.input), list(proto.output), attributes(proto), sources=[proto.name])
