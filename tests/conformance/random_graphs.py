"""Random small networks of the operators that the C++ executor has, grown node by node; each node is run by ONNX Runtime as it is added.

A node is kept only if its values are finite and moderate, so that whole networks stay well conditioned. Functions with jumps (Floor, comparisons,
ArgMax, …) only see tensors that both sides compute to the last bit (`exact`): inputs and what only moves or selects them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

OPSET = 21
LARGEST = 50.0
Array = np.ndarray


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """ONNX Runtime, without graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, feeds)]


def make_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Array],
    constants: dict[str, Array],
    outputs: list[str],
    types: dict[str, np.dtype[Any]] | None = None,
) -> onnx.ModelProto:
    """A model with static inputs and outputs of open shape; `types`: of outputs for which ONNX has no inference."""

    def result(name: str) -> onnx.ValueInfoProto:
        if types is None:
            return helper.make_empty_tensor_value_info(name)
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(types[name]), None)

    def value(name: str, array: Array) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        nodes,
        "random",
        [value(name, array) for name, array in inputs.items()],
        [result(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


class Network:
    """A network under construction; `values` holds every tensor's value for the inputs drawn."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.values: dict[str, Array] = {}
        self.exact: set[str] = set()
        self.types: dict[str, np.dtype[Any]] = {}
        self.nodes: list[onnx.NodeProto] = []
        for _ in range(int(self.random.integers(1, 4))):
            rank = self.pick(1, 2, 3, 4, 4, 4, 5)
            shape = tuple(int(d) for d in self.random.integers(1, 7 if rank < 5 else 5, rank))
            name = f"x{len(self.inputs)}"
            self.inputs[name] = self.values[name] = self.random.normal(0.0, 1.5, shape).astype(np.float32)
            self.exact.add(name)

    # ---- drawing
    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def integer(self, low: int, high: int) -> int:
        """Between low and high, both included."""
        return int(self.random.integers(low, high + 1))

    def tensor(self, accept: Callable[[Array], bool], exact: bool = False) -> str | None:
        """A tensor that is accepted; recent ones are likelier."""
        found = [n for n, v in self.values.items() if v.size and accept(v) and (not exact or n in self.exact)]
        return self.pick(*found, *found[-3:], *found[-3:]) if found else None

    def floats(self, low: int = 0, high: int = 8, exact: bool = False) -> str | None:
        """A float tensor with a rank between low and high."""
        return self.tensor(lambda v: v.dtype == np.float32 and low <= v.ndim <= high, exact)

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def normal(self, *shape: int) -> str:
        return self.constant(self.random.normal(0.0, 0.5, shape))

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def like(self, x: str) -> str | None:
        """A tensor or constant that broadcasts with x."""
        shape = self.values[x].shape
        own = tuple(int(d) if self.pick(0, 1) else 1 for d in shape)[self.integer(0, len(shape)) :]
        other = self.tensor(lambda v: v.dtype == self.values[x].dtype and v.shape == shape)
        if self.values[x].dtype != np.float32:
            return other
        return self.pick(self.normal(*own), other)

    # ---- growing
    def node(self, op: str, inputs: list[str], outputs: int = 1, exact: bool = False, **attrs: Any) -> str | None:
        """Adds a node if ONNX Runtime runs it to finite, moderate values; `exact`: it moves, selects or counts without rounding."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        proto = helper.make_node(op, inputs, names, f"n{len(self.nodes)}", **attrs)
        read = dict.fromkeys(t for t in inputs if t)
        feeds = {t: self.values[t] for t in read if t in self.values}
        fixed = {t: self.constants[t] for t in read if t in self.constants}
        try:
            results = run(make_model([proto], feeds, fixed, names), feeds)
        except (Fail, InvalidArgument):  # a window without room, an empty result
            return None
        for value in results:
            if value.size > 4096 or (value.dtype.kind == "f" and not (np.abs(value) < LARGEST).all()):
                return None
        self.nodes.append(proto)
        self.values.update(zip(names, results, strict=True))
        self.types.update((name, value.dtype) for name, value in zip(names, results, strict=True))
        if exact and all(t in self.exact or t in self.constants for t in read):
            self.exact.update(names)
        return names[0]

    def model(self) -> onnx.ModelProto:
        """Every tensor that nothing reads, and some that something reads, are outputs."""
        read = {t for n in self.nodes for t in n.input}
        written = [t for n in self.nodes for t in n.output]
        outputs = [t for t in written if t not in read or self.pick(0, 0, 0, 1)]
        inputs = {n: v for n, v in self.inputs.items() if n in read}
        constants = {n: v for n, v in self.constants.items() if n in read}
        return make_model(self.nodes, inputs, constants, outputs, self.types)


def grow(seed: int, templates: list[Callable[[Network], Any]]) -> Network:
    """A network of up to eight constructions."""
    network = Network(seed)
    for _ in range(network.integer(2, 8)):
        network.pick(*templates)(network)
    if not network.nodes:
        network.node("Relu", ["x0"])
    return network
