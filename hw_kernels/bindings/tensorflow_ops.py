"""The kit's operators in TensorFlow: a C++ op library over the runtime's CPU kernels, gradients from the operator folders. Needs `npuforge[tensorflow]`.

    python -m npuforge.hw_kernels.bindings.tensorflow_ops npuforge_tf.so     # builds it against the installed TensorFlow, with g++

`load(path)` once, then `run(name, *tensors, **attributes)`. A SavedModel that holds these operators loads in any process that has loaded the library.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from npuforge.compile.ir.errors import UnsupportedError, UsageError
from npuforge.compile.ir.foreign_tools import run_tool
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.bindings.checked_attributes import check_attributes, check_names
from npuforge.hw_kernels.levels import declared, reason
from npuforge.hw_kernels.operator import Gradients, Op

_ROOT = Path(__file__).resolve().parents[2]  # holds hw_kernels and board_runtime, in a checkout and in a wheel
_LOADED: dict[str, Any] = {}


def build(library: Path) -> None:
    """Compiles the op library; UsageError with the compiler's words if that fails. Takes about two minutes."""
    headers = sorted((_ROOT / "hw_kernels" / "ops").glob("*/cpu.hpp"))
    runtime = [
        _ROOT / "board_runtime" / "src" / f"{n}.cpp" for n in ("cpu_operators", "cpu_gemm", "json", "json_value")
    ]
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "operators.cpp"
        lines = [f'#include "{h}"' for h in headers] + [
            "namespace npuforge::cpu {",
            "void register_all(Registry& registry) {",
        ]
        lines += [f"    register_{h.parent.name}(registry);" for h in headers] + ["}", "}"]
        unit.write_text("\n".join(lines) + "\n", encoding="utf-8")
        sources = [unit, Path(__file__).with_suffix(".cpp"), *runtime]
        flags = [
            "-O2",
            "-shared",
            "-fPIC",
            "-ffp-contract=off",
            "-fvisibility=hidden",
            "-I",
            str(_ROOT / "board_runtime" / "include"),
            "-I",
            str(_ROOT),  # headers of an operator folder, named from here
        ]
        command = [
            "g++",
            *flags,
            *map(str, sources),
            "-o",
            str(library),
            *tf.sysconfig.get_compile_flags(),
            *tf.sysconfig.get_link_flags(),
        ]
        result = run_tool("g++", command, Path.cwd())
    if result.code:
        raise UsageError(f"the TensorFlow op library does not compile: {result.first_error}")


def load(library: Path) -> None:
    """Makes the operators known to this process."""
    _LOADED["run"] = tf.load_op_library(str(library)).npuforge_run


