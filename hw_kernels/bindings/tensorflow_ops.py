"""The kit's operators in TensorFlow: a C++ op library over the runtime's CPU kernels, gradients from the operator folders. Needs `npuforge[tensorflow]`.

    python -m npuforge.hw_kernels.bindings.tensorflow_ops npuforge_tf.so     # builds it against the installed TensorFlow, with g++

`load(path)` once, then `run(name, *tensors, **attributes)`. A SavedModel that holds these operators loads in any process that has loaded the library.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from npuforge.compile.ir.errors import UnsupportedError, UsageError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.levels import declared, reason
from npuforge.hw_kernels.operator import Op

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
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no message"]
        first = next((line for line in lines if "error" in line), lines[-1])
        raise UsageError(f"the TensorFlow op library does not compile: {first}")


def load(library: Path) -> None:
    """Makes the operators known to this process."""
    _LOADED["run"] = tf.load_op_library(str(library)).npuforge_run


def run(name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """Operator `name` on float32, int64 or bool tensors. One tensor, or a list if `outputs` is above 1."""
    op = operator.find(name)
    if op is None or not declared(op, "CPU"):
        why = "it is not known" if op is None else reason(op, "CPU") or "use " + ", ".join(op.lowers_to)
        raise UnsupportedError(f"operator {name} has no CPU kernel for TensorFlow: {why}")
    if "run" not in _LOADED:
        raise UsageError("the TensorFlow op library is not loaded; build it and call load(path) first")
    tensors = [tf.convert_to_tensor(x) for x in inputs]
    kinds = [t.dtype.name for t in tensors]
    found_types = op.output_types(_node(name, len(tensors), outputs, attributes), kinds)[:outputs]
    found = _LOADED["run"](
        inputs=tensors, Tout=[tf.as_dtype(t) for t in found_types], op=name, attributes=json.dumps(attributes)
    )
    return found[0] if outputs == 1 else list(found)


def _node(name: str, inputs: int, outputs: int, attributes: dict[str, Any]) -> Node:
    return Node(name, name, [f"x{i}" for i in range(inputs)], [f"y{i}" for i in range(outputs)], dict(attributes))


@tf.RegisterGradient("NpuforgeRun")
def _gradient(call: Any, *dys: Any) -> list[Any]:
    """Of the float inputs, by the operator's own gradient."""
    name, attributes = call.get_attr("op").decode(), json.loads(call.get_attr("attributes").decode())
    op = operator.registry()[name]
    if type(op).gradient is Op.gradient or op.no_gradient:
        raise UnsupportedError(f"operator {name} has no gradient: {op.no_gradient}; stop_gradient its inputs")
    node = _node(name, len(call.inputs), len(call.outputs), attributes)
    floats = [i for i, x in enumerate(call.inputs) if x.dtype.is_floating]
    given = [
        tf.zeros_like(y, tf.float32) if dy is None or not y.dtype.is_floating else dy
        for dy, y in zip(dys, call.outputs, strict=True)
    ]

    def compute(*arrays: np.ndarray) -> list[np.ndarray]:
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        found = op.gradient(node, wide[: len(call.inputs)], wide[len(call.inputs) :])
        chosen = [(found[i], arrays[i]) for i in floats]
        return [np.zeros_like(x) if g is None else np.asarray(g).astype(x.dtype) for g, x in chosen]

    made = tf.numpy_function(compute, [*call.inputs, *given], [call.inputs[i].dtype for i in floats])
    results: list[Any] = [None] * len(call.inputs)
    for i, gradient in zip(floats, made if isinstance(made, (list, tuple)) else [made], strict=True):
        gradient.set_shape(call.inputs[i].shape)
        results[i] = gradient
    return results


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m npuforge.hw_kernels.bindings.tensorflow_ops LIBRARY.so")
    build(Path(sys.argv[1]))
