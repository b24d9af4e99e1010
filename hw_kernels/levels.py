"""Levels of an operator: what its class and folder declare, and why where they don't. Read by the contract test and by docs/operators.md.

float: the reference. gradient, second gradient. CPU: cpu.hpp. int8: integer semantics, `fine` and `pow2`. bf16. Both by the engines, or by a kernel of the
operator's own (`own_kernel`), which no partition runs. HLS: an engine or kernel.hpp. DSL: an NPU program, or
an array program (`array_program`), which no partition runs either. torch, ORT, TF: the framework bindings.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from npuforge.compile.ir.graph import Activation
from npuforge.hw_kernels.dsl.array import ArrayKernel
from npuforge.hw_kernels.operator import Case, KernelForm, Op, registry

LEVELS = ("float", "gradient", "second gradient", "CPU", "int8", "bf16", "HLS", "DSL", "torch", "ORT", "TF")
HARDWARE = ("int8", "bf16", "HLS", "DSL")
FOLDER = Path(__file__).parent / "ops"


def is_standard(op: Op) -> bool:
    """Of ONNX's own domain, or a canonical form of the kit's graph."""
    return all("::" not in name for name in op.names)


def for_frameworks(case: Case) -> bool:
    """Whether a torch program could call the operator like this: no fused activation, no tensor as attribute."""
    return case.activation == Activation() and not any(isinstance(v, np.ndarray) for v in case.attrs.values())


def folder(op: Op) -> Path | None:
    """The operator's folder, None for one of another package."""
    module = type(op).__module__
    return FOLDER / module.split(".")[-2] if module.startswith(f"{__package__}.ops.") else None


def _has_file(op: Op, name: str) -> bool:
    where = folder(op)
    return where is not None and (where / name).is_file()


def _overrides(op: Op, method: str) -> bool:
    return getattr(type(op), method, None) is not getattr(Op, method, None)


def declared(op: Op, level: str) -> bool:
    """Whether the operator itself has the level."""
    if level == "gradient":
        return _overrides(op, "gradient") and not op.no_gradient
    if level == "second gradient":
        return _overrides(op, "second_gradient") and not op.no_gradient
    if level == "CPU":
        return _has_file(op, "cpu.hpp")
    if level == "HLS":
        return any(v is not None for v in (op.program, op.kernel, op.kernel_int8))
    if level == "DSL":
        return op.program is not None
    if level == "bf16":  # an operator that only moves values does so in either type
        return not op.refusal(level) and (_overrides(op, "bf16") or (op.program is not None and op.moves_bytes))
    if level == "torch":
        return any(for_frameworks(case) for case in op.cases)
    if level == "ORT":
        return not is_standard(op)
    if level == "TF":
        return not is_standard(op) and (_has_file(op, "cpu.hpp") or bool(op.lowers_to))
    return not op.refusal(level) and _overrides(op, {"float": "reference", "int8": "integer"}[level])


def own_kernel(op: Op, level: str) -> KernelForm | None:
    """The kernel that has the level int8 or bf16 where no engine has it; no partition runs it (placement: CPU)."""
    return {"int8": op.kernel_int8, "bf16": op.kernel_bf16}.get(level)


def array_program(op: Op) -> ArrayKernel | None:
    """The operator's array program, where no engine runs it: what other targets' sources are generated from."""
    return op.dsl if isinstance(op.dsl, ArrayKernel) else None


def runs_as(op: Op) -> list[str]:
    """Names of the operators that the import turns this one into: always (`lowers_to`), or where the NPU takes it."""
    if op.program is not None:
        return []
    if op.lowers_to:
        return list(op.lowers_to)
    own = {*op.names, *op.onnx}
    return sorted(n for n, other in registry().items() if other.program is not None and own & set(other.onnx))


def through(op: Op, level: str) -> list[str]:
    """The operators that have the level in this one's place, all of them; empty if one has not."""
    if level not in ("CPU", *HARDWARE) or (level == "CPU" and not op.lowers_to):
        return []
    others = [(n, registry()[n]) for n in runs_as(op)]
    if all(declared(other, level) or through(other, level) for _, other in others):
        return [n for n, _ in others]
    return []


def reason(op: Op, level: str) -> str:
    """Why the level is missing here and in the operators it runs as, empty where nothing says why."""
    if level == "gradient":
        return op.no_gradient
    if level == "second gradient":
        return op.no_gradient or "differentiable once"
    if level == "CPU":
        return "" if folder(op) else "C++ of another package is not compiled"
    if op.refusal(level):
        return op.refusal(level)
    if level == "bf16" and (op.program is not None or runs_as(op)):
        return "no bf16 semantics"
    if level in HARDWARE:
        reasons = "; ".join(" ".join((c.__doc__ or "").split()) for c in op.constraints)
        return f"{op.placed_as}; elsewhere {reasons}" if op.placed_as else reasons
    if level == "torch":
        return "its cases have a fused activation or a tensor attribute"
    if level in ("ORT", "TF") and not any(onnx.defs.has(name) for name in op.names) and is_standard(op):
        return "a form of the kit's graph, in no network"
    if level == "ORT":
        return "ONNX Runtime has its own"
    if level == "TF":
        return "standard: tf2onnx makes it of TensorFlow's own" if is_standard(op) else "no CPU kernel"
    return ""