def run(name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """Operator `name` on float32, int64 or bool tensors. One tensor, or a list if `outputs` is above 1.

    UnsupportedError: the operator is not known, has no CPU kernel, or has no such attribute; its gradient, also for an attribute that only the
    forward pass computes (auto_pad, ceil_mode, ...).
    """
    op = operator.find(name)
    if op is None or not (declared(op, "CPU") or op.lowers_to):
        why = f"it {operator.not_known(name)}" if op is None else reason(op, "CPU")
        raise UnsupportedError(f"operator {name} has no CPU kernel for TensorFlow: {why}")
    if "run" not in _LOADED:
        raise UsageError("the TensorFlow op library is not loaded; build it and call load(path) first")
    check_names(name, attributes)
    tensors = [tf.convert_to_tensor(x) for x in inputs]
    node = _node(name, len(tensors), outputs, attributes)
    found = _call(op, node, tensors) if declared(op, "CPU") else _lowered(op, node, tensors)
    return found[0] if outputs == 1 else found


def _call(op: Op, node: Node, tensors: list[Any]) -> list[Any]:
    """One node of the op library."""
    kinds = op.output_types(node, [t.dtype.name for t in tensors])[: len(node.outputs)]
    types = [tf.as_dtype(kind) for kind in kinds]
    return list(_LOADED["run"](inputs=tensors, Tout=types, op=node.op, attributes=json.dumps(node.attrs)))


def _lowered(op: Op, node: Node, tensors: list[Any]) -> list[Any]:
    """The operators that this one lowers to, parameters as tensors, so that they can be trained."""
    values = dict(zip(node.inputs, tensors, strict=True))
    shapes = {t: v.shape for t, v in values.items() if v.shape.is_fully_defined()}
    infos = {t: TensorInfo(t, tuple(shape.as_list()), values[t].dtype.name) for t, shape in shapes.items()}
    graph = Graph("tensorflow", [], infos, {}, list(node.inputs), list(node.outputs), 18)
    parts = op.lower(node, graph)
    if parts is None:
        raise UnsupportedError(f"operator {node.op} does not lower with these attributes: {node.attrs}")
    values |= {t: tf.constant(v) for t, v in graph.constants.items()}
    for part in parts:
        found = _call(operator.get(part), part, [values[t] for t in part.inputs])
        values |= dict(zip(part.outputs, found, strict=True))
    return [values[t] for t in node.outputs]


def _node(name: str, inputs: int, outputs: int, attributes: dict[str, Any]) -> Node:
    return Node(name, name, [f"x{i}" for i in range(inputs)], [f"y{i}" for i in range(outputs)], dict(attributes))


# ---- gradients
def _numpy(compute: Callable[..., Gradients], tensors: list[Any], like: list[Any]) -> list[Any]:
    """`compute` in float64 on the arrays of `tensors`; what it gives has the types and shapes of `like`, zeros where it gives None."""

    def narrow(*arrays: np.ndarray) -> list[np.ndarray]:
        found = compute([a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays[: len(tensors)]])
        shapes = arrays[len(tensors) :]
        return [
            np.zeros(s, np.float32) if g is None else np.asarray(g, np.float32)
            for g, s in zip(found, shapes, strict=True)
        ]

    made = tf.numpy_function(narrow, [*tensors, *map(tf.shape, like)], [t.dtype for t in like])
    results = list(made) if isinstance(made, (list, tuple)) else [made]
    for result, t in zip(results, like, strict=True):
        result.set_shape(t.shape)
    return results


@tf.RegisterGradient("NpuforgeRun")
def _gradient(call: Any, *dys: Any) -> list[Any]:
    """Of the float inputs, by the operator's own gradient; differentiable once more, by its second gradient."""
    name, attributes = call.get_attr("op").decode(), json.loads(call.get_attr("attributes").decode())
    op = operator.registry()[name]
    if type(op).gradient is Op.gradient or op.no_gradient:
        raise UnsupportedError(f"operator {name} has no gradient: {op.no_gradient}; stop_gradient its inputs")
    count = len(call.inputs)
    check_attributes(name, count, attributes)  # the C++ kernel computes more of them than the gradient does
    node = _node(name, count, len(call.outputs), attributes)
    floats = [i for i, x in enumerate(call.inputs) if x.dtype.is_floating]
    given = [
        tf.zeros_like(y, tf.float32) if dy is None or not y.dtype.is_floating else dy
        for dy, y in zip(dys, call.outputs, strict=True)
    ]

    def first(arrays: list[np.ndarray]) -> Gradients:
        found = op.gradient(node, arrays[:count], arrays[count:])
        return [found[i] for i in floats]

    def second(arrays: list[np.ndarray]) -> Gradients:
        end = count + len(given)
        directions: Gradients = [None] * count
        for i, direction in zip(floats, arrays[end:], strict=True):
            directions[i] = direction
        of_inputs, of_dys = op.second_gradient(node, arrays[:count], arrays[count:end], directions)
        return [*(of_inputs[i] for i in floats), *of_dys]

    @tf.custom_gradient
    def differentiable(*tensors: Any) -> tuple[list[Any], Callable[..., list[Any]]]:
        def backward(*directions: Any) -> list[Any]:
            if type(op).second_gradient is Op.second_gradient:
                raise UnsupportedError(f"operator {name} can be differentiated once only")
            like = [*(tensors[i] for i in floats), *tensors[count:]]
            found = iter(_numpy(second, [*tensors, *directions], like))
            return [next(found) if i in floats or i >= count else None for i in range(len(tensors))]

        return _numpy(first, list(tensors), [tensors[i] for i in floats]), backward

    made = differentiable(*call.inputs, *given)
    results: list[Any] = [None] * count
    for i, gradient in zip(floats, made if isinstance(made, (list, tuple)) else [made], strict=True):
        results[i] = gradient
    return results


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m npuforge.hw_kernels.bindings.tensorflow_ops LIBRARY.so")
    build(Path(sys.argv[1]))
