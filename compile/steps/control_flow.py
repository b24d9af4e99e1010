"""If and Loop whose condition and trip count are constants are written out; the import step does this before the file becomes a `Graph`.

What depends on the data stays and is refused by name (`onnx_nodes.attributes`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuforge.compile.ir.errors import ModelError, UnsupportedError

MOST_NODES = 20_000  # that unrolled loops may add


def write_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without If and Loop nodes of constant condition and trip count, nested ones included; the model itself if it has none."""
    if not any(n.op_type in ("If", "Loop") for n in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    while True:
        writer = _Writer(result.graph, opset)
        nodes = [made for node in result.graph.node for made in writer.expand(node)]
        del result.graph.node[:]
        result.graph.node.extend(nodes)
        result.graph.initializer.extend(writer.added)
        if not writer.changed:
            return result


class _Writer:
    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self.constants = {i.name: i for i in graph.initializer}
        self.constants |= {
            n.output[0]: a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"
        }
        self.opset = opset
        self.added: list[onnx.TensorProto] = []
        self.changed = False

    def value(self, name: str) -> np.ndarray | None:
        """The constant called `name`."""
        found = self.constants.get(name)
        return numpy_helper.to_array(found) if found is not None else None

    def expand(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """The node, or what it is written out as."""
        graphs = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
        if node.op_type == "If" and {"then_branch", "else_branch"} <= set(graphs):
            condition = self.value(node.input[0])
            if condition is not None and condition.size == 1:
                self.changed = True
                yield from self._branch(node, graphs["then_branch" if condition.reshape(-1)[0] else "else_branch"])
                return
        if node.op_type == "Loop" and "body" in graphs:
            trips = self._trips(node, graphs["body"])
            if trips is not None:
                self.changed = True
                yield from self._loop(node, graphs["body"], trips)
                return
        yield node

    def _constant(self, name: str, value: np.ndarray) -> str:
        tensor = numpy_helper.from_array(value, name)
        self.added.append(tensor)
        self.constants[name] = tensor
        return name

    def _copy(self, body: onnx.GraphProto, prefix: str, names: dict[str, str]) -> Iterator[onnx.NodeProto]:
        """The nodes of a sub-graph with names of their own. `names`: what its inputs stand for; its results are entered."""
        for tensor in body.initializer:
            names[tensor.name] = self._constant(f"{prefix}/{tensor.name}", numpy_helper.to_array(tensor))
        for position, node in enumerate(body.node):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            for name in node.output:
                if name:
                    names[name] = f"{prefix}/{name}"
            _rename(copy, names)
            copy.name = f"{prefix}/{node.name or f'{node.op_type}_{position}'}"
            yield copy

    def _branch(self, node: onnx.NodeProto, branch: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
        names: dict[str, str] = {}
        if len(branch.output) != len(node.output):
            raise ModelError(
                f"node '{node.name}' (If): the branch '{branch.name}' has {len(branch.output)} outputs, the node {len(node.output)}; export the network again"
            )
        yield from self._copy(branch, node.name, names)
        for position, (inner, outer) in enumerate(zip(branch.output, node.output, strict=True)):
            if outer:
                source = names.get(inner.name, inner.name)
                yield helper.make_node("Identity", [source], [outer], name=f"{node.name}/output{position}")

    def _trips(self, node: onnx.NodeProto, body: onnx.GraphProto) -> int | None:
        """The number of iterations, None where the data decide it."""
        count = self.value(node.input[0]) if node.input and node.input[0] else None
        if count is None or count.size != 1 or len(body.input) < 2 or not body.output:
            return None
        if len(node.input) > 1 and node.input[1]:
            start = self.value(node.input[1])
            if start is None or start.size != 1:
                return None
            if not start.reshape(-1)[0]:
                return 0
        name = body.output[0].name
        while (
            maker := next((n for n in body.node if name in n.output), None)
        ) is not None and maker.op_type == "Identity":
            name = maker.input[0]
        goes_on = name == body.input[1].name
        stated = next((i for i in body.initializer if i.name == name), None)
        if stated is None and maker is not None and maker.op_type == "Constant":
            stated = next((a.t for a in maker.attribute if a.name == "value"), None)
        if stated is not None:
            goes_on = bool(numpy_helper.to_array(stated).all())
        trips = max(int(count.reshape(-1)[0]), 0)
        if not goes_on:
            return None
        if trips * len(body.node) > MOST_NODES:
            raise UnsupportedError(
                f"node '{node.name}' (Loop): {trips} iterations of {len(body.node)} nodes, expected at most {MOST_NODES} nodes in all; "
                "export the network without this loop"
            )
        return trips

    def _loop(self, node: onnx.NodeProto, body: onnx.GraphProto, trips: int) -> Iterator[onnx.NodeProto]:
        state = list(node.input[2:])
        carried = len(state)
        least = 1 + max(carried, len(node.output))
        if len(body.input) != 2 + carried or len(body.output) < least:
            raise ModelError(
                f"node '{node.name}' (Loop): its body has {len(body.input)} inputs and {len(body.output)} outputs, expected {2 + carried} and {least} "
                f"for {carried} carried tensors and {len(node.output)} outputs; export the network again"
            )
        collected: list[list[str]] = [[] for _ in body.output[1 + carried :]]
        for trip in range(trips):
            prefix = f"{node.name}/{trip}"
            names = {
                body.input[0].name: self._constant(f"{prefix}/trip", np.asarray(trip, np.int64)),
                body.input[1].name: self._constant(f"{prefix}/go_on", np.asarray(True)),
            }
            names |= {given.name: value for given, value in zip(body.input[2:], state, strict=True)}
            yield from self._copy(body, prefix, names)
            results = [names.get(o.name, o.name) for o in body.output[1:]]
            state = results[:carried]
            for position, result in enumerate(results[carried:]):
                collected[position].append(f"{prefix}/scan{position}")
                yield self._unsqueeze(result, f"{prefix}/scan{position}", prefix, position)
        for position, outer in enumerate(node.output):
            if not outer:
                continue
            if position < carried:
                yield helper.make_node("Identity", [state[position]], [outer], name=f"{node.name}/output{position}")
            elif trips:
                rows = collected[position - carried]
                yield helper.make_node("Concat", rows, [outer], name=f"{node.name}/output{position}", axis=0)
            else:
                raise UnsupportedError(
                    f"node '{node.name}' (Loop): runs no iteration, so its output '{outer}' is empty; export the network without it"
                )

    def _unsqueeze(self, source: str, target: str, prefix: str, position: int) -> onnx.NodeProto:
        name = f"{prefix}/unsqueeze{position}"
        if self.opset < 13:
            return helper.make_node("Unsqueeze", [source], [target], name=name, axes=[0])
        axes = self._constant(f"{name}/axes", np.zeros(1, np.int64))
        return helper.make_node("Unsqueeze", [source, axes], [target], name=name)


def _rename(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Gives inputs, outputs and what nested sub-graphs read from outside their new names."""
    for field in (node.input, node.output):
        field[:] = [names.get(t, t) for t in field]
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
            own = (
                {v.name for v in graph.input}
                | {i.name for i in graph.initializer}
                | {t for n in graph.node for t in n.output}
            )
            outside = {k: v for k, v in names.items() if k not in own}
            for inner in graph.node:
                _rename(inner, outside)
            for output in graph.output:
                output.name = outside.get(output.name, output.name)
